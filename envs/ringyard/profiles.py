"""Deep-learning models as the simulator sees them, one yaml of `conf/profiles` each."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import REFERENCE_GPU

__all__ = ["ModelProfile", "catalogue", "model_id", "profile", "read_profile"]


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
    gradient_bytes: float
    batch_size: float
    fixed_seconds: float
    sample_seconds: float
    sources: Mapping[str, str]
    task: str = ""
    parameters: float | None = None
    speeds: Mapping[str, float] = field(default_factory=dict)
    min_batch: float | None = None
    max_batch: float | None = None
    noise_scale: float | None = None
    samples_per_core_second: float | None = None
    bandwidth_per_core: float | None = None
    sensitivity: float | None = None
    pressure: float | None = None
    fixed_memory_bytes: float | None = None
    sample_memory_bytes: float | None = None
    restart_seconds: float | None = None
    final_metric: float | None = None
    metric_half: float | None = None
    metric_start: float | None = None
    step_coefficients: tuple[float, ...] | None = None
    server_efficiency: tuple[float, ...] | None = None
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

_TEXTS = {"name", "task", "file"}
_REQUIRED = ("name", "gradient_bytes", "batch_size", "fixed_seconds", "sample_seconds", "sources")


def _number(value: Any, name: str, file: Path) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not number >= 0 and name not in ("server_efficiency",):
        raise ConfigurationError(f"{file}: {name} is {value!r}; expected a number, 0 or more")
    return number


def read_profile(file: Path) -> ModelProfile:
    """One profile.

    Raises:
        ConfigurationError: an unknown or missing field, or a value that is no number; names the file.
    """
    raw = yaml.load(file.read_text(), _LOADER)
    known = {one.name for one in fields(ModelProfile)} - {"file"}
    if not isinstance(raw, dict) or set(raw) - known:
        odd = sorted(set(raw) - known) if isinstance(raw, dict) else raw
        raise ConfigurationError(f"{file}: unknown field {odd}; expected some of {', '.join(sorted(known))}")
    for name in _REQUIRED:
        if name not in raw:
            raise ConfigurationError(f"{file}: field {name} is missing")
    values: dict[str, Any] = {"file": str(file)}
    for name, value in raw.items():
        if name in _TEXTS or name == "sources" or (value is None and name not in _REQUIRED):
            values[name] = value
        elif name == "speeds":
            values[name] = {kind: _number(one, f"speeds.{kind}", file) for kind, one in value.items()}
        elif isinstance(value, list):
            values[name] = tuple(_number(one, name, file) for one in value)
        else:
            values[name] = _number(value, name, file)
    return ModelProfile(**values)


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
