"""Load of the links by rings, where rings matter beyond their own servers (`ClusterRecord.global_links`).

That is so if the cluster has racks with uplinks, for Network.LIVE_TRANSFERS and for Network.MAX_MIN. Else
`allocation` sums the link shares on each server. A ring uses the link of each of its servers, and the uplinks
of its racks if it is in several. With an execution plan, it is if a pipeline stage is.
"""

import numpy as np

from ringyard.compiled import kernel
from ringyard.fabric import latency_seconds, ring_bytes_per_second
from ringyard.performance.model import Physics
from ringyard.performance.plans import sending_share, stage_gpus
from ringyard.performance.ring import overlapped_seconds, ring_seconds
from ringyard.state.arrays import State
from ringyard.state.gpu_effects import summable
from ringyard.state.records import Network

_NO_RING = 0.05  # link shares below this are none: half of the least share


@kernel
def set_ring_racks(state: State, b: int, j: int, physics: Physics) -> None:
    """Count racks of job `j` (`b`, `state`), with a plan: 1 if each pipeline stage is in one rack."""
    job = state.jobs[b, j]
    if job.num_racks <= 1:
        return
    stage = stage_gpus(job, physics.parameters)
    count = 0
    rack = -1
    i = job.first_slot
    while i >= 0:
        here = state.servers[b, state.slots[b, i].server].rack
        if here != rack and count % stage != 0:
            return
        rack = here
        count += 1
        i = state.slots[b, i].next_slot
    job.num_racks = 1


@kernel
def set_link_load(state: State, b: int, j: int, physics: Physics) -> None:
    """Set what job `j` adds to each link: its link share, x its time sending alone with LIVE_TRANSFERS."""
    job = state.jobs[b, j]
    job.link_load = summable(job.link_share)
    if state.clusters[b].network != Network.LIVE_TRANSFERS:
        return
    if job.plan_model >= 0:
        set_ring_racks(state, b, j, physics)
        job.link_load = summable(sending_share(job, physics.parameters) * job.link_share)
        return
    alone = ring_bytes_per_second(state.between_servers, 0, job.num_servers)
    sending = ring_seconds(job.num_gpus, job.gradient_bytes, alone, np.inf)
    ring = sending + latency_seconds(state.between_servers, 0, job.num_gpus)
    together = overlapped_seconds(job.compute_seconds / job.gpu_speed, ring, job.overlap_exponent)
    job.link_load = summable(sending / together * job.link_share)


@kernel
def _links_of(state: State, b: int, j: int) -> int:
    """Write the rows of `State.links` used by the ring of job `j` to `link_scratch`. Return their number."""
    out = state.link_scratch[b]
    num_servers = state.servers.shape[1]
    job = state.jobs[b, j]
    count = 0
    rack = -1
    i = job.first_slot
    while i >= 0:
        s = state.slots[b, i].server
        out[count] = s
        count += 1
        if job.num_racks > 1 and state.servers[b, s].rack != rack:
            rack = state.servers[b, s].rack
            out[count] = num_servers + rack
            count += 1
        i = state.slots[b, i].next_server_slot
    return count


@kernel
def _ring_at(state: State, b: int, i: int, extra: int) -> int:
    """Return the i-th running job, or job `extra` as the one after the last. -1 if it is not a ring."""
    j = extra
    if i < state.clusters[b].num_running:
        j = state.running[b, i]
    if j < 0 or state.jobs[b, j].num_servers <= 1:
        return -1
    return j


@kernel
def add_link_load(state: State, b: int, j: int, sign: float) -> None:
    """Add `sign` x the load of job `j` to its links in cluster `b` of `state`. Sums are exact."""
    weight = sign * state.jobs[b, j].link_load
    for k in range(_links_of(state, b, j)):
        state.links[b, state.link_scratch[b, k]].load += weight


@kernel
def clear_links(state: State, b: int) -> None:
    """Remove all rings from the links of cluster `b` of `state`."""
    for row in range(state.links.shape[1]):
        state.links[b, row].load = 0.0


@kernel
def _recount_loads(state: State, b: int, extra: int) -> None:
    """Count the load of all links from scratch."""
    cluster = state.clusters[b]
    clear_links(state, b)
    for i in range(cluster.num_running + 1):
        j = _ring_at(state, b, i, extra)
        if j >= 0:
            state.jobs[b, j].link_load = summable(state.jobs[b, j].link_share)
            add_link_load(state, b, j, 1.0)


@kernel
def isolated_contenders(state: State, b: int, j: int) -> float:
    """Return the contenders of job `j` of cluster `b` of `state` without other rings, 0 on one server."""
    job = state.jobs[b, j]
    if job.num_servers <= 1:
        return 0.0
    worst = 1.0
    if job.num_racks > 1:
        for k in range(_links_of(state, b, j)):
            worst = max(worst, 1.0 / state.links[b, state.link_scratch[b, k]].capacity)
    return worst


@kernel
def link_contenders(state: State, b: int, j: int, weight: float) -> float:
    """Return load / link share / capacity on the worst link of job `j`, its own `weight` counted as 1."""
    worst = 1.0
    own = state.jobs[b, j].link_share
    for k in range(_links_of(state, b, j)):
        link = state.links[b, state.link_scratch[b, k]]
        worst = max(worst, ((link.load - weight) / own + 1.0) / link.capacity)
    return worst


@kernel
def find_rings_on_links(state: State, b: int, j: int) -> int:
    """Write rings that may share links with job `j` (`b`, `state`) to `ring_scratch`. Return how many."""
    out = state.ring_scratch[b]
    job = state.jobs[b, j]
    count = 0
    if job.num_racks > 1:  # rings on the same uplinks may be on any server
        for i in range(state.slots.shape[1]):
            other = state.slots[b, i].job
            if other >= 0 and other != j and state.jobs[b, other].first_slot == i:
                if state.jobs[b, other].num_servers > 1:
                    out[count] = other
                    count += 1
        return count
    per_gpu = state.clusters[b].jobs_per_gpu
    state.clusters[b].visit_mark += 1
    job.visit_mark = state.clusters[b].visit_mark
    head = job.first_slot
    while head >= 0:
        server = state.servers[b, state.slots[b, head].server]
        first = server.first_gpu * per_gpu
        for i in range(first, first + server.num_gpus * per_gpu if server.spanning_jobs > 0 else first):
            other = state.slots[b, i].job
            if other >= 0 and state.jobs[b, other].num_servers > 1:
                if state.jobs[b, other].visit_mark != job.visit_mark:
                    state.jobs[b, other].visit_mark = job.visit_mark
                    count = _insert_by_first_gpu(state, b, other, count)
        head = state.slots[b, head].next_server_slot
    return count


@kernel
def _insert_by_first_gpu(state: State, b: int, j: int, count: int) -> int:
    """Insert job `j` into the `count` rings of `ring_scratch`. Return their new number."""
    out = state.ring_scratch[b]
    first = state.jobs[b, j].first_slot
    k = count
    while k > 0 and state.jobs[b, out[k - 1]].first_slot > first:
        out[k] = out[k - 1]
        k -= 1
    out[k] = j
    return count + 1


@kernel
def _tightest_link(state: State, b: int) -> int:
    """Return the link with the least capacity left per unfrozen link share, -1 if there is none."""
    tightest = -1
    least = np.inf
    for row in range(state.links.shape[1]):
        link = state.links[b, row]
        if link.flows > _NO_RING and link.left / link.flows < least:
            least = link.left / link.flows
            tightest = row
    return tightest


@kernel
def _fill_progressively(state: State, b: int, extra: int) -> None:
    """Write 1 / max-min fair share to `new_contenders` (progressive filling, Bertsekas & Gallager 6.5.2)."""
    for row in range(state.links.shape[1]):
        link = state.links[b, row]
        link.left = link.capacity
        link.flows = link.load
    num_rings = state.clusters[b].num_running + 1
    weighted = False
    for i in range(num_rings):
        j = _ring_at(state, b, i, extra)
        if j >= 0:
            state.jobs[b, j].new_contenders = 0.0
            weighted = weighted or state.jobs[b, j].link_load != 1.0
    tightest = _tightest_link(state, b)
    while tightest >= 0:
        share = state.links[b, tightest].left / state.links[b, tightest].flows
        for i in range(num_rings):
            j = _ring_at(state, b, i, extra)
            if j < 0 or state.jobs[b, j].new_contenders > 0.0:
                continue
            count = _links_of(state, b, j)
            uses = False
            for k in range(count):
                uses = uses or state.link_scratch[b, k] == tightest
            if uses:
                part = share * state.jobs[b, j].link_load
                part = summable(part) if weighted else part  # so that the order of rings does not matter
                state.jobs[b, j].new_contenders = 1.0 / part
                for k in range(count):
                    link = state.links[b, state.link_scratch[b, k]]
                    link.left = max(link.left - part, 0.0)
                    link.flows -= state.jobs[b, j].link_load
        tightest = _tightest_link(state, b)


@kernel
def update_max_min_shares(state: State, b: int, extra: int) -> bool:
    """Write 1 / max-min fair share of running rings and job `extra` (-1: none); return if any changed."""
    _recount_loads(state, b, extra)
    _fill_progressively(state, b, extra)
    changed = False
    for i in range(state.clusters[b].num_running + 1):
        j = _ring_at(state, b, i, extra)
        if j >= 0:
            changed = changed or state.jobs[b, j].new_contenders != state.jobs[b, j].contenders
    return changed
