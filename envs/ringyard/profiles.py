"""`ModelProfile`: measured properties of a deep-learning model, from a yaml of `conf/profiles`."""

import functools
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import yaml
from numpy.typing import NDArray

from ringyard.burst_plan import LayerGroup
from ringyard.checks import NonNegative, Positive, checked, shown, suggest
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU

_KernelShares = Annotated[Mapping[Positive, Annotated[float, "(0, 1]"]], "not empty"]
_StepCoefficients = tuple[NonNegative, NonNegative, NonNegative, NonNegative, NonNegative, NonNegative]


@checked("profile.gpus")
@dataclass(frozen=True)
class GpuProfile:
    """Speed of one model on one GPU type.

    Forward and backward pass of an iteration take `fixed_seconds + sample_seconds x samples per GPU`.
    """

    fixed_seconds: NonNegative  #: part that does not depend on the batch
    sample_seconds: NonNegative  #: seconds per sample of the GPU's share of the batch
    source: str  #: reference. It begins with "derived:" if the values were not measured on this GPU type.
    #: {samples per GPU: (sensitivity, pressure)} on a shared GPU. Sensitivity is the extra iteration time
    #: per unit of the neighbours' pressure (`ringyard.performance.interference`).
    sharing: Mapping[Positive, tuple[NonNegative, NonNegative]] = field(default_factory=dict)

    @property
    def derived(self) -> bool:
        """Whether a rule derived the values from those of other GPU types or models."""
        return self.source.startswith("derived:")

    def compute_seconds(self, samples: float) -> float:
        """Return the forward and backward seconds of an iteration with `samples` samples per GPU."""
        return self.fixed_seconds + self.sample_seconds * samples


@checked("profile")
@dataclass(frozen=True)
class ModelProfile:
    """Measured properties of one model. None: no value. What needs it raises an error that says so.

    Raises:
        ConfigurationError: an unknown GPU type, no values for the reference GPU, or values without a finite
            ratio to those.
    """

    name: str  #: of the model
    gradient_bytes: NonNegative  #: bytes that each worker contributes to an all-reduce
    batch_size: Positive  #: samples per GPU and iteration of the base batch
    gpus: Mapping[str, GpuProfile]  #: {GPU type: speed}, with the reference GPU (V100)
    sources: Mapping[str, Any]  #: {field: reference}, "assumed: ..." where the value was not measured
    task: str = ""  #: what it is trained for
    parameters: NonNegative | None = None  #: number of weights
    #: how far training overlaps transfers with computing (`ring.overlapped`). None: as the performance
    #: model says.
    overlap_exponent: Annotated[float, "[1, inf)"] | None = None
    #: {GPU type: {samples per GPU: share}} of `compute_seconds` in which kernels run, if the job is alone on
    #: its GPU. The rest is gaps that the host leaves. A type that is not here has the shares of the first
    #: that is. {}: not measured, kernels run all the time.
    kernel_share: Mapping[str, _KernelShares] = field(default_factory=dict)
    min_batch: Positive | None = None  #: smallest global batch of an elastic job, samples
    max_batch: Positive | None = None  #: largest global batch
    noise_scale: Positive | None = None  #: gradient noise scale phi, samples (mean over a training)
    #: samples that a CPU core prepares per second. None: no measured limit.
    samples_per_core_second: Positive | None = None
    loading_serial_share: NonNegative | None = None  #: s of `performance.host_resources.useful_cores`
    #: bytes of a sample on storage. None: it reads nothing worth counting.
    sample_bytes: NonNegative | None = None
    dataset_bytes: Positive | None = None  #: bytes of all samples
    #: bytes per second of main memory that each core of the input pipeline moves
    bandwidth_per_core: NonNegative | None = None
    fixed_memory_bytes: NonNegative | None = None  #: GPU memory of a worker that does not depend on the batch
    sample_memory_bytes: NonNegative | None = None  #: GPU memory of a worker per sample
    restart_seconds: NonNegative | None = None  #: pause of a restart on one GPU
    #: additional pause at each doubling of the GPUs (`ringyard.restart`)
    restart_seconds_per_doubling: NonNegative | None = None
    final_metric: float | None = None  #: validation metric at the end of training
    #: share of training at which the hyperbolic metric curve is half way to its limit
    #: (`ringyard.learning_curves`)
    metric_half: Positive | None = None
    metric_start: float | None = None  #: validation metric before training
    #: AITurbo's step time, [theta0 .. theta5] (`performance.composite`).
    step_coefficients: _StepCoefficients | None = None
    #: (a, b, d) of a parameter server's efficiency a exp(-b cores) + d
    server_efficiency: tuple[float, float, float] | None = None
    layer_groups: tuple[LayerGroup, ...] | None = None  #: its layers in order, for `ringyard.burst_plan`
    file: str = ""  #: yaml that it was read from

    def __post_init__(self) -> None:
        if REFERENCE_GPU not in self.gpus:
            raise ConfigurationError(
                f"profile.gpus has no {REFERENCE_GPU}; expected fixed_seconds and sample_seconds of this GPU"
                " type, to which the other types are compared"
            )
        for name, kinds in (("gpus", self.gpus), ("kernel_share", self.kernel_share)):
            if odd := [kind for kind in kinds if kind not in GPU_MEMORY_BYTES]:
                raise ConfigurationError(
                    f"profile.{name} names {shown(odd[0])}; expected some of {', '.join(GPU_MEMORY_BYTES)}"
                )
        for kind, figures in self.gpus.items():
            if figures.compute_seconds(self.batch_size) <= 0:
                raise ConfigurationError(
                    f"profile.gpus.{kind} has 0 fixed_seconds and sample_seconds; expected one above 0"
                )
            for name in ("fixed_seconds", "sample_seconds"):
                if getattr(figures, name) > 0 and getattr(self, name) == 0:
                    raise ConfigurationError(
                        f"profile.gpus.{REFERENCE_GPU}.{name} is 0 and {kind}'s is not, so that their ratio"
                        f" is infinite; expected a {name} above 0 for {REFERENCE_GPU}, however small"
                    )

    @property
    def fixed_seconds(self) -> float:
        """Seconds of an iteration on the reference GPU that do not depend on the batch."""
        return self.gpus[REFERENCE_GPU].fixed_seconds

    @property
    def sample_seconds(self) -> float:
        """Seconds per sample on the reference GPU."""
        return self.gpus[REFERENCE_GPU].sample_seconds

    @property
    def compute_seconds(self) -> float:
        """Forward and backward seconds of an iteration at the base batch on the reference GPU."""
        return self.gpus[REFERENCE_GPU].compute_seconds(self.batch_size)

    def require_value(self, name: str, otherwise: str = "choose a workload of models that have it") -> Any:
        """Return a field's value, or raise a ConfigurationError that says what to do `otherwise`."""
        value = getattr(self, name)
        if value is None:
            raise ConfigurationError(
                f"model {self.name} has no {name}, which this simulation needs; {otherwise}, or add it with"
                f" its source to a copy of {self.file} in a folder of RINGYARD_CONF"
            )
        return value

    def on_gpu(self, gpu_type: str) -> GpuProfile:
        """Return the speed on a GPU type, or raise a ConfigurationError if the profile has none for it."""
        if gpu_type not in self.gpus:
            raise ConfigurationError(
                f"model {self.name} has no gpus.{gpu_type}, which this cluster needs; add its fixed_seconds,"
                f" sample_seconds and source to {self.file}, or leave the model out of the mix"
            )
        return self.gpus[gpu_type]

    def relative_seconds(self, gpu_type: str) -> tuple[float, float]:
        """Return `fixed_seconds` and `sample_seconds` on a GPU type over those on the reference GPU."""
        there, here = self.on_gpu(gpu_type), self.gpus[REFERENCE_GPU]
        return (
            there.fixed_seconds / here.fixed_seconds if here.fixed_seconds else 1.0,
            there.sample_seconds / here.sample_seconds if here.sample_seconds else 1.0,
        )


#: the loader of libyaml, if there is one, is ten times as fast
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_TEXTS = ("name", "task", "sources", "source", "gpus", "layer_groups")  #: fields that are not numbers


def _number(value: Any) -> Any:
    """Return a number for text that is one (yaml reads 1e9 as text), and anything else unchanged."""
    if isinstance(value, list):
        return tuple(_number(one) for one in value)
    if isinstance(value, dict):
        return {name if isinstance(name, str) else _number(name): _number(one) for name, one in value.items()}
    try:
        return float(value) if isinstance(value, str | int) and not isinstance(value, bool) else value
    except (ValueError, OverflowError):
        return value


def _build_dataclass(kind: Any, raw: Any, where: str, **given: Any) -> Any:
    """Create a dataclass from the content of a yaml and `given` fields; errors begin with `where`."""
    known = {one.name: one for one in fields(kind) if one.name not in given}
    if not isinstance(raw, dict) or raw.keys() - known:
        odd = raw.keys() - known if isinstance(raw, dict) else raw
        expected = f"some of {', '.join(sorted(known))}"
        raise ConfigurationError(f"{where}: unknown field {shown(odd)}; expected {expected}")
    for name, one in known.items():
        if one.default is MISSING and one.default_factory is MISSING and name not in raw:
            raise ConfigurationError(f"{where}: field {name} is missing")
    values = {name: value if name in _TEXTS else _number(value) for name, value in raw.items()}
    try:
        return kind(**values, **given)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def read_profile(file: Path) -> ModelProfile:
    """Read a profile from a yaml, or raise a ConfigurationError that names the file."""
    try:
        raw = yaml.load(file.read_bytes(), _LOADER)
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{file} cannot be read as yaml: {' '.join(str(error).split())}") from error
    if isinstance(raw, dict) and isinstance(raw.get("gpus"), dict):
        by_type, where = raw["gpus"].items(), f"{file}: gpus."
        raw["gpus"] = {kind: _build_dataclass(GpuProfile, one, where + str(kind)) for kind, one in by_type}
    if isinstance(raw, dict) and isinstance(raw.get("layer_groups"), list):
        where = f"{file}: layer_groups"
        raw["layer_groups"] = tuple(_build_dataclass(LayerGroup, one, where) for one in raw["layer_groups"])
    return _build_dataclass(ModelProfile, raw, str(file), file=str(file))


@functools.cache
def catalogue() -> tuple[ModelProfile, ...]:
    """Return all profiles of `conf/profiles` and RINGYARD_CONF by file name, read once per process."""
    return tuple(read_profile(file) for file in config_files("profiles").values())


@functools.cache
def profile_values(name: str, absent: float = np.nan) -> NDArray[np.float64]:
    """Return [models + 1] values of a field by catalogue, `absent` where it has none, NaN for no model."""
    values = [getattr(model, name) for model in catalogue()]
    return np.array([absent if value is None else value for value in values] + [np.nan])


@functools.cache
def _model_ids() -> dict[str, int]:
    return {candidate.name: position for position, candidate in enumerate(catalogue())}


def model_id(name: str) -> int:
    """Return the position of a profile in the catalogue. An unknown name is a ConfigurationError."""
    if name not in _model_ids():
        raise ConfigurationError(f"unknown model {name!r}; expected {suggest(name, _model_ids())}")
    return _model_ids()[name]


def profile(name: str) -> ModelProfile:
    """Return the profile of a model. An unknown name is a ConfigurationError."""
    return catalogue()[model_id(name)]
