"""The default observation: waiting jobs, what each placement would do to them, running jobs, servers."""

from ringyard.compiled import Float32Vector, FloatVector, fills, kernel
from ringyard.information import Information
from ringyard.mdp.episode import Episode
from ringyard.mdp.observations.blocks import Block, Each, Feature
from ringyard.mdp.observations.observation import Observation, Observe
from ringyard.mdp.positions import next_running
from ringyard.state.arrays import State
from ringyard.state.progress import attained_service, predicted_iterations, predicted_share, slowdown
from ringyard.state.waiting import waiting_at

__all__ = [
    "BLOCKS",
    "PLACEMENT_FEATURES",
    "QUEUE_KNOWS",
    "SERVER_FEATURES",
    "queue_and_cluster",
    "squash",
    "write_queue_and_cluster",
]

_WAITING = Block(
    "waiting",
    Each.WAITING,
    (
        Feature("run_time", "(ln predicted isolated run time - 6) / 2.5; 0 if not predictable", "s"),
        Feature("gpus", "log2(GPUs) / 3 - 0.5; a CPU-only job counts as an eighth of a GPU", "GPUs"),
        Feature("work", "(ln (run time x GPUs) - 7) / 3; 0 if not predictable", "GPU s"),
        Feature("waited", "s(time since submission, 1 h)", "s"),
        Feature("run_time_rank", "rank of run_time among the visible, in [0, 1)"),
        Feature("gpus_rank", "rank of gpus, likewise"),
        Feature("work_rank", "rank of work, likewise"),
        Feature("waited_rank", "rank of waited, likewise"),
        Feature("communication", "ln(1 + gradient bytes / (1 GB/s x compute seconds)) - 1"),
        Feature("predictable", "1 if predictable"),
        Feature("left", "predicted share of iterations left; 1 if not predictable"),
        Feature("attained_service", "s(GPU time held, 10 h)", "GPU s"),
    ),
)
_WAITING_MASK = Block("waiting_mask", Each.WAITING, (Feature("present", "1 if the slot holds a job"),))
_PLACEMENTS = Block(
    "placements",
    Each.PLACEMENT,
    (
        Feature("fits", "1 if the template finds GPUs for the job now"),
        Feature("servers", "s(servers spanned - 1, 2)", "servers"),
        Feature(
            "slowdown",
            "1 - isolated / predicted seconds per iteration there; if faster, predicted / isolated - 1",
        ),
    ),
)
_RUNNING = Block(
    "running",
    Each.RUNNING,
    (
        Feature("time_left", "s(predicted time left at the present speed, 1 h); 0 if not predictable", "s"),
        Feature("predictable", "1 if predictable"),
        Feature("gpus", "s(GPUs, 4)", "GPUs"),
        Feature("ran", "s(time since its last start, 1 h)", "s"),
        Feature("attained_service", "s(GPU time held, 10 h)", "GPU s"),
        Feature("servers", "s(servers spanned - 1, 2)", "servers"),
        Feature(
            "slowdown", "1 - isolated / present seconds per iteration; if faster, present / isolated - 1"
        ),
    ),
)
_RUNNING_MASK = Block(
    "running_mask",
    Each.RUNNING,
    (Feature("present", "1 if the slot holds a job; in heap order of ends, by row if any is uncertain"),),
)
_SERVERS = Block(
    "servers",
    Each.SERVER,
    (
        Feature("free", "free GPUs / GPUs"),
        Feature("spanning", "s(jobs here that span servers, 2)", "jobs"),
        Feature("gpus", "s(GPUs, 8)", "GPUs"),
    ),
)
_CLUSTER = Block(
    "cluster",
    Each.CLUSTER,
    (
        Feature("free", "free GPUs / GPUs"),
        Feature("fragmented", "free GPUs on partly used servers / GPUs"),
        Feature("waiting", "s(waiting jobs, 16)", "jobs"),
        Feature("hidden", "s(waiting jobs beyond the visible, 16)", "jobs"),
        Feature("running", "s(running jobs, 16)", "jobs"),
        Feature("demand", "s(GPUs asked by waiting jobs / GPUs, 1)"),
        Feature("preemptions", "share of stops among starts and stops"),
        Feature("load", "s(sum over predictable jobs in the system of 1 / predicted run time, 0.01)", "1/s"),
    ),
)
#: what `queue_and_cluster` writes
BLOCKS = (_WAITING, _WAITING_MASK, _PLACEMENTS, _RUNNING, _RUNNING_MASK, _SERVERS, _CLUSTER)

WAITING_FEATURES = len(_WAITING.features)
PLACEMENT_FEATURES = len(_PLACEMENTS.features)
RUNNING_FEATURES = len(_RUNNING.features)
SERVER_FEATURES = len(_SERVERS.features)
CLUSTER_FEATURES = len(_CLUSTER.features)
_HOUR = 3600.0

#: what the blocks of `queue_and_cluster` show; durations are predicted, and blank where they cannot be
QUEUE_KNOWS = Information.SIZES | Information.ATTAINED_SERVICE | Information.PREDICTIONS | Information.SPEEDS


@kernel
def squash(value: float, scale: float) -> float:
    """Value / (value + scale): 0 at 0, 1/2 at `scale`, 1 at infinity."""
    return value / (value + scale)


@kernel
def _ranks(out: Float32Vector, rows: int, source: int, target: int) -> None:
    """Rank of each row's feature `source` among the rows, in [0, 1), into feature `target`."""
    for i in range(rows):
        value = out[i * WAITING_FEATURES + source]
        rank = 0
        for k in range(rows):
            other = out[k * WAITING_FEATURES + source]
            if other < value or (other == value and k < i):
                rank += 1
        out[i * WAITING_FEATURES + target] = rank / rows


@kernel
def _write_waiting(state: State, episode: Episode, b: int, visible: int, out: Float32Vector) -> None:
    cluster = state.clusters[b]
    now = cluster.now
    for i in range(visible):
        j = waiting_at(state, b, i)
        job = state.jobs[b, j]
        static = episode.static[b, j]
        row = i * WAITING_FEATURES
        known = job.predictable != 0
        out[row] = static[0] if known else 0.0
        out[row + 1] = static[1]
        out[row + 2] = static[2] if known else 0.0
        out[row + 3] = squash(now - job.submit_seconds, _HOUR)
        out[row + 8] = static[3]
        out[row + 9] = 1.0 if known else 0.0
        out[row + 10] = predicted_share(job) if known else 1.0
        out[row + 11] = squash(job.attained_service, 10.0 * _HOUR)
    for feature in range(4):
        _ranks(out, visible, feature, 4 + feature)


@kernel
def _write_placements(episode: Episode, b: int, visible: int, out: Float32Vector) -> None:
    num_templates = episode.looks.shape[2]
    for i in range(visible):
        for t in range(num_templates):
            row = (i * num_templates + t) * PLACEMENT_FEATURES
            if episode.looks[b, i, t].num_places > 0:
                out[row] = 1.0
                out[row + 1] = squash(episode.looks[b, i, t].num_servers - 1.0, 2.0)
                out[row + 2] = episode.template_slowdown[b, i, t]


@kernel
def _write_running(state: State, b: int, shown: int, out: Float32Vector) -> None:
    now = state.clusters[b].now
    j = -1
    for i in range(shown):
        j = next_running(state, b, i, j)
        job = state.jobs[b, j]
        row = i * RUNNING_FEATURES
        known = job.predictable != 0
        left = predicted_iterations(job, now) * job.iteration_seconds
        out[row] = squash(left, _HOUR) if known else 0.0
        out[row + 1] = 1.0 if known else 0.0
        out[row + 2] = squash(float(job.num_gpus), 4.0)
        out[row + 3] = squash(now - job.last_start_seconds, _HOUR)
        out[row + 4] = squash(attained_service(job, now), 10.0 * _HOUR)
        out[row + 5] = squash(float(job.num_servers - 1), 2.0)
        out[row + 6] = slowdown(job.isolated_iteration_seconds, job.iteration_seconds)


@kernel
def _write_cluster(state: State, b: int, visible: int, out: Float32Vector) -> None:
    cluster = state.clusters[b]
    num_gpus = float(cluster.num_gpus)
    running_gpus = num_gpus - cluster.free_gpus - cluster.down_gpus
    out[0] = cluster.free_gpus / num_gpus
    out[1] = cluster.fragmented_gpus / num_gpus
    out[2] = squash(float(cluster.num_waiting), 16.0)
    out[3] = squash(float(cluster.num_waiting - visible), 16.0)
    out[4] = squash(float(cluster.num_running), 16.0)
    out[5] = squash((cluster.demanded_gpus - running_gpus) / num_gpus, 1.0)
    out[6] = cluster.num_preemptions / (cluster.num_preemptions + float(cluster.num_starts) + 1.0)
    out[7] = squash(cluster.predicted_inverse_durations, 0.01)


@kernel
def write_queue_and_cluster(
    state: State, episode: Episode, b: int, num_running: int, out: Float32Vector
) -> int:
    """Clear the row and write the blocks of `queue_and_cluster`; where the next block begins."""
    out[:] = 0.0
    cluster = state.clusters[b]
    num_waiting = episode.looks.shape[1]
    num_templates = episode.looks.shape[2]
    visible = min(num_waiting, cluster.num_waiting)
    shown = min(num_running, cluster.num_running)
    begin = 0
    _write_waiting(state, episode, b, visible, out)
    begin += num_waiting * WAITING_FEATURES
    out[begin : begin + visible] = 1.0
    begin += num_waiting
    _write_placements(episode, b, visible, out[begin:])
    begin += num_waiting * num_templates * PLACEMENT_FEATURES
    _write_running(state, b, shown, out[begin:])
    begin += num_running * RUNNING_FEATURES
    out[begin : begin + shown] = 1.0
    begin += num_running
    for s in range(state.servers.shape[1]):
        server = state.servers[b, s]
        out[begin] = server.free_gpus / server.num_gpus
        out[begin + 1] = squash(float(server.spanning_jobs), 2.0)
        out[begin + 2] = squash(float(server.num_gpus), 8.0)
        begin += SERVER_FEATURES
    _write_cluster(state, b, visible, out[begin:])
    return begin + CLUSTER_FEATURES


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
