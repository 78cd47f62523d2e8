"""How GPU types and neighbours on a GPU slow a job at its present batch.

*Excess* is extra compute time beside a neighbour, as a fraction of the time alone.
"""

from typing import NamedTuple

import numpy as np

from ringyard.compiled import FloatCube, FloatVector, Int32Vector, IntVector, kernel
from ringyard.state.arrays import State
from ringyard.state.records import Job

# Neighbours' effects are rounded to multiples of 1 / _STEPS. Their sums are exact, so that speeds do not
# depend on the order in which neighbours are counted.
_STEPS = 2.0**40


@kernel
def summable(value: float) -> float:
    """Return `value` rounded to a multiple of 2**-40, so that sums of a few of these are exact."""
    return np.rint(value * _STEPS) / _STEPS


@kernel
def slowness_on(slowness: FloatCube, job: Job, gpu_type: int) -> float:
    """Return compute time on a GPU type / compute time on the reference GPU, of `State.slowness`."""
    fixed, sample = slowness[job.model, gpu_type, 0], slowness[job.model, gpu_type, 1]
    return sample + job.fixed_share * (fixed - sample)


@kernel
def min_slowness(slowness: FloatCube, job: Job) -> float:
    """Return the smallest `slowness_on` of `job` over the GPU types of the table `slowness`."""
    least = np.inf
    for gpu_type in range(slowness.shape[1]):
        least = min(least, slowness_on(slowness, job, gpu_type))
    return least


@kernel
def balanced_speed(state: State, b: int, job: Job, places: Int32Vector, count: int) -> float:
    """Return the speed of `job` on GPUs `places[:count]` that take shares of its batch by their speed.

    The shares are those with which all workers of cluster `b` take equally long, at least the part of an
    iteration that does not depend on the batch. Without such a part, the pace is batch / sum of speeds.
    """
    fixed_most, fixed_samples, samples = 0.0, 0.0, 0.0
    for i in range(count):
        gpu_type = state.servers[b, state.gpus[b, places[i]].server].gpu_type
        fixed, sample = state.slowness[job.model, gpu_type, 0], state.slowness[job.model, gpu_type, 1]
        fixed_most = max(fixed_most, fixed)
        fixed_samples += fixed / sample
        samples += 1.0 / sample
    share = job.fixed_share
    # in this form exactly 1 on GPUs that are all the reference
    return 1.0 / max(share * fixed_most, (count + share * (fixed_samples - count)) / samples)


class Workers(NamedTuple):
    """Workers as their neighbours on a GPU see them."""

    models: IntVector  #: [workers] positions in the catalogue. Its length stands for no model.
    samples: FloatVector  #: [workers] samples of the batch per worker


class SharingFactors(NamedTuple):
    """How a worker and its neighbours on a GPU slow one another: by sensitivity x pressure."""

    sensitivity: float  #: excess of the worker per unit of the neighbours' pressure
    pressure: float  #: of the worker on its neighbours


@kernel
def _interpolate(low: float, high: float, part: float) -> float:
    """Return the value `part` of the way from `low` to `high`: by a power law, or linear where one is 0."""
    if low > 0.0 and high > 0.0:
        return low * (high / low) ** part
    return low + part * (high - low)


@kernel
def _find_batches(table: FloatCube, row: int, samples: float) -> tuple[int, int, float]:
    """Return the two points of a row around a number of samples, and how far it is between them (log).

    `table` has ascending samples in its first column, then inf. Beyond its ends, both are the last point.
    """
    count = table.shape[1]
    k = 0
    while k < count and table[row, k, 0] < samples:
        k += 1
    if k == count or table[row, k, 0] == np.inf:
        return k - 1, k - 1, 0.0
    if k == 0 or table[row, k, 0] == samples:
        return k, k, 0.0
    low = table[row, k - 1, 0]
    return k - 1, k, np.log(samples / low) / np.log(table[row, k, 0] / low)


@kernel
def sharing_factors(sharing: FloatCube, row: int, samples: float) -> SharingFactors:
    """Return the factors of a worker with a number of samples in a row of `State.sharing_table` (0: unknown).

    They are log-linear in log samples between the profile's batches, and constant beyond them.
    """
    if sharing.shape[1] == 0:
        return SharingFactors(0.0, 0.0)
    below, above, part = _find_batches(sharing, row, samples)
    return SharingFactors(
        _interpolate(sharing[row, below, 1], sharing[row, above, 1], part),
        _interpolate(sharing[row, below, 2], sharing[row, above, 2], part),
    )


@kernel
def kernel_share_on(state: State, job: Job, gpu_type: int) -> float:
    """Return the share of its compute time in which a worker of `job` runs kernels, alone (`state`)."""
    row = job.model * state.slowness.shape[1] + gpu_type
    below, above, part = _find_batches(state.kernel_shares, row, job.batch_size / job.num_gpus)
    return _interpolate(state.kernel_shares[row, below, 1], state.kernel_shares[row, above, 1], part)


@kernel
def sharing_factors_on(state: State, job: Job, gpu_type: int) -> SharingFactors:
    """Return the factors of a worker of `job`, in its present shape, on a GPU of `gpu_type` (`state`)."""
    row = job.model * state.slowness.shape[1] + gpu_type
    return sharing_factors(state.sharing_table, row, job.batch_size / job.num_gpus)


@kernel
def excess_of_worker(state: State, b: int, model: int, own: SharingFactors, i: int) -> float:
    """Return the excess of a worker (`model`, factors `own`) beside the job in slot `i` (`b`, `state`)."""
    if state.pairwise_excess.shape[0] > 0:
        return summable(state.pairwise_excess[model, state.slots[b, i].model])
    if state.slot_sharing.shape[1] == 0:
        return 0.0
    return summable(own.sensitivity * state.slot_sharing[b, i, 1])


@kernel
def excess_of_neighbour(state: State, b: int, model: int, own: SharingFactors, i: int) -> float:
    """Return the excess of the job in slot `i` beside a worker (`model`, factors `own`) (`b`, `state`)."""
    if state.pairwise_excess.shape[0] > 0:
        return summable(state.pairwise_excess[state.slots[b, i].model, model])
    if state.slot_sharing.shape[1] == 0:
        return 0.0
    return summable(state.slot_sharing[b, i, 0] * own.pressure)


@kernel
def excess_between(
    state: State, own: Workers, other: Workers, gpu_types: IntVector, out: FloatVector
) -> None:
    """Write to out[i] the excess of worker own[i] beside other[i] on a GPU of type gpu_types[i] (`state`)."""
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
    """Return the excess of job `j`, with factors `own`, beside the others on GPU `g` (`b`, `state`)."""
    per_gpu = state.clusters[b].jobs_per_gpu
    model = state.jobs[b, j].model
    excess = 0.0
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        other = state.slots[b, i].job
        if other >= 0 and other != j:
            excess += excess_of_worker(state, b, model, own, i)
    return excess
