"""Deep-learning models as the simulator sees them, one yaml of `conf/profiles` each."""

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from numpy.typing import NDArray

from ringyard.checks import NonNegative, Positive, checked, shown
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU

_StepCoefficients = tuple[NonNegative, NonNegative, NonNegative, NonNegative, NonNegative, NonNegative]


@checked("profile.gpus")
@dataclass(frozen=True)
class GpuProfile:
    """What is known of one model on one GPU type.

    One iteration's forward and backward pass takes `fixed_seconds + sample_seconds x samples per GPU`.

    Attributes:
        fixed_seconds: whatever the batch.
        sample_seconds: per sample of the GPU's share of the batch.
        source: where the figures come from; begins with "derived:" if they were not measured on this type.
        sharing: {samples per GPU: (sensitivity, pressure)} beside others on one GPU: sensitivity is extra
            iteration time per unit of the neighbours' pressure (`ringyard.performance.interference`).
    """

    fixed_seconds: NonNegative
    sample_seconds: NonNegative
    source: str
    sharing: Mapping[Positive, tuple[NonNegative, NonNegative]] = field(default_factory=dict)

    @property
    def derived(self) -> bool:
        """Whether the figures follow by a rule from those of other GPU types or models."""
        return self.source.startswith("derived:")

    def compute_seconds(self, samples: float) -> float:
        """Forward and backward seconds of one iteration with so many samples per GPU."""
        return self.fixed_seconds + self.sample_seconds * samples


@checked("profile")
@dataclass(frozen=True)
class ModelProfile:
    """What is known of one model; None: no figure, and whatever needs one says so.

    Attributes:
        name: the model.
        gradient_bytes: bytes each worker contributes to one all-reduce.
        batch_size: samples per GPU and iteration of the base batch.
        gpus: {GPU type: figures}, the reference GPU (V100) among them.
        sources: where each other figure comes from, "assumed: ..." where it was not measured; {field: text}.
        task: what it is trained for.
        parameters: number of weights.
        overlap_exponent: how its training overlaps transfers with computing (`ring.overlapped_seconds`);
            None: as the performance model says.
        min_batch: smallest global batch an elastic job may use, samples.
        max_batch: largest.
        noise_scale: phi, gradient noise scale, samples (mean over a training).
        samples_per_core_second: what one CPU core prepares; None: no measured limit.
        loading_serial_share: s of `ringyard.performance.host_resources.useful_cores`.
        sample_bytes: of one sample on storage; None: it reads nothing there worth counting.
        dataset_bytes: of all its samples.
        bandwidth_per_core: bytes per second of main memory that each core of its input pipeline moves.
        fixed_memory_bytes: GPU memory whatever the batch.
        sample_memory_bytes: GPU memory per sample of a worker.
        restart_seconds: to start again on one GPU.
        restart_seconds_per_doubling: more at each doubling of the GPUs (`ringyard.restart`).
        final_metric: validation metric at the end of training.
        metric_half: share of training after which the hyperbolic metric curve would be half way, were it
            to go on for ever (`ringyard.learning_curves`).
        metric_start: validation metric before training.
        step_coefficients: AITurbo's step time, [theta0 .. theta5] (`performance.parameter_server`).
        server_efficiency: (a, b, d) of a parameter server's efficiency a exp(-b cores) + d.
        file: the yaml it was read from.

    Raises:
        ConfigurationError: an unknown GPU type, no figures of the reference GPU, or figures without a finite
            ratio to those.
    """

    name: str
    gradient_bytes: NonNegative
    batch_size: Positive
    gpus: Mapping[str, GpuProfile]
    sources: Mapping[str, Any]
    task: str = ""
    parameters: NonNegative | None = None
    overlap_exponent: Annotated[float, "[1, inf)"] | None = None
    min_batch: Positive | None = None
    max_batch: Positive | None = None
    noise_scale: Positive | None = None
    samples_per_core_second: Positive | None = None
    loading_serial_share: NonNegative | None = None
    sample_bytes: NonNegative | None = None
    dataset_bytes: Positive | None = None
    bandwidth_per_core: NonNegative | None = None
    fixed_memory_bytes: NonNegative | None = None
    sample_memory_bytes: NonNegative | None = None
    restart_seconds: NonNegative | None = None
    restart_seconds_per_doubling: NonNegative | None = None
    final_metric: float | None = None
    metric_half: Positive | None = None
    metric_start: float | None = None
    step_coefficients: _StepCoefficients | None = None
    server_efficiency: tuple[float, float, float] | None = None
    file: str = ""

    def __post_init__(self) -> None:
        if REFERENCE_GPU not in self.gpus:
            raise ConfigurationError(
                f"profile.gpus has no {REFERENCE_GPU}; expected its figures, to which those of other types"
                " are related"
            )
        for kind, figures in self.gpus.items():
            if kind not in GPU_MEMORY_BYTES:
                raise ConfigurationError(
                    f"profile.gpus names {shown(kind)}; expected some of {', '.join(GPU_MEMORY_BYTES)}"
                )
            if figures.compute_seconds(self.batch_size) <= 0:
                raise ConfigurationError(
                    f"profile.gpus.{kind} has 0 fixed_seconds and sample_seconds; expected one above 0"
                )
            for name in ("fixed_seconds", "sample_seconds"):
                if getattr(figures, name) > 0 and getattr(self, name) == 0:
                    raise ConfigurationError(
                        f"profile.gpus.{REFERENCE_GPU}.{name} is 0 and {kind}'s is not, so that no factor"
                        f" lies between them; expected a {name} above 0 (however small) for {REFERENCE_GPU}"
                    )

    @property
    def fixed_seconds(self) -> float:
        """On the reference GPU."""
        return self.gpus[REFERENCE_GPU].fixed_seconds

    @property
    def sample_seconds(self) -> float:
        """On the reference GPU."""
        return self.gpus[REFERENCE_GPU].sample_seconds

    @property
    def compute_seconds(self) -> float:
        """Forward and backward seconds of one base iteration on the reference GPU."""
        return self.gpus[REFERENCE_GPU].compute_seconds(self.batch_size)

    def require_value(self, name: str, otherwise: str = "choose a workload whose models have it") -> Any:
        """Return the figure `name`.

        Args:
            name: of a field.
            otherwise: what to do without it, for the error.

        Raises:
            ConfigurationError: the profile does not have it.
        """
        value = getattr(self, name)
        if value is None:
            raise ConfigurationError(
                f"model {self.name} has no {name}, which this simulation needs; {otherwise}, or add it with"
                f" its source to a copy of {self.file} in a folder of RINGYARD_CONF"
            )
        return value

    def on_gpu(self, gpu_type: str) -> GpuProfile:
        """Return the figures for a GPU type.

        Raises:
            ConfigurationError: the profile has none.
        """
        if gpu_type not in self.gpus:
            raise ConfigurationError(
                f"model {self.name} has no gpus.{gpu_type}, which this cluster needs; add its fixed_seconds,"
                f" sample_seconds and source to {self.file}, or leave the model out of the mix"
            )
        return self.gpus[gpu_type]

    def relative_seconds(self, gpu_type: str) -> tuple[float, float]:
        """Return the factors of fixed seconds and of seconds per sample to those of the reference GPU.

        Raises:
            ConfigurationError: the profile has no figures for the GPU type.
        """
        there, here = self.on_gpu(gpu_type), self.gpus[REFERENCE_GPU]
        return (
            there.fixed_seconds / here.fixed_seconds if here.fixed_seconds else 1.0,
            there.sample_seconds / here.sample_seconds if here.sample_seconds else 1.0,
        )


#: ten times faster than the loader in Python, where libyaml is at hand
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TEXTS = ("name", "task", "sources", "source", "gpus")


def _number(value: Any) -> Any:
    """Convert text that is a number (yaml reads 1e9 as text) to a number; keep anything else."""
    if isinstance(value, list):
        return tuple(_number(one) for one in value)
    if isinstance(value, dict):
        return {name if isinstance(name, str) else _number(name): _number(one) for name, one in value.items()}
    try:
        return float(value) if isinstance(value, str | int) and not isinstance(value, bool) else value
    except (ValueError, OverflowError):
        return value


def _build_dataclass(kind: Any, raw: Any, where: str, **given: Any) -> Any:
    """Create a dataclass from a yaml.

    Args:
        kind: the dataclass.
        raw: what the yaml holds for it.
        where: what errors begin with.
        given: fields that are not in the yaml.

    Raises:
        ConfigurationError: an unknown or missing field, or a value out of range.
    """
    known = {one.name: one for one in fields(kind) if one.name not in given}
    if not isinstance(raw, dict) or raw.keys() - known:
        odd = raw.keys() - known if isinstance(raw, dict) else raw
        raise ConfigurationError(
            f"{where}: unknown field {shown(odd)}; expected some of {', '.join(sorted(known))}"
        )
    for name, one in known.items():
        if one.default is MISSING and one.default_factory is MISSING and name not in raw:
            raise ConfigurationError(f"{where}: field {name} is missing")
    values = {name: value if name in _TEXTS else _number(value) for name, value in raw.items()}
    try:
        return kind(**values, **given)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def read_profile(file: Path) -> ModelProfile:
    """Read one profile.

    Raises:
        ConfigurationError: an unknown or missing field, or a value that is no number; names the file.
    """
    try:
        raw = yaml.load(file.read_bytes(), _LOADER)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file} is no readable yaml: {shown(error)}") from error
    if isinstance(raw, dict) and isinstance(raw.get("gpus"), dict):
        raw["gpus"] = {
            gpu_type: _build_dataclass(GpuProfile, one, f"{file}: gpus.{gpu_type}")
            for gpu_type, one in raw["gpus"].items()
        }
    profile: ModelProfile = _build_dataclass(ModelProfile, raw, str(file), file=str(file))
    return profile


@functools.cache
def catalogue() -> tuple[ModelProfile, ...]:
    """Return every profile of `conf/profiles` and of RINGYARD_CONF by file name; read once per process."""
    return tuple(read_profile(file) for file in config_files("profiles").values())


@functools.cache
def profile_values(name: str, absent: float = np.nan) -> NDArray[np.float64]:
    """Return one figure of all profiles.

    Args:
        name: of a field or property of `ModelProfile`.
        absent: where a profile has no figure.

    Returns:
        [models + 1] by position in the catalogue; the last, for jobs without a model, is NaN.
    """
    values = [getattr(model, name) for model in catalogue()]
    return np.array([absent if value is None else value for value in values] + [np.nan])


@functools.cache
def _model_ids() -> dict[str, int]:
    return {candidate.name: position for position, candidate in enumerate(catalogue())}


def model_id(name: str) -> int:
    """Return the position of the profile called `name` in the catalogue.

    Raises:
        ConfigurationError: no such model.
    """
    if name not in _model_ids():
        raise ConfigurationError(f"unknown model {name!r}; expected one of {', '.join(_model_ids())}")
    return _model_ids()[name]


def profile(name: str) -> ModelProfile:
    """Return the profile called `name`.

    Raises:
        ConfigurationError: no such model.
    """
    return catalogue()[model_id(name)]
