"""Deep-learning models as the simulator sees them: gradient size and compute time per iteration."""

from dataclasses import dataclass

from ringyard.errors import ConfigurationError

__all__ = ["CATALOGUE", "ModelProfile", "profile"]


@dataclass(frozen=True)
class ModelProfile:
    """One model at one batch size per GPU.

    Attributes:
        name: the model.
        gradient_bytes: bytes each worker contributes to one all-reduce.
        compute_seconds: forward and backward seconds of one iteration on one GPU.
        restart_seconds: seconds to checkpoint and start again, where a figure is published, else NaN.
        source: where the figures come from.
    """

    name: str
    gradient_bytes: float
    compute_seconds: float
    restart_seconds: float
    source: str


_ADA_SRSF = "Ada-SRSF's public simulator, job table (V100; batch 16, LSTM 64)"
_DDL = "HKBU ddl-benchmarks 2020-05-29, one-GPU samples/s (GPU not stated); gradients 4 bytes x parameters"
_NAN = float("nan")

CATALOGUE: tuple[ModelProfile, ...] = (
    ModelProfile("vgg16", 526.4e6, 0.036 + 0.054, _NAN, _ADA_SRSF),
    ModelProfile("resnet50", 99.2e6, 0.025 + 0.037, 250.0, _ADA_SRSF + "; restart: Sia's simulator"),
    ModelProfile("inception_v3", 103.0e6, 0.035 + 0.052, _NAN, _ADA_SRSF),
    ModelProfile("lstm", 251.8e6, 0.032 + 0.047, _NAN, _ADA_SRSF),
    ModelProfile("resnet50_batch64", 102.228e6, 64 / 253.1, 250.0, _DDL + "; restart: Sia's simulator"),
    ModelProfile("bert_base_batch64", 435.573e6, 64 / 212.8, 120.0, _DDL + "; restart: Sia's simulator"),
    ModelProfile("bert_large_batch8", 1336.38e6, 8 / 49.0, 120.0, _DDL + "; restart: Sia's simulator, BERT"),
)


def profile(name: str) -> ModelProfile:
    """The profile called `name`.

    Raises:
        ConfigurationError: no such model.
    """
    for candidate in CATALOGUE:
        if candidate.name == name:
            return candidate
    known = ", ".join(candidate.name for candidate in CATALOGUE)
    raise ConfigurationError(f"unknown model {name!r}; expected one of {known}")
