"""Placement rules for GPUs that other jobs already use."""

from typing import Annotated

import numpy as np

from ringyard.checks import checked
from ringyard.compiled import FloatVector, Int32Vector, implements, kernel, to_int
from ringyard.placement.availability import open_gpus
from ringyard.placement.rule import FindGpus, PlacementRule
from ringyard.placement.rules import consolidate_gpus, max_gpus_on_one_server, pack_gpus
from ringyard.state.arrays import State
from ringyard.state.gpu_effects import (
    SharingFactors,
    excess_of_neighbour,
    excess_of_worker,
    sharing_factors_on,
)


@kernel
def _interference(state: State, b: int, j: int, own: SharingFactors, g: int) -> float:
    """Sum of relative extra times that job `j` and jobs on GPU `g` would cause each other. inf: no slot."""
    gpu = state.gpus[b, g]
    job = state.jobs[b, j]
    per_gpu = state.clusters[b].jobs_per_gpu
    if gpu.num_jobs >= per_gpu or gpu.free_memory_bytes < job.gpu_memory_bytes:
        return np.inf
    harm = 0.0
    for i in range(g * per_gpu, (g + 1) * per_gpu):
        other = state.slots[b, i].job
        if other == j:
            return np.inf
        if other >= 0:
            harm += excess_of_worker(state, b, job.model, own, i)
            harm += excess_of_neighbour(state, b, job.model, own, i)
    return harm


@kernel
def factors_at(state: State, b: int, j: int, s: int) -> SharingFactors:
    """Sensitivity and pressure of a worker of job `j` on a GPU of server `s` of cluster `b` in `state`."""
    return sharing_factors_on(state, state.jobs[b, j], to_int(state.servers[b, s].gpu_type))


@kernel
def take_least_interfering(
    state: State, b: int, j: int, s: int, own: SharingFactors, wanted: int, out: Int32Vector, count: int
) -> float:
    """Write the `wanted` GPUs of server `s` with least interference to `out`, from `count` on.

    `own` are the `factors_at` of job `j` there. Return the largest interference, inf if there are too few.
    """
    server = state.servers[b, s]
    harms = state.number_scratch[b]  # of those found, ascending
    found = 0
    for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
        harm = _interference(state, b, j, own, g)
        at = found
        while at > 0 and harms[at - 1] > harm:
            at -= 1
        if at == wanted or harm == np.inf:
            continue
        found = min(found + 1, wanted)
        for k in range(found - 1, at, -1):
            harms[k] = harms[k - 1]
            out[count + k] = out[count + k - 1]
        harms[at] = harm
        out[count + at] = g
    return harms[wanted - 1] if found == wanted else np.inf


@implements(FindGpus)
def _share(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    max_interference = parameters[0]
    prefer_busy = parameters[1] != 0.0
    split = parameters[2] != 0.0
    if not prefer_busy:
        if split:
            count = pack_gpus(state, b, j, wanted, out)
        else:
            count = consolidate_gpus(state, b, j, wanted, out)
        if count > 0:
            return count
    best = -1
    least = np.inf
    for s in range(state.servers.shape[1]):
        if state.servers[b, s].open_gpus >= wanted and open_gpus(state, b, j, s) >= wanted:
            harm = take_least_interfering(state, b, j, s, factors_at(state, b, j, s), wanted, out, 0)
            if harm < least:
                best = s
                least = harm
    if best >= 0 and least <= max_interference:
        take_least_interfering(state, b, j, best, factors_at(state, b, j, best), wanted, out, 0)
        return wanted
    if not split and wanted <= max_gpus_on_one_server(state, b, j):
        return 0
    # No single server has room: use the servers with the most open GPUs, those with least interference first.
    used = state.server_scratch[b]
    used[:] = 0
    count = 0
    while count < wanted:
        best = -1
        most = 0
        for s in range(state.servers.shape[1]):
            if used[s] == 0 and state.servers[b, s].open_gpus > 0:
                here = open_gpus(state, b, j, s)
                if here > most:
                    best = s
                    most = here
        if best < 0:
            return 0
        used[best] = 1
        here = min(most, wanted - count)
        own = factors_at(state, b, j, best)
        if take_least_interfering(state, b, j, best, own, here, out, count) > max_interference:
            return 0
        count += here
    return count


@checked("placement")
def share(
    max_interference: Annotated[float, "[0, inf]"] = float("inf"),
    prefer_busy: bool = False,
    split: bool = True,
) -> PlacementRule:
    """Return the rule that gives a job free GPUs as `pack`, or shared GPUs with the least interference.

    The interference of a GPU is the sum of relative extra times (`Interference`) of the job and its
    neighbours. That of a gang is its worst GPU's. One server comes before several.

    Args:
        max_interference: at least 0. The job waits if any GPU had more.
        prefer_busy: look for neighbours even where GPUs are free.
        split: use several servers. False: free GPUs as `consolidate`, shared ones on one server, and wait
            for it where one server could hold the job.

    Raises:
        ConfigurationError: max_interference below 0.
    """
    parameters = np.array([max_interference, float(prefer_busy), float(split)])
    return PlacementRule(_share, "share" if split else "share_together", parameters, shares=True)


@implements(FindGpus)
def _share_any(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    job = state.jobs[b, j]
    per_gpu = state.clusters[b].jobs_per_gpu
    count = 0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        here = min(open_gpus(state, b, j, s), wanted - count)
        g = server.first_gpu
        while here > 0:
            gpu = state.gpus[b, g]
            if gpu.num_jobs < per_gpu and gpu.free_memory_bytes >= job.gpu_memory_bytes:
                out[count] = g
                count += 1
                here -= 1
            g += 1
    return count if count == wanted else 0


def share_any() -> PlacementRule:
    """Return the rule that gives a job the lowest GPUs with a free slot, regardless of interference."""
    return PlacementRule(_share_any, "share_any", shares=True)
