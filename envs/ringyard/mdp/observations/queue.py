"""Observations: compiled functions that write one float32 row per cluster, split into named blocks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled.functions import CompiledFunction, function_value, kernel
from ringyard.information import Information
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.episode import EPISODE_TYPE
from ringyard.mdp.slots import next_running
from ringyard.state.arrays import STATE_TYPE
from ringyard.state.progress import attained_service, remaining_iterations, slowdown

__all__ = [
    "OBSERVE",
    "PLACEMENT_FEATURES",
    "QUEUE_KNOWS",
    "SERVER_FEATURES",
    "Observation",
    "queue_and_cluster",
    "queue_and_cluster_blocks",
    "squash",
    "write_queue_and_cluster",
]

#: (state, episode, cluster, num_running slots, out row) -> None
OBSERVE = numba.types.void(
    STATE_TYPE, EPISODE_TYPE, numba.types.int64, numba.types.int64, numba.types.float32[::1]
)

WAITING_FEATURES = 12
PLACEMENT_FEATURES = 3
RUNNING_FEATURES = 7
SERVER_FEATURES = 3
CLUSTER_FEATURES = 8
_HOUR = 3600.0

#: what the blocks of `queue_and_cluster` show; durations are predicted, and blank where they cannot be
QUEUE_KNOWS = Information.SIZES | Information.ATTAINED_SERVICE | Information.PREDICTIONS | Information.SPEEDS


#: (cluster, actions) -> {block name: length}, in the order written
Blocks = Callable[[Cluster, Actions], dict[str, int]]


@dataclass(frozen=True)
class Observation:
    """A compiled writer and the names of the blocks it writes.

    Attributes:
        write: compiled function of signature `OBSERVE`.
        blocks: names and lengths of what it writes; a name ending in `_mask` is 0 or 1. Blocks are
            one-dimensional, as Stable-Baselines3 wants them.
        flat: give the row as one Box instead of a Dict of its blocks.
        knows: what it shows of jobs, besides arrivals and the present.
    """

    write: CompiledFunction
    blocks: Blocks
    flat: bool
    knows: Information

    def size(self, cluster: Cluster, actions: Actions) -> int:
        """Length of the row."""
        return sum(self.blocks(cluster, actions).values())

    def space(self, cluster: Cluster, actions: Actions) -> spaces.Space[Any]:
        """The observation space of one cluster."""
        if self.flat:
            return spaces.Box(-10.0, 10.0, (self.size(cluster, actions),), np.float32)
        return spaces.Dict(
            {
                name: spaces.Box(0.0 if name.endswith("_mask") else -10.0, 10.0, (length,), np.float32)
                for name, length in self.blocks(cluster, actions).items()
            }
        )

    def split(self, rows: NDArray[np.float32], cluster: Cluster, actions: Actions) -> Any:
        """Rows [..., size] as the space has them: unchanged if flat, else a dict of windows on them."""
        if self.flat:
            return rows
        blocks = {}
        begin = 0
        for name, length in self.blocks(cluster, actions).items():
            blocks[name] = rows[..., begin : begin + length]
            begin += length
        return blocks


def queue_and_cluster_blocks(cluster: Cluster, actions: Actions) -> dict[str, int]:
    """Names and lengths of what `queue_and_cluster` writes."""
    num_waiting, num_running = actions.num_waiting, actions.num_running
    return {
        "waiting": num_waiting * WAITING_FEATURES,
        "waiting_mask": num_waiting,
        "placements": num_waiting * len(actions.templates) * PLACEMENT_FEATURES,
        "running": num_running * RUNNING_FEATURES,
        "running_mask": num_running,
        "servers": cluster.num_servers * SERVER_FEATURES,
        "cluster": CLUSTER_FEATURES,
    }


@kernel
def squash(value: float, scale: float) -> float:
    """Value / (value + scale): 0 at 0, 1/2 at `scale`, 1 at infinity."""
    return value / (value + scale)


@kernel
def _ranks(out: Any, rows: int, source: int, target: int) -> None:
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
def _write_waiting(state: Any, episode: Any, b: int, visible: int, out: Any) -> None:
    cluster = state.clusters[b]
    now = cluster.now
    for i in range(visible):
        j = state.waiting[b, i]
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
        out[row + 10] = job.remaining_iterations / job.total_iterations if known else 1.0
        out[row + 11] = squash(job.attained_service, 10.0 * _HOUR)
    for feature in range(4):
        _ranks(out, visible, feature, 4 + feature)


@kernel
def _write_placements(episode: Any, b: int, visible: int, out: Any) -> None:
    num_templates = episode.looks.shape[2]
    for i in range(visible):
        for t in range(num_templates):
            row = (i * num_templates + t) * PLACEMENT_FEATURES
            if episode.looks[b, i, t].num_gpus > 0:
                out[row] = 1.0
                out[row + 1] = squash(episode.looks[b, i, t].num_servers - 1.0, 2.0)
                out[row + 2] = episode.template_slowdown[b, i, t]


@kernel
def _write_running(state: Any, b: int, shown: int, out: Any) -> None:
    now = state.clusters[b].now
    j = -1
    for i in range(shown):
        j = next_running(state, b, i, j)
        job = state.jobs[b, j]
        row = i * RUNNING_FEATURES
        known = job.predictable != 0
        left = remaining_iterations(job, now) * job.prediction_factor * job.iteration_seconds
        out[row] = squash(left, _HOUR) if known else 0.0
        out[row + 1] = 1.0 if known else 0.0
        out[row + 2] = squash(float(job.num_gpus), 4.0)
        out[row + 3] = squash(now - job.last_start_seconds, _HOUR)
        out[row + 4] = squash(attained_service(job, now), 10.0 * _HOUR)
        out[row + 5] = squash(float(job.num_servers - 1), 2.0)
        out[row + 6] = slowdown(job.isolated_iteration_seconds, job.iteration_seconds)


@kernel
def _write_cluster(state: Any, b: int, visible: int, out: Any) -> None:
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
def write_queue_and_cluster(state: Any, episode: Any, b: int, num_running: int, out: Any) -> int:
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


@function_value(OBSERVE)
def _queue_and_cluster(state: Any, episode: Any, b: int, num_running: int, out: Any) -> None:
    write_queue_and_cluster(state, episode, b, num_running, out)


def queue_and_cluster(flat: bool = False) -> Observation:
    """Waiting jobs, what each placement would do to them, running jobs, servers, cluster totals.

    The table of features stands in the docstring of `ringyard.mdp.env.ClusterEnv`.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks (for a set or pointer policy).
    """
    return Observation(_queue_and_cluster, queue_and_cluster_blocks, flat, QUEUE_KNOWS)
