"""Deep-learning models as the simulator sees them, one yaml of `conf/profiles` each."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ringyard.checks import Amount, Positive, checked, shown
from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import REFERENCE_GPU

__all__ = ["ModelProfile", "catalogue", "model_id", "profile", "read_profile"]


@checked("profile")
@dataclass(frozen=True)
class ModelProfile:
    """What is known of one model; None: no figure, and whatever needs one says so.

    Attributes:
        name: the model.
        gradient_bytes: bytes each worker contributes to one all-reduce.
        batch_size: samples per GPU and iteration of the base batch.
        fixed_seconds: of an iteration's compute time on one V100, whatever the batch.
        sample_seconds: per sample, on one V100.
        sources: where each figure comes from, "assumed: ..." where it was not measured; {field: text}.
        task: what it is trained for.
        parameters: number of weights.
        speeds: {GPU type: speed relative to V100}.
        min_batch: smallest global batch an elastic job may use, samples.
        max_batch: largest.
        noise_scale: phi, gradient noise scale, samples (mean over a training).
        samples_per_core_second: what one CPU core prepares; None: no measured limit.
        bandwidth_per_core: bytes per second of main memory that each core of its input pipeline moves.
        sensitivity: extra iteration time per unit of neighbours' pressure on a shared V100.
        pressure: what it does to neighbours.
        fixed_memory_bytes: GPU memory whatever the batch.
        sample_memory_bytes: GPU memory per sample of a worker.
        restart_seconds: to checkpoint and start again.
        final_metric: validation metric at the end of training.
        metric_half: share of training after which the hyperbolic metric curve would be half way, were it
            to go on for ever (`ringyard.learning_curves`).
        metric_start: validation metric before training.
        step_coefficients: AITurbo's step time, [theta0 .. theta5] (`performance.parameter_server`).
        server_efficiency: (a, b, d) of a parameter server's efficiency a exp(-b cores) + d.
        file: the yaml it was read from.
    """

    name: str
    gradient_bytes: Amount
    batch_size: Positive
    fixed_seconds: Amount
    sample_seconds: Amount
    sources: Mapping[str, Any]
    task: str = ""
    parameters: Amount | None = None
    speeds: Mapping[str, Positive] = field(default_factory=dict)
    min_batch: Positive | None = None
    max_batch: Positive | None = None
    noise_scale: Positive | None = None
    samples_per_core_second: Positive | None = None
    bandwidth_per_core: Amount | None = None
    sensitivity: Amount | None = None
    pressure: Amount | None = None
    fixed_memory_bytes: Amount | None = None
    sample_memory_bytes: Amount | None = None
    restart_seconds: Amount | None = None
    final_metric: float | None = None
    metric_half: Positive | None = None
    metric_start: float | None = None
    step_coefficients: tuple[Amount, Amount, Amount, Amount, Amount, Amount] | None = None
    server_efficiency: tuple[float, float, float] | None = None
    file: str = ""

    @property
    def compute_seconds(self) -> float:
        """Forward and backward seconds of one base iteration on one V100."""
        return self.fixed_seconds + self.sample_seconds * self.batch_size

    def need(self, name: str) -> Any:
        """The figure `name`.

        Raises:
            ConfigurationError: the profile does not have it.
        """
        value = getattr(self, name)
        if value is None:
            raise ConfigurationError(
                f"model {self.name} has no {name}, which this simulation needs; add it to {self.file}"
                " with its source, or leave the model out of the mix"
            )
        return value

    def speed(self, gpu_type: str) -> float:
        """Speed on a GPU type, 1 on the reference GPU.

        Raises:
            ConfigurationError: the profile does not have it.
        """
        if gpu_type == REFERENCE_GPU:
            return 1.0
        if gpu_type not in self.speeds:
            raise ConfigurationError(
                f"model {self.name} has no speeds.{gpu_type}, which this cluster needs; add it to {self.file}"
            )
        return self.speeds[gpu_type]


#: ten times faster than the loader in Python, where libyaml is at hand
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TEXTS = ("name", "task", "sources")
_REQUIRED = ("name", "gradient_bytes", "batch_size", "fixed_seconds", "sample_seconds", "sources")


def _number(value: Any) -> Any:
    """What yaml took for text although it is a number (1e9), as a number; anything else as it is."""
    if isinstance(value, list):
        return tuple(_number(one) for one in value)
    if isinstance(value, dict):
        return {name: _number(one) for name, one in value.items()}
    try:
        return float(value) if isinstance(value, str | int) and not isinstance(value, bool) else value
    except (ValueError, OverflowError):
        return value


def read_profile(file: Path) -> ModelProfile:
    """One profile.

    Raises:
        ConfigurationError: an unknown or missing field, or a value that is no number; names the file.
    """
    try:
        raw = yaml.load(file.read_bytes(), _LOADER)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file} is no readable yaml: {shown(error)}") from error
    known = {one.name for one in fields(ModelProfile)} - {"file"}
    if not isinstance(raw, dict) or set(raw) - known:
        odd = set(raw) - known if isinstance(raw, dict) else raw
        raise ConfigurationError(
            f"{file}: unknown field {shown(odd)}; expected some of {', '.join(sorted(known))}"
        )
    for name in _REQUIRED:
        if name not in raw:
            raise ConfigurationError(f"{file}: field {name} is missing")
    values = {name: value if name in _TEXTS else _number(value) for name, value in raw.items()}
    try:
        return ModelProfile(**values, file=str(file))
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from None


@functools.cache
def catalogue() -> tuple[ModelProfile, ...]:
    """Every profile of `conf/profiles`, by file name; read once per process."""
    return tuple(read_profile(file) for file in sorted((config_folder() / "profiles").glob("*.yaml")))


@functools.cache
def _ids() -> dict[str, int]:
    return {candidate.name: position for position, candidate in enumerate(catalogue())}


def model_id(name: str) -> int:
    """Position of the profile called `name` in the catalogue.

    Raises:
        ConfigurationError: no such model.
    """
    if name not in _ids():
        raise ConfigurationError(f"unknown model {name!r}; expected one of {', '.join(_ids())}")
    return _ids()[name]


def profile(name: str) -> ModelProfile:
    """The profile called `name`.

    Raises:
        ConfigurationError: no such model.
    """
    return catalogue()[model_id(name)]
