"""The default observation: waiting jobs, what each placement would do to them, running jobs, servers."""

from typing import Annotated

from ringyard.compiled import Float32Vector, FloatVector, Record, Records1, f4, fills, kernel, take_rows
from ringyard.information import Information
from ringyard.mdp.episode import Episode, next_running
from ringyard.mdp.observations.observation import Block, Each, Feature, Observation, Observe
from ringyard.state.arrays import State, waiting_at
from ringyard.state.progress import attained_service, predicted_iterations, predicted_share, slowdown


class WaitingFeatures(Record):
    """What is shown of a visible waiting job."""

    run_time: Annotated[f4, Feature("(ln predicted isolated run time - 6) / 2.5; 0 if not predictable", "s")]
    gpus: Annotated[f4, Feature("log2(GPUs) / 3 - 0.5; a CPU-only job counts as an eighth of a GPU", "GPUs")]
    work: Annotated[f4, Feature("(ln (run time x GPUs) - 7) / 3; 0 if not predictable", "GPU s")]
    waited: Annotated[f4, Feature("s(time since submission, 1 h)", "s")]
    run_time_rank: Annotated[f4, Feature("rank of run_time among the visible, in [0, 1)")]
    gpus_rank: Annotated[f4, Feature("rank of gpus, likewise")]
    work_rank: Annotated[f4, Feature("rank of work, likewise")]
    waited_rank: Annotated[f4, Feature("rank of waited, likewise")]
    communication: Annotated[f4, Feature("ln(1 + gradient bytes / (1 GB/s x compute seconds)) - 1")]
    predictable: Annotated[f4, Feature("1 if predictable")]
    left: Annotated[f4, Feature("predicted share of iterations left; 1 if not predictable")]
    attained_service: Annotated[f4, Feature("s(GPU time held, 10 h)", "GPU s")]


class WaitingMask(Record):
    """Whether a slot holds a visible waiting job."""

    present: Annotated[f4, Feature("1 if the slot holds a job")]


class PlacementFeatures(Record):
    """What is shown of a visible waiting job where a template would put it."""

    fits: Annotated[f4, Feature("1 if the template finds GPUs for the job now")]
    servers: Annotated[f4, Feature("s(servers spanned - 1, 2)", "servers")]
    slowdown: Annotated[
        f4,
        Feature("1 - isolated / predicted seconds per iteration there; if faster, predicted / isolated - 1"),
    ]


class RunningFeatures(Record):
    """What is shown of a running job."""

    time_left: Annotated[
        f4, Feature("s(predicted time left at the present speed, 1 h); 0 if not predictable", "s")
    ]
    predictable: Annotated[f4, Feature("1 if predictable")]
    gpus: Annotated[f4, Feature("s(GPUs, 4)", "GPUs")]
    ran: Annotated[f4, Feature("s(time since its last start, 1 h)", "s")]
    attained_service: Annotated[f4, Feature("s(GPU time held, 10 h)", "GPU s")]
    servers: Annotated[f4, Feature("s(servers spanned - 1, 2)", "servers")]
    slowdown: Annotated[
        f4, Feature("1 - isolated / present seconds per iteration; if faster, present / isolated - 1")
    ]


class RunningMask(Record):
    """Whether a slot holds a running job."""

    present: Annotated[
        f4, Feature("1 if the slot holds a job; in heap order of ends, by row if any is uncertain")
    ]


class ServerFeatures(Record):
    """What is shown of a server."""

    free: Annotated[f4, Feature("free GPUs / GPUs")]
    spanning: Annotated[f4, Feature("s(jobs here that span servers, 2)", "jobs")]
    gpus: Annotated[f4, Feature("s(GPUs, 8)", "GPUs")]


class ClusterFeatures(Record):
    """What is shown of the cluster."""

    free: Annotated[f4, Feature("free GPUs / GPUs")]
    fragmented: Annotated[f4, Feature("free GPUs on partly used servers / GPUs")]
    waiting: Annotated[f4, Feature("s(waiting jobs, 16)", "jobs")]
    hidden: Annotated[f4, Feature("s(waiting jobs beyond the visible, 16)", "jobs")]
    running: Annotated[f4, Feature("s(running jobs, 16)", "jobs")]
    demand: Annotated[f4, Feature("s(GPUs asked by waiting jobs / GPUs, 1)")]
    preemptions: Annotated[f4, Feature("share of stops among starts and stops")]
    load: Annotated[
        f4, Feature("s(sum over predictable jobs in the system of 1 / predicted run time, 0.01)", "1/s")
    ]


#: what `queue_and_cluster` writes, in this order
BLOCKS = (
    Block("waiting", Each.WAITING, WaitingFeatures),
    Block("waiting_mask", Each.WAITING, WaitingMask),
    Block("placements", Each.PLACEMENT, PlacementFeatures),
    Block("running", Each.RUNNING, RunningFeatures),
    Block("running_mask", Each.RUNNING, RunningMask),
    Block("servers", Each.SERVER, ServerFeatures),
    Block("cluster", Each.CLUSTER, ClusterFeatures),
)
_HOUR = 3600.0

#: what the blocks of `queue_and_cluster` show; durations are predicted, and blank where they cannot be
QUEUE_KNOWS = Information.SIZES | Information.ATTAINED_SERVICE | Information.PREDICTIONS | Information.SPEEDS


@kernel
def squash(value: float, scale: float) -> float:
    """Value / (value + scale): 0 at 0, 1/2 at `scale`, 1 at infinity."""
    return value / (value + scale)


@kernel
def _is_before(other: float, value: float, k: int, i: int) -> int:
    return 1 if other < value or (other == value and k < i) else 0


@kernel
def _write_ranks(visible: int, waiting: Records1[WaitingFeatures]) -> None:
    """Rank of each job among the visible by each of four features, in [0, 1)."""
    for i in range(visible):
        row = waiting[i]
        run_time = gpus = work = waited = 0
        for k in range(visible):
            other = waiting[k]
            run_time += _is_before(other.run_time, row.run_time, k, i)
            gpus += _is_before(other.gpus, row.gpus, k, i)
            work += _is_before(other.work, row.work, k, i)
            waited += _is_before(other.waited, row.waited, k, i)
        row.run_time_rank = run_time / visible
        row.gpus_rank = gpus / visible
        row.work_rank = work / visible
        row.waited_rank = waited / visible


@kernel
def _write_waiting(
    state: State, episode: Episode, b: int, visible: int, waiting: Records1[WaitingFeatures]
) -> None:
    now = state.clusters[b].now
    for i in range(visible):
        j = waiting_at(state, b, i)
        job = state.jobs[b, j]
        static = episode.static[b, j]
        row = waiting[i]
        known = job.predictable != 0
        row.run_time = static.run_time if known else 0.0
        row.gpus = static.gpus
        row.work = static.work if known else 0.0
        row.waited = squash(now - job.submit_seconds, _HOUR)
        row.communication = static.communication
        row.predictable = 1.0 if known else 0.0
        row.left = predicted_share(job) if known else 1.0
        row.attained_service = squash(job.attained_service, 10.0 * _HOUR)


@kernel
def _write_placements(
    episode: Episode, b: int, visible: int, placements: Records1[PlacementFeatures]
) -> None:
    num_templates = episode.placement_contexts.shape[2]
    for i in range(visible):
        for t in range(num_templates):
            if episode.placement_contexts[b, i, t].num_places > 0:
                row = placements[i * num_templates + t]
                row.fits = 1.0
                row.servers = squash(episode.placement_contexts[b, i, t].num_servers - 1.0, 2.0)
                row.slowdown = episode.template_slowdown[b, i, t]


@kernel
def _write_running(state: State, b: int, shown: int, running: Records1[RunningFeatures]) -> None:
    now = state.clusters[b].now
    j = -1
    for i in range(shown):
        j = next_running(state, b, i, j)
        job = state.jobs[b, j]
        row = running[i]
        known = job.predictable != 0
        left = predicted_iterations(job, now) * job.iteration_seconds
        row.time_left = squash(left, _HOUR) if known else 0.0
        row.predictable = 1.0 if known else 0.0
        row.gpus = squash(float(job.num_gpus), 4.0)
        row.ran = squash(now - job.last_start_seconds, _HOUR)
        row.attained_service = squash(attained_service(job, now), 10.0 * _HOUR)
        row.servers = squash(float(job.num_servers - 1), 2.0)
        row.slowdown = slowdown(job.isolated_iteration_seconds, job.iteration_seconds)


@kernel
def _write_servers(state: State, b: int, servers: Records1[ServerFeatures]) -> None:
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        servers[s].free = server.free_gpus / server.num_gpus
        servers[s].spanning = squash(float(server.spanning_jobs), 2.0)
        servers[s].gpus = squash(float(server.num_gpus), 8.0)


@kernel
def _write_cluster(state: State, b: int, visible: int, out: ClusterFeatures) -> None:
    cluster = state.clusters[b]
    num_gpus = float(cluster.num_gpus)
    running_gpus = num_gpus - cluster.free_gpus - cluster.down_gpus
    out.free = cluster.free_gpus / num_gpus
    out.fragmented = cluster.fragmented_gpus / num_gpus
    out.waiting = squash(float(cluster.num_waiting), 16.0)
    out.hidden = squash(float(cluster.num_waiting - visible), 16.0)
    out.running = squash(float(cluster.num_running), 16.0)
    out.demand = squash((cluster.demanded_gpus - running_gpus) / num_gpus, 1.0)
    out.preemptions = cluster.num_preemptions / (cluster.num_preemptions + float(cluster.num_starts) + 1.0)
    out.load = squash(cluster.predicted_inverse_durations, 0.01)


@kernel
def write_queue_and_cluster(
    state: State, episode: Episode, b: int, num_running: int, out: Float32Vector
) -> int:
    """Clear the row and write the blocks of `queue_and_cluster`; how many numbers they are."""
    out[:] = 0.0
    cluster = state.clusters[b]
    num_waiting, num_templates = episode.placement_contexts.shape[1], episode.placement_contexts.shape[2]
    visible = min(num_waiting, cluster.num_waiting)
    shown = min(num_running, cluster.num_running)
    waiting, following = take_rows(out, num_waiting, WaitingFeatures)
    waiting_mask, following = take_rows(following, num_waiting, WaitingMask)
    placements, following = take_rows(following, num_waiting * num_templates, PlacementFeatures)
    running, following = take_rows(following, num_running, RunningFeatures)
    running_mask, following = take_rows(following, num_running, RunningMask)
    servers, following = take_rows(following, state.servers.shape[1], ServerFeatures)
    totals, following = take_rows(following, 1, ClusterFeatures)
    for i in range(visible):
        waiting_mask[i].present = 1.0
    for i in range(shown):
        running_mask[i].present = 1.0
    _write_waiting(state, episode, b, visible, waiting)
    _write_ranks(visible, waiting)
    _write_placements(episode, b, visible, placements)
    _write_running(state, b, shown, running)
    _write_servers(state, b, servers)
    _write_cluster(state, b, visible, totals[0])
    return len(out) - len(following)


@fills(Observe)
def _queue_and_cluster(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    write_queue_and_cluster(state, episode, b, num_running, out)


def queue_and_cluster(flat: bool = False) -> Observation:
    """Waiting jobs, what each placement would do to them, running jobs, servers, cluster totals.

    The table of features is part of `help(ringyard.mdp.env.ClusterEnv)` and of docs/observations.md.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks (for a set or pointer policy).
    """
    return Observation(_queue_and_cluster, BLOCKS, flat, QUEUE_KNOWS)
