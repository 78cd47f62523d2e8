"""A job on a GPU type, at its present batch: how slow it is there, and what it and its neighbours suffer."""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import FloatCube, FloatVector, IntVector, kernel
from ringyard.state.arrays import State
from ringyard.state.records import Job

# What neighbours add to one another's load is rounded to multiples of 1 / _SHARES, so that sums are exact:
# no job's speed depends on the order in which neighbours are counted.
_STEPS = 2.0**40


@kernel
def summable(value: float) -> float:
    """The value as a multiple of 2**-40: sums of a few of these are exact."""
    return np.rint(value * _STEPS) / _STEPS


@kernel
def slowness_on(slowness: FloatCube, job: Job, gpu_type: int) -> float:
    """Times longer the job computes on a GPU of the type than on the reference GPU.

    Args:
        slowness: as `State.slowness`.
        job: in its present shape.
        gpu_type: column of `slowness`.
    """
    fixed, sample = slowness[job.model, gpu_type, 0], slowness[job.model, gpu_type, 1]
    return sample + job.fixed_share * (fixed - sample)


@kernel
def min_slowness(slowness: FloatCube, job: Job) -> float:
    """Of all GPU types of the cluster, see `slowness_on`."""
    least = np.inf
    for gpu_type in range(slowness.shape[1]):
        least = min(least, slowness_on(slowness, job, gpu_type))
    return least


class Workers(NamedTuple):
    """Workers, of jobs or of none, by what their neighbours on a GPU feel of them.

    Attributes:
        models: [workers] positions in the catalogue, its length for none.
        samples: [workers] of the batch, of each worker.
    """

    models: IntVector
    samples: FloatVector


class SharingFactors(NamedTuple):
    """What a worker is to its neighbours on a GPU.

    Attributes:
        sensitivity: extra time, as a share of its own, per unit of the neighbours' pressure.
        pressure: what it does to them.
    """

    sensitivity: float
    pressure: float


@kernel
def _interpolate(low: float, high: float, part: float) -> float:
    """A power law through two figures, `part` of the way in log batch; a straight line where one is 0."""
    if low > 0.0 and high > 0.0:
        return low * (high / low) ** part
    return low + part * (high - low)


@kernel
def sharing_factors(sharing: FloatCube, row: int, samples: float) -> SharingFactors:
    """What a worker with so many samples is to its neighbours; 0 without figures.

    Log-linear in log samples between the batches of the profile; beyond them as at the nearest.

    Args:
        sharing: as `State.sharing_table`.
        row: of the model and GPU type.
        samples: above 0.
    """
    count = sharing.shape[1]
    if count == 0:
        return SharingFactors(0.0, 0.0)
    k = 0
    while k < count and sharing[row, k, 0] < samples:
        k += 1
    if k == count or sharing[row, k, 0] == np.inf:
        return SharingFactors(sharing[row, k - 1, 1], sharing[row, k - 1, 2])
    if k == 0 or sharing[row, k, 0] == samples:
        return SharingFactors(sharing[row, k, 1], sharing[row, k, 2])
    low = sharing[row, k - 1, 0]
    part = np.log(samples / low) / np.log(sharing[row, k, 0] / low)
    return SharingFactors(
        _interpolate(sharing[row, k - 1, 1], sharing[row, k, 1], part),
        _interpolate(sharing[row, k - 1, 2], sharing[row, k, 2], part),
    )


@kernel
def sharing_factors_on(state: State, job: Job, gpu_type: int) -> SharingFactors:
    """What a worker of the job, in its present shape, is to its neighbours on a GPU of the type."""
    row = job.model * state.slowness.shape[1] + gpu_type
    return sharing_factors(state.sharing_table, row, job.batch_size / job.num_gpus)


@kernel
def excess_of_worker(state: State, b: int, model: int, own: SharingFactors, i: int) -> float:
    """Extra time, as a share of its own, of a worker of the model beside the job in slot i."""
    if state.pairwise_excess.shape[0] > 0:
        return summable(state.pairwise_excess[model, state.slots[b, i].model])
    if state.slot_sharing.shape[1] == 0:
        return 0.0  # sharing slows no job
    return summable(own.sensitivity * state.slot_sharing[b, i, 1])


@kernel
def excess_of_neighbour(state: State, b: int, model: int, own: SharingFactors, i: int) -> float:
    """Extra time, as a share of its own, of the job in slot i beside a worker of the model."""
    if state.pairwise_excess.shape[0] > 0:
        return summable(state.pairwise_excess[state.slots[b, i].model, model])
    if state.slot_sharing.shape[1] == 0:
        return 0.0
    return summable(state.slot_sharing[b, i, 0] * own.pressure)


@kernel
def excess_between(
    state: State, own: Workers, other: Workers, gpu_types: IntVector, out: FloatVector
) -> None:
    """Extra time of worker own[i], as a share of its own, beside other[i] on a GPU of a type, into out[i]."""
    types = state.slowness.shape[1]
    for i in range(len(out)):
        if state.pairwise_excess.shape[0] > 0:
            out[i] = summable(state.pairwise_excess[own.models[i], other.models[i]])
        else:
            mine = sharing_factors(state.sharing_table, own.models[i] * types + gpu_types[i], own.samples[i])
            row = other.models[i] * types + gpu_types[i]
            theirs = sharing_factors(state.sharing_table, row, other.samples[i])
            out[i] = summable(mine.sensitivity * theirs.pressure)


@kernel
def excess_on(state: State, b: int, j: int, own: SharingFactors, g: int) -> float:
    """Extra time, as a share of its own, of job j beside the others on GPU g."""
    per_gpu = state.clusters[b].jobs_per_gpu
    model = state.jobs[b, j].model
    excess = 0.0
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        other = state.slots[b, i].job
        if other >= 0 and other != j:
            excess += excess_of_worker(state, b, model, own, i)
    return excess
