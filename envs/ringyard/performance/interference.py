"""Interference: how much jobs on a shared GPU slow each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard.burst_plan import burst_plan
from ringyard.checks import Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.profiles import catalogue, model_id, profile


def _model_name(model: int) -> str:
    return catalogue()[model].name if model >= 0 else "no model"


@checked("interference")
@dataclass(frozen=True)
class Interference:
    """Relative extra iteration time of jobs on shared GPUs.

    A worker's compute time is multiplied by 1 + the sum of the extra times that its neighbours on the GPU
    cause. The worst GPU sets the job's pace. A neighbour causes sensitivity (of the job) x pressure (of the
    neighbour), both by model, GPU type and samples per GPU, or what `pairs` says for any GPU and batch.
    Without both, jobs do not slow each other.

    Raises:
        ConfigurationError: both are given, or an array has another shape or numbers below 0.
    """

    #: [models + 1, GPU types, batches, 3] for each model and type of
    #: `ringyard.gpu_types.GPU_MEMORY_BYTES`: samples per GPU, ascending (inf: no more), sensitivity,
    #: pressure. NaN where unknown. The last row is for jobs without a model.
    sharing: NDArray[np.float64] | None = field(default=None, repr=False)
    #: [models + 1, models + 1] relative extra time of each model (row) beside each other (column). NaN
    #: where unknown. The last row and column are for jobs without a model.
    pairs: NDArray[np.float64] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.sharing is not None and self.pairs is not None:
            raise ConfigurationError("interference has sharing and pairs; expected one of them")
        rows = len(catalogue()) + 1
        if self.pairs is not None and (self.pairs.shape != (rows, rows) or (self.pairs < 0).any()):
            raise ConfigurationError(
                f"interference.pairs has shape {self.pairs.shape}; expected {(rows, rows)}, each 0 or more,"
                " NaN where unknown"
            )
        if self.sharing is not None:
            self._check_sharing(self.sharing, rows)

    @staticmethod
    def _check_sharing(sharing: NDArray[np.float64], rows: int) -> None:
        wanted = (rows, len(GPU_MEMORY_BYTES), *sharing.shape[2:3], 3)
        right = sharing.shape == wanted and sharing.size > 0 and not (sharing < 0).any()
        if right:
            first, rest = sharing[:, :, :1, 0], sharing[:, :, 1:, 0]
            right = not ((first <= 0) | np.isinf(first)).any()
            right &= not (rest <= np.where(np.isinf(rest), 0.0, sharing[:, :, :-1, 0])).any()
        if not right:
            raise ConfigurationError(
                f"interference.sharing has shape {sharing.shape}; expected (models + 1, GPU types, batches,"
                f" 3) = ({wanted[0]}, {wanted[1]}, 1 or more, 3): samples per GPU, ascending, above 0, then"
                " sensitivity and pressure, 0 or more, NaN where unknown"
            )

    @property
    def slows(self) -> bool:
        """Whether neighbours slow each other at all."""
        return self.sharing is not None or self.pairs is not None

    def check(self, model_ids: NDArray[np.int64], gpu_types: Sequence[str]) -> None:
        """Check that the tables have numbers for all models of a workload on all GPU types of a cluster.

        Args:
            model_ids: [jobs] positions in the catalogue, -1: no model.
            gpu_types: GPU types of the cluster. Empty: the reference GPU.

        Raises:
            ConfigurationError: a number is missing.
        """
        present = np.unique(model_ids).tolist()
        if self.sharing is not None:
            types = list(GPU_MEMORY_BYTES)
            for kind in gpu_types or [REFERENCE_GPU]:
                for own in present:
                    if np.isnan(self.sharing[own, types.index(kind), 0]).any():
                        raise ConfigurationError(
                            f"nothing says how {_model_name(own)} shares a {kind} with others; add"
                            f" gpus.{kind}.sharing to {catalogue()[own].file}, or leave the model out"
                        )
        if self.pairs is not None:
            for own in present:
                for other in present:
                    if np.isnan(self.pairs[own, other]):
                        raise ConfigurationError(
                            f"nothing says how much {_model_name(other)} slows {_model_name(own)} on a shared"
                            " GPU; add the pair to the table, or leave one of the models out"
                        )

    def sharing_on(self, gpu_types: Sequence[str]) -> NDArray[np.float64]:
        """[(models + 1) x GPU types, batches, 3] `sharing` on `gpu_types`, 0 where unknown.

        Without GPU types, it is that of the reference GPU. Without `sharing`, its shape is [0, 0, 3].
        """
        if self.sharing is None:
            return np.zeros((0, 0, 3))
        types = list(GPU_MEMORY_BYTES)
        chosen = self.sharing[:, [types.index(kind) for kind in gpu_types or [REFERENCE_GPU]]]
        return np.nan_to_num(chosen, posinf=np.inf).reshape(-1, *chosen.shape[2:])


def no_interference() -> Interference:
    """Return the table in which jobs on a shared GPU do not slow each other."""
    return Interference()


def sensitivity_pressure() -> Interference:
    """Return the rank-one form of the profiles' measured pairs: sensitivity x pressure."""
    models = catalogue()
    most = max([len(one.sharing) for model in models for one in model.gpus.values()] + [1])
    sharing = np.full((len(models) + 1, len(GPU_MEMORY_BYTES), most, 3), np.nan)
    for row, model in enumerate(models):
        for column, kind in enumerate(GPU_MEMORY_BYTES):
            points = sorted(model.gpus[kind].sharing.items()) if kind in model.gpus else []
            for k, (samples, (sensitivity, pressure)) in enumerate(points):
                sharing[row, column, k] = samples, sensitivity, pressure
            if points:
                sharing[row, column, len(points) :] = np.inf, 0.0, 0.0
    sharing[-1, :, :, 0] = [1.0, *[np.inf] * (most - 1)]
    sharing[-1, :, :, 1:] = 0.0
    return Interference(sharing)


@checked("interference")
def pair_table(normalised: Mapping[str, Mapping[str, Positive]]) -> Interference:
    """Return the table of measured pairs: a neighbour causes 1 / normalised[model][neighbour] - 1.

    Args:
        normalised: {model: {neighbour: speed beside the neighbour / isolated speed}}, above 0. Missing pairs
            are unknown.

    Raises:
        ConfigurationError: an unknown model, or a speed that is not above 0.
    """
    count = len(catalogue()) + 1
    excess = np.full((count, count), np.nan)
    excess[-1, :] = excess[:, -1] = 0.0
    for own, row in normalised.items():
        for other, speed in row.items():
            excess[model_id(own), model_id(other)] = max(1.0 / speed - 1.0, 0.0)
    return Interference(pairs=excess)


@checked("interference")
def burst_interference(
    models: Sequence[str],
    num_gpus: PositiveInt,
    batch_size: PositiveInt,
    background_batch: PositiveInt,
    amplification_limit: Positive | None,
    foreground_slowdown: Annotated[float, "[1, inf)"] = 1.1,
) -> Interference:
    """Return the table of background jobs that fill what burst-parallel foreground jobs leave idle.

    As in DeepPool, a background job beside a foreground job runs in that job's mean idle share, and slows it
    by `foreground_slowdown`, the target of its public code. Assumed: whatever the idle share, and without
    loss by changing between kernels. Two background jobs halve each other's speed.

    Args:
        models: models of `ringyard.workloads.BurstJobs`, like the next four. They have `layer_groups`.
        num_gpus: GPUs of a foreground job.
        batch_size: global batch of a foreground job.
        background_batch: batch of a background job, other than the samples of a foreground job on each GPU.
        amplification_limit: see `ringyard.burst_plan.burst_plan`.
        foreground_slowdown: factor on the time of a foreground job beside a background job, 1 or more.

    Raises:
        ConfigurationError: a model without layer groups, or both kinds of jobs have as many samples on a GPU.
    """
    foreground = batch_size / num_gpus
    if foreground == background_batch:
        raise ConfigurationError(
            f"interference.background_batch is {background_batch}, as many samples as foreground jobs have on"
            " a GPU; expected another, which tells the two kinds of jobs apart"
        )
    sharing = np.full((len(catalogue()) + 1, len(GPU_MEMORY_BYTES), 2, 3), np.nan)
    for name in models:
        plan = burst_plan(
            profile(name).require_value("layer_groups"), num_gpus, batch_size, amplification_limit
        )
        idle = max(plan.idle_share, 1e-3)
        rows = [(foreground, foreground_slowdown - 1.0, 1.0 / idle - 1.0), (background_batch, 1.0, 1.0)]
        sharing[model_id(name)] = sorted(rows)
    sharing[-1] = [(1.0, 0.0, 0.0), (np.inf, 0.0, 0.0)]
    return Interference(sharing)
