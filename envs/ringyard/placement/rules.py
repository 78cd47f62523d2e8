"""Placement rules that give a job GPUs of its own."""

from collections.abc import Collection

import numpy as np

from ringyard.checks import NonNegative, NonNegativeInt, checked
from ringyard.cluster import Cluster
from ringyard.compiled import FloatVector, Int32Vector, implements, kernel
from ringyard.observability import Observability
from ringyard.placement.availability import available_gpus, fits_any_free_gpu, gpus_when_idle, take_free_gpus
from ringyard.placement.rule import FindGpus, PlacementRule
from ringyard.state.arrays import State, waiting_at
from ringyard.state.free_servers import next_server, next_with_free
from ringyard.state.gpu_effects import slowness_on
from ringyard.state.progress import predicted_iterations
from ringyard.state.random_numbers import next_random

_NO_LIMIT = 1 << 30  #: as a maximum: no limit


@kernel
def _tightest_server(state: State, b: int, j: int, wanted: int) -> int:
    """Server with the fewest free GPUs of those that have `wanted` for job `j`. -1: none."""
    for free in range(wanted, state.clusters[b].max_gpus_per_server + 1):
        s = -1 if state.num_with_free[b, free] == 0 else next_server(state, b, free, -1)
        while s >= 0:
            if wanted <= available_gpus(state, b, j, s):
                return s
            s = next_server(state, b, free, s)
    return -1


@kernel
def _most_free_first(state: State, b: int, j: int, wanted: int, most_jobs: int, out: Int32Vector) -> int:
    """Write GPUs of servers with at most `most_jobs` spanning jobs, those with most available GPUs first."""
    if not fits_any_free_gpu(state, b, j):
        return _most_room_first(state, b, j, wanted, most_jobs, out)
    count = 0
    for free in range(state.clusters[b].max_gpus_per_server, 0, -1):
        s = -1 if state.num_with_free[b, free] == 0 else next_server(state, b, free, -1)
        while s >= 0:
            if state.servers[b, s].spanning_jobs <= most_jobs:
                count = take_free_gpus(state, b, j, s, wanted - count, out, count)
                if count == wanted:
                    return count
            s = next_server(state, b, free, s)
    return 0


@kernel
def _roomiest_server(state: State, b: int, j: int, most_jobs: int) -> int:
    """Server with most GPUs for job `j`, unmarked and with at most `most_jobs` spanning jobs. -1: none."""
    best, best_room = -1, 0
    for s in range(state.servers.shape[1]):
        if state.server_scratch[b, s] == 0 and state.servers[b, s].spanning_jobs <= most_jobs:
            here = available_gpus(state, b, j, s)
            if here > best_room:
                best = s
                best_room = here
    return best


@kernel
def _most_room_first(state: State, b: int, j: int, wanted: int, most_jobs: int, out: Int32Vector) -> int:
    """`_most_free_first` for jobs that need more than GPUs."""
    used = state.server_scratch[b]
    used[:] = 0
    count = 0
    while count < wanted:
        best = _roomiest_server(state, b, j, most_jobs)
        if best < 0:
            return 0
        used[best] = 1
        count = take_free_gpus(state, b, j, best, wanted - count, out, count)
    return count


@kernel
def _take_lowest_numbered(state: State, b: int, j: int, wanted: int, out: Int32Vector) -> int:
    """Write GPUs server by server, lowest numbers first."""
    count = 0
    s = next_with_free(state, b, -1)
    while s >= 0:
        count = take_free_gpus(state, b, j, s, wanted - count, out, count)
        if count == wanted:
            return count
        s = next_with_free(state, b, s)
    return 0


@kernel
def pack_gpus(state: State, b: int, j: int, wanted: int, out: Int32Vector) -> int:
    """Write `wanted` GPUs by rule `pack` for job `j` of cluster `b` in `state` to `out`."""
    if wanted > state.clusters[b].free_gpus:
        return 0
    s = _tightest_server(state, b, j, wanted)
    if s >= 0:
        return take_free_gpus(state, b, j, s, wanted, out, 0)
    return _most_free_first(state, b, j, wanted, _NO_LIMIT, out)


@implements(FindGpus)
def _pack(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    return pack_gpus(state, b, j, wanted, out)


def pack() -> PlacementRule:
    """Return the rule "the server with fewest free GPUs that fits, else as few servers as can be"."""
    return PlacementRule(_pack, "pack")


@kernel
def _take_in_rack(state: State, b: int, j: int, rack: int, wanted: int, out: Int32Vector, count: int) -> int:
    """Append `wanted` GPUs of a rack to `out`, those of servers with most free GPUs first."""
    end = count + wanted
    for free in range(state.clusters[b].max_gpus_per_server, 0, -1):
        s = -1 if state.num_with_free[b, free] == 0 else next_server(state, b, free, -1)
        while s >= 0 and count < end:
            if state.servers[b, s].rack == rack:
                count = take_free_gpus(state, b, j, s, end - count, out, count)
            s = next_server(state, b, free, s)
    return count


@implements(FindGpus)
def _by_tier(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    s = _tightest_server(state, b, j, wanted)
    if s >= 0:
        return take_free_gpus(state, b, j, s, wanted, out, 0)
    servers = state.servers.shape[1]
    racks = state.servers[b, servers - 1].rack + 1
    rooms = state.number_scratch[b]
    rooms[:racks] = 0.0
    for s in range(servers):
        rooms[state.servers[b, s].rack] += available_gpus(state, b, j, s)
    unit = wanted
    while unit > 0:
        units = 0
        for rack in range(racks):
            units += int(rooms[rack]) // unit
        if units * unit >= wanted:
            break
        unit = unit // 2 if unit % (2 * state.clusters[b].max_gpus_per_server) == 0 else 0
    if unit == 0:
        return pack_gpus(state, b, j, wanted, out)
    count = 0
    while count < wanted:
        best = 0  # the tightest rack with room for all, else the roomiest
        for rack in range(1, racks):
            fits = rooms[rack] >= wanted - count
            if rooms[best] >= wanted - count:
                if fits and rooms[rack] < rooms[best]:
                    best = rack
            elif rooms[rack] > rooms[best]:
                best = rack
        here = min(int(rooms[best]) // unit * unit, wanted - count)
        count = _take_in_rack(state, b, j, best, here, out, count)
        rooms[best] = 0.0
    return count


def by_tier() -> PlacementRule:
    """Return the rule "one server, else one rack, else equal parts of the job in few racks".

    A job goes to the fitting server with fewest free GPUs, else to the fitting rack with fewest. Else it is
    halved until its parts, whole servers each, fit into racks. If its plan has as many pipeline stages as
    parts, or a multiple, data-parallel rings stay under a rack's switch and only transfers between stages
    cross (Arnold aligns such groups with the network, too, by a mixed-integer program). If no such
    parts fit, the rule is `pack`.
    """
    return PlacementRule(_by_tier, "by_tier")


@implements(FindGpus)
def _least_contended(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    s = _tightest_server(state, b, j, wanted)
    if s >= 0:
        return take_free_gpus(state, b, j, s, wanted, out, 0)
    most_jobs = 0
    while True:
        free, more = 0, False
        s = next_with_free(state, b, -1)
        while s >= 0:
            if state.servers[b, s].spanning_jobs <= most_jobs:
                free += available_gpus(state, b, j, s)
            else:
                more = True
            s = next_with_free(state, b, s)
        if free >= wanted:
            return _most_free_first(state, b, j, wanted, most_jobs, out)
        if not more:
            return 0
        most_jobs += 1


def least_contended() -> PlacementRule:
    """Return the rule "the server with fewest free GPUs that fits, else servers with few spanning jobs".

    It minimises the number of jobs on the job's worst link.
    """
    return PlacementRule(_least_contended, "least_contended")


@implements(FindGpus)
def _first_fit(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    return _take_lowest_numbered(state, b, j, wanted, out)


def first_fit() -> PlacementRule:
    """Return the rule "the free GPUs with the lowest ids"."""
    return PlacementRule(_first_fit, "first_fit")


@implements(FindGpus)
def _spread(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    taken = state.server_scratch[b]
    taken[:] = 0
    for _ in range(wanted):
        best, best_room = -1, 0
        for s in range(state.servers.shape[1]):
            left = available_gpus(state, b, j, s) - taken[s]
            if left > best_room:
                best = s
                best_room = left
        if best < 0:
            return 0
        taken[best] += 1
    count = 0
    for s in range(state.servers.shape[1]):
        if taken[s] > 0:
            count = take_free_gpus(state, b, j, s, taken[s], out, count)
    return count


def spread() -> PlacementRule:
    """Return the rule "one GPU at a time, of the server with the most free GPUs left"."""
    return PlacementRule(_spread, "spread")


@kernel
def max_gpus_on_one_server(state: State, b: int, j: int) -> int:
    """GPUs that job `j` could have on one server, were cluster `b` of `state` idle."""
    if fits_any_free_gpu(state, b, j):
        return int(state.clusters[b].max_gpus_per_server)
    most = 0
    for s in range(state.servers.shape[1]):
        most = max(most, gpus_when_idle(state, b, j, s))
    return most


@kernel
def consolidate_gpus(state: State, b: int, j: int, wanted: int, out: Int32Vector) -> int:
    """`pack_gpus` by rule `consolidate`: `wanted` GPUs for job `j` of cluster `b` in `state`, to `out`."""
    s = _tightest_server(state, b, j, wanted)
    if s >= 0:
        return take_free_gpus(state, b, j, s, wanted, out, 0)
    largest = max_gpus_on_one_server(state, b, j)
    if wanted <= largest:
        return 0
    used = state.server_scratch[b]
    used[:] = 0
    count = 0
    for s in range(state.servers.shape[1]):
        whole = gpus_when_idle(state, b, j, s)
        free = state.servers[b, s].free_gpus == state.servers[b, s].num_gpus
        if 0 < whole <= wanted - count and free and available_gpus(state, b, j, s) == whole:
            used[s] = 1
            count = take_free_gpus(state, b, j, s, whole, out, count)
    if count == wanted:
        return count
    if wanted - count >= largest:
        return 0
    best = _roomiest_server(state, b, j, _NO_LIMIT)
    if best < 0 or available_gpus(state, b, j, best) < wanted - count:
        return 0
    return take_free_gpus(state, b, j, best, wanted - count, out, count)


@implements(FindGpus)
def _consolidate(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    return consolidate_gpus(state, b, j, wanted, out)


def consolidate() -> PlacementRule:
    """Return the rule "one server, or wholly free servers and one more for the rest, else wait".

    It is the rule of Helios' public simulator. A job gets the server with fewest free GPUs that fits. A job
    larger than any server gets wholly free servers, lowest first, and its remainder must fit on the server
    with the most free GPUs. Servers count as large as the job's cores, RAM and GPU memory allow, so that no
    job waits for ever.
    """
    return PlacementRule(_consolidate, "consolidate")


@kernel
def fastest_gpus(state: State, b: int, j: int, wanted: int, split: bool, out: Int32Vector) -> int:
    """`pack_gpus` by rule `fastest(split)`: `wanted` GPUs for job `j` of cluster `b` in `state`, to `out`."""
    job = state.jobs[b, j]
    best = -1
    least = np.inf
    best_free = 0
    types = state.slowness.shape[1]
    for s in range(state.servers.shape[1] if types > 1 else 0):  # on one type, all servers are as fast
        if available_gpus(state, b, j, s) < wanted:
            continue
        server = state.servers[b, s]
        slowness = slowness_on(state.slowness, job, server.gpu_type)
        if slowness < least or (slowness == least and server.free_gpus < best_free):
            best = s
            least = slowness
            best_free = server.free_gpus
    if best >= 0:
        return take_free_gpus(state, b, j, best, wanted, out, 0)
    if split:
        return pack_gpus(state, b, j, wanted, out)
    return consolidate_gpus(state, b, j, wanted, out)


@implements(FindGpus)
def _fastest(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    return fastest_gpus(state, b, j, wanted, parameters[0] != 0.0, out)


@checked("placement")
def fastest(split: bool = True) -> PlacementRule:
    """Return the rule "the fitting server with the GPU type on which the job is fastest, else as `pack`".

    Ties go to the server with fewest free GPUs.

    Args:
        split: False: else as `consolidate`, so that jobs wait for one server.

    Raises:
        ConfigurationError: split is no bool.
    """
    return PlacementRule(_fastest, "fastest" if split else "fastest_together", np.array([float(split)]))


@kernel
def _mean_predicted_work(state: State, b: int, s: int) -> float:
    """Predicted isolated seconds left of the predictable jobs on server `s`, per GPU."""
    server = state.servers[b, s]
    per_gpu = state.clusters[b].jobs_per_gpu
    load = 0.0
    for i in range(server.first_gpu * per_gpu, (server.first_gpu + server.num_gpus) * per_gpu):
        holder = state.slots[b, i].job
        if holder >= 0 and state.jobs[b, holder].predictable != 0:
            job = state.jobs[b, holder]
            load += predicted_iterations(job, state.clusters[b].now) * job.isolated_iteration_seconds
    return load / server.num_gpus


@implements(FindGpus)
def _lwf(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    if wanted <= parameters[0]:
        return _take_lowest_numbered(state, b, j, wanted, out)
    servers = state.server_scratch[b]
    loads = state.number_scratch[b]
    found = 0
    s = next_with_free(state, b, -1)
    while s >= 0:
        if available_gpus(state, b, j, s) > 0:
            servers[found] = s
            loads[found] = _mean_predicted_work(state, b, s)
            found += 1
        s = next_with_free(state, b, s)
    count = 0
    while count < wanted:
        best, best_load = -1, np.inf
        for k in range(found):
            if loads[k] < best_load:
                best = k
                best_load = loads[k]
        if best < 0:
            return 0
        loads[best] = np.inf
        count = take_free_gpus(state, b, j, servers[best], wanted - count, out, count)
    return count


@checked("placement")
def lwf(kappa: NonNegativeInt) -> PlacementRule:
    """Return Ada-SRSF's rule LWF-kappa (least workload first).

    Jobs of at most kappa GPUs get the free GPUs with the lowest ids. Larger jobs fill servers in ascending
    order of predicted seconds left per GPU. The paper orders single GPUs by work left as well, but free GPUs
    that no jobs share have none, which leaves the order of ids.

    Args:
        kappa: at least 0.

    Raises:
        ConfigurationError: kappa below 0.
    """
    reads = Observability.PREDICTIONS
    return PlacementRule(_lwf, f"lwf_{kappa}", np.array([float(kappa)]), observability=reads)


@implements(FindGpus)
def _random_gpus(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    cluster = state.clusters[b]
    free = 0
    s = next_with_free(state, b, -1)
    while s >= 0:
        free = take_free_gpus(state, b, j, s, _NO_LIMIT, out, free)
        s = next_with_free(state, b, s)
    if free < wanted:
        return 0
    for i in range(wanted):
        k = i + next_random(cluster) % (free - i)
        g = out[i]
        out[i] = out[k]
        out[k] = g
    return wanted


def random_gpus() -> PlacementRule:
    """Return the rule "free GPUs drawn uniformly", of servers with the cores, by the simulation's seed."""
    return PlacementRule(_random_gpus, "random")


@kernel
def _next_demand(state: State, b: int, j: int) -> int:
    """GPUs that the oldest waiting job other than `j` asks for. 0: none waits."""
    first = -1
    for i in range(state.clusters[b].num_waiting):
        k = waiting_at(state, b, i)
        if k != j and state.jobs[b, k].asked_gpus > 0 and (first < 0 or k < first):
            first = k
    return int(state.jobs[b, first].asked_gpus) if first >= 0 else 0


@kernel
def _cost(state: State, b: int, chosen: int, wanted: int, demand: int, parameters: FloatVector) -> float:
    """Objective (`least_fragmenting`) if `wanted` GPUs of the `chosen` server were taken."""
    fragments, fits, least, most = 0, 0, np.inf, 0.0
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        if server.up == 0:
            continue
        free = server.free_gpus - (wanted if s == chosen else 0)
        fragments += 0 < free < server.num_gpus
        fits += 0 < demand <= free
        least = min(least, free)
        most = max(most, free)
    return parameters[0] * fragments + parameters[1] * (most - least) - parameters[2] * fits


@implements(FindGpus)
def _least_fragmenting(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    demand = _next_demand(state, b, j)
    best, least = -1, np.inf
    for s in range(state.servers.shape[1]):
        if available_gpus(state, b, j, s) >= wanted:
            cost = _cost(state, b, s, wanted, demand, parameters)
            if cost < least:
                best = s
                least = cost
    if best >= 0:
        return take_free_gpus(state, b, j, best, wanted, out, 0)
    return consolidate_gpus(state, b, j, wanted, out)


@checked("placement")
def least_fragmenting(
    fragments: NonNegative = 1.0, imbalance: NonNegative = 0.3, next_fits: NonNegative = 0.5
) -> PlacementRule:
    """Return the rule that minimises RLTune's objective, and else places jobs as `consolidate`.

    The objective is fragments x partly free servers + imbalance x (most - fewest free GPUs of a server)
    - next_fits x servers with room for the oldest other waiting job. Defaults are the public code's
    (github.com/dshruti20/RLTune), a mixed-integer program that picks one of at most four placements. Here
    every server with room is compared.

    Args:
        fragments: weight of partly free servers, at least 0.
        imbalance: weight of the difference of free GPUs, at least 0.
        next_fits: weight of servers with room for the next job, at least 0.

    Raises:
        ConfigurationError: a weight below 0.
    """
    weights = np.array([fragments, imbalance, next_fits])
    return PlacementRule(_least_fragmenting, "least_fragmenting", weights)


@implements(FindGpus)
def _pack_on_types(
    state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
) -> int:
    taken = state.server_scratch[b]
    taken[:] = 0
    count = 0
    while count < wanted:
        best, best_room = -1, 0
        for s in range(state.servers.shape[1]):
            server = state.servers[b, s]
            if taken[s] != 0 or parameters[server.gpu_type] == 0.0:
                continue
            room = min(available_gpus(state, b, j, s), wanted - count)
            tighter = room == best_room and best >= 0 and server.free_gpus < state.servers[b, best].free_gpus
            if room > best_room or tighter:
                best = s
                best_room = room
        if best < 0:
            return 0
        taken[best] = 1
        count = take_free_gpus(state, b, j, best, best_room, out, count)
    return count


def pack_on_types(cluster: Cluster, gpu_types: Collection[str]) -> PlacementRule:
    """Return rule `pack` on servers of some types: the fullest server that fits, else as few as can be.

    Args:
        cluster: servers to choose from.
        gpu_types: names in `Cluster.gpu_types`.
    """
    allowed = np.array([kind in gpu_types for kind in cluster.distinct_gpu_types], dtype=np.float64)
    return PlacementRule(_pack_on_types, f"pack on {', '.join(sorted(gpu_types))}", allowed)
