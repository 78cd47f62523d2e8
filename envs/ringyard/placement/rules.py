"""Placement rules for exclusive GPUs."""

from typing import Any

import numpy as np

from ringyard.compiled import function_value, kernel
from ringyard.errors import ConfigurationError
from ringyard.placement.rule import PLACE, PlacementRule
from ringyard.progress import remaining_iterations

__all__ = ["consolidate", "first_fit", "least_contended", "lwf", "pack", "random_gpus", "spread"]

_NO_PARAMETERS = np.zeros(1)


@kernel
def _take(state: Any, b: int, s: int, wanted: int, out: Any, count: int) -> int:
    """Write up to `wanted` free GPUs of server s to `out` from `count` on; the new count."""
    server = state.servers[b, s]
    wanted = min(wanted, server.free_gpus)
    g = server.first_gpu
    while wanted > 0:
        if state.gpus[b, g].job < 0:
            out[count] = g
            count += 1
            wanted -= 1
        g += 1
    return count


@kernel
def _tightest_server(state: Any, b: int, wanted: int) -> int:
    """Server with the fewest free GPUs that still holds `wanted`; -1 if none."""
    best = -1
    best_free = 1 << 30
    for s in range(state.servers.shape[1]):
        free = state.servers[b, s].free_gpus
        if wanted <= free < best_free:
            best = s
            best_free = free
            if free == wanted:
                break
    return best


@kernel
def _most_free_first(state: Any, b: int, wanted: int, most_jobs: int, out: Any) -> int:
    """Take GPUs server by server, most free first, from servers with at most `most_jobs` spanning jobs."""
    used = state.server_scratch[b]
    used[:] = 0
    count = 0
    while count < wanted:
        best = -1
        best_free = 0
        for s in range(state.servers.shape[1]):
            server = state.servers[b, s]
            if used[s] == 0 and server.free_gpus > best_free and server.spanning_jobs <= most_jobs:
                best = s
                best_free = server.free_gpus
        used[best] = 1
        count = _take(state, b, best, wanted - count, out, count)
    return count


@function_value(PLACE)
def _pack(state: Any, b: int, j: int, parameters: Any, out: Any) -> int:
    wanted = state.jobs[b, j].num_gpus
    if wanted > state.clusters[b].free_gpus:
        return 0
    s = _tightest_server(state, b, wanted)
    if s >= 0:
        return _take(state, b, s, wanted, out, 0)
    return _most_free_first(state, b, wanted, 1 << 30, out)


def pack() -> PlacementRule:
    """One server if it fits (the tightest), else the fewest servers, most free first."""
    return PlacementRule(_pack, _NO_PARAMETERS, "pack")


@function_value(PLACE)
def _least_contended(state: Any, b: int, j: int, parameters: Any, out: Any) -> int:
    wanted = state.jobs[b, j].num_gpus
    if wanted > state.clusters[b].free_gpus:
        return 0
    s = _tightest_server(state, b, wanted)
    if s >= 0:
        return _take(state, b, s, wanted, out, 0)
    most_jobs = 0
    while True:
        free = 0
        for s in range(state.servers.shape[1]):
            if state.servers[b, s].spanning_jobs <= most_jobs:
                free += state.servers[b, s].free_gpus
        if free >= wanted:
            return _most_free_first(state, b, wanted, most_jobs, out)
        most_jobs += 1


def least_contended() -> PlacementRule:
    """One server if it fits (the tightest), else servers that keep the worst link's job count lowest."""
    return PlacementRule(_least_contended, _NO_PARAMETERS, "least_contended")


@function_value(PLACE)
def _first_fit(state: Any, b: int, j: int, parameters: Any, out: Any) -> int:
    wanted = state.jobs[b, j].num_gpus
    if wanted > state.clusters[b].free_gpus:
        return 0
    count = 0
    s = 0
    while count < wanted:
        count = _take(state, b, s, wanted - count, out, count)
        s += 1
    return count


def first_fit() -> PlacementRule:
    """The free GPUs with the lowest ids."""
    return PlacementRule(_first_fit, _NO_PARAMETERS, "first_fit")


@function_value(PLACE)
def _spread(state: Any, b: int, j: int, parameters: Any, out: Any) -> int:
    wanted = state.jobs[b, j].num_gpus
    if wanted > state.clusters[b].free_gpus:
        return 0
    taken = state.server_scratch[b]
    taken[:] = 0
    for _ in range(wanted):
        best = 0
        best_free = -1
        for s in range(state.servers.shape[1]):
            free = state.servers[b, s].free_gpus - taken[s]
            if free > best_free:
                best = s
                best_free = free
        taken[best] += 1
    count = 0
    for s in range(state.servers.shape[1]):
        if taken[s] > 0:
            count = _take(state, b, s, taken[s], out, count)
    return count


def spread() -> PlacementRule:
    """One GPU at a time from the server with the most free GPUs left."""
    return PlacementRule(_spread, _NO_PARAMETERS, "spread")


@function_value(PLACE)
def _consolidate(state: Any, b: int, j: int, parameters: Any, out: Any) -> int:
    wanted = state.jobs[b, j].num_gpus
    if wanted > state.clusters[b].free_gpus:
        return 0
    s = _tightest_server(state, b, wanted)
    if s >= 0:
        return _take(state, b, s, wanted, out, 0)
    largest = 0
    for s in range(state.servers.shape[1]):
        largest = max(largest, state.servers[b, s].num_gpus)
    if wanted <= largest:
        return 0
    used = state.server_scratch[b]
    used[:] = 0
    count = 0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.free_gpus == server.num_gpus and server.num_gpus <= wanted - count:
            used[s] = 1
            count = _take(state, b, s, server.num_gpus, out, count)
    if count == wanted:
        return count
    if wanted - count >= largest:
        return 0
    best = -1
    best_free = 0
    for s in range(state.servers.shape[1]):
        if used[s] == 0 and state.servers[b, s].free_gpus > best_free:
            best = s
            best_free = state.servers[b, s].free_gpus
    if best_free < wanted - count:
        return 0
    return _take(state, b, best, wanted - count, out, count)


def consolidate() -> PlacementRule:
    """One server, or wholly free servers and one more for the rest; otherwise the job waits.

    The rule of Helios' public simulator: the tightest server that fits; a job larger than a server takes
    wholly free servers, lowest first, and its remainder must fit on the server with the most free GPUs.
    """
    return PlacementRule(_consolidate, _NO_PARAMETERS, "consolidate")


@function_value(PLACE)
def _lwf(state: Any, b: int, j: int, parameters: Any, out: Any) -> int:
    wanted = state.jobs[b, j].num_gpus
    if wanted > state.clusters[b].free_gpus:
        return 0
    count = 0
    if wanted <= parameters[0]:
        s = 0
        while count < wanted:
            count = _take(state, b, s, wanted - count, out, count)
            s += 1
        return count
    num_servers = state.servers.shape[1]
    used = state.server_scratch[b]
    used[:] = 0
    now = state.clusters[b].now
    while count < wanted:
        best = -1
        best_load = np.inf
        for s in range(num_servers):
            server = state.servers[b, s]
            if used[s] == 0 and server.free_gpus > 0:
                load = 0.0
                for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
                    holder = state.gpus[b, g].job
                    if holder >= 0:
                        job = state.jobs[b, holder]
                        load += remaining_iterations(job, now) * job.isolated_iteration_seconds
                load /= server.num_gpus
                if load < best_load:
                    best = s
                    best_load = load
        used[best] = 1
        count = _take(state, b, best, wanted - count, out, count)
    return count


def lwf(kappa: int) -> PlacementRule:
    """LWF-kappa (Ada-SRSF): jobs of at most kappa GPUs fill the lowest free GPUs, larger ones servers.

    Larger jobs fill whole servers in ascending order of mean remaining work per GPU. A free exclusive GPU
    has no work left, so that the paper's order of single GPUs reduces to (server, GPU).

    Raises:
        ConfigurationError: kappa below 0.
    """
    if kappa < 0:
        raise ConfigurationError(f"placement.kappa is {kappa}; expected 0 or more")
    return PlacementRule(_lwf, np.array([float(kappa)]), f"lwf_{kappa}")


@kernel
def _next_random(cluster: Any) -> Any:
    """SplitMix64: advance the cluster's generator, 63 random bits."""
    cluster.rng += np.uint64(0x9E3779B97F4A7C15)
    x = cluster.rng
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return np.int64(x >> np.uint64(1))


@function_value(PLACE)
def _random_gpus(state: Any, b: int, j: int, parameters: Any, out: Any) -> int:
    cluster = state.clusters[b]
    wanted = state.jobs[b, j].num_gpus
    if wanted > cluster.free_gpus:
        return 0
    free = 0
    for g in range(state.gpus.shape[1]):
        if state.gpus[b, g].job < 0:
            out[free] = g
            free += 1
    for i in range(wanted):
        k = i + _next_random(cluster) % (free - i)
        g = out[i]
        out[i] = out[k]
        out[k] = g
    return wanted


def random_gpus() -> PlacementRule:
    """Free GPUs drawn uniformly, from the simulation's seed."""
    return PlacementRule(_random_gpus, _NO_PARAMETERS, "random")
