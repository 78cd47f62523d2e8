"""The compiled step of `Scores`: an allocator makes allocations of them, then time passes to the next."""

import numpy as np

from ringyard.allocator import Rules, allocate
from ringyard.compiled import BoolMatrix, BoolVector, Float32Matrix, Float32Vector, IntVector, bundle, kernel
from ringyard.mdp.episode import Episode
from ringyard.mdp.kernel import (
    DONE,
    GOES_ON,
    STALLED,
    STEP,
    TRUNCATED,
    Bank,
    Outputs,
    Sight,
    conclude,
    enter,
)
from ringyard.sim.engine.clock import is_round
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.physics import Physics
from ringyard.sim.engine.standstill import count_step
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus

__all__ = ["Scorings", "all_inside", "allocate_by", "play_scored"]

_DONE = int(JobStatus.DONE)


@bundle
class Scorings:
    """What every cluster of a batch shares.

    Attributes:
        rules: of the allocator.
        round_seconds: decide then; inf: at every event.
        sight: what agents see.
    """

    rules: Rules
    round_seconds: float
    sight: Sight


@kernel
def _list_live(state: State, episode: Episode, b: int, mask: BoolVector) -> None:
    """Bring the list of live jobs up to date, in order of their rows; mark those that get a score."""
    live = episode.live[b]
    count = 0
    for i in range(episode.num_live[b]):
        if state.jobs[b, live[i]].status != _DONE:
            live[count] = live[i]
            count += 1
    for j in range(episode.num_arrived[b], state.clusters[b].next_arrival):
        if state.jobs[b, j].status != _DONE:
            live[count] = j
            count += 1
    episode.num_live[b] = count
    episode.num_arrived[b] = state.clusters[b].next_arrival
    for i in range(len(mask)):
        mask[i] = i < count


@kernel
def _settle(state: State, episode: Episode, b: int, how: Scorings, physics: Physics, mask: BoolVector) -> int:
    """Let time pass until there are jobs to score, or the episode ends."""
    cluster = state.clusters[b]
    while True:
        over = cluster.num_done == cluster.num_jobs
        late = cluster.now >= cluster.limit_seconds
        live = cluster.num_waiting + cluster.num_running > 0
        if (
            over
            or late
            or (live and (how.round_seconds == np.inf or is_round(cluster.now, how.round_seconds)))
        ):
            _list_live(state, episode, b, mask)
            return DONE if over else TRUNCATED if late else GOES_ON
        if not advance(state, b, physics):
            return STALLED


@kernel
def allocate_by(
    state: State, episode: Episode, b: int, scores: Float32Vector, rules: Rules, physics: Physics
) -> None:
    """Carry out what the allocator makes of the scores of the live jobs in the list.

    Args:
        scores: [(1 + GPU types scored) x N] of the jobs, then of all of them on the first type, and so on.
        (others): as everywhere.
    """
    plan = episode.plan
    num_types = plan.type_score.shape[2]
    shown = len(scores) // (1 + num_types)
    for i in range(episode.num_live[b]):
        j = episode.live[b, i]
        plan.score[b, j] = scores[i] if i < shown else 0.0
        for kind in range(num_types):
            plan.type_score[b, j, kind] = scores[(1 + kind) * shown + i] if i < shown else 0.0
    allocate(state, b, episode.plan, rules, physics)


@kernel
def _act(
    state: State, episode: Episode, b: int, scores: Float32Vector, how: Scorings, physics: Physics
) -> int:
    """Allocate and let time pass to the next event; STALLED if there is none, or if time stands still."""
    if not count_step(state, b, state.clusters[b].now):
        return STALLED
    allocate_by(state, episode, b, scores, how.rules, physics)
    return GOES_ON if advance(state, b, physics) else STALLED


@kernel
def all_inside(masks: BoolMatrix, playing: BoolVector, scores: Float32Matrix, clusters: IntVector) -> bool:
    """Whether the given clusters are in an episode and their scores from -1 to 1."""
    outside = 0
    for b in clusters:
        outside += not playing[b]
        for score in scores[b]:
            outside += not -1.0 <= score <= 1.0
    return outside == 0


@kernel
def play_scored(
    state: State,
    episode: Episode,
    clusters: IntVector,
    what: int,
    rows: IntVector,
    actions: Float32Matrix,
    bank: Bank,
    limit_seconds: float,
    how: Scorings,
    physics: Physics,
    out: Outputs,
) -> int:
    """Bring each of the given clusters to its next decision; how many are STALLED. One kernel, compiled once.

    Args:
        state: simulation arrays.
        episode: decision-process arrays.
        clusters: [stepped] indices.
        what: STEP: by one valid action each; BEGIN: from the start of a workload; SETTLE: from where
            something else has put it.
        rows: [clusters] of the bank, read at those indices.
        actions: [clusters, scores] read at those indices, see `allocate_by`.
        bank: workloads.
        limit_seconds: the window's end of a new episode; inf: until all jobs are done.
        how: what clusters share.
        physics: performance model.
        out: `Outputs`, written at those indices.
    """
    stalled = 0
    for b in clusters:
        end = enter(state, episode, b, what, rows[b], bank, limit_seconds, out)
        if what == STEP and end == GOES_ON:
            end = _act(state, episode, b, actions[b], how, physics)
        if end == GOES_ON:
            end = _settle(state, episode, b, how, physics, out.masks[b])
        conclude(state, episode, b, end, what, how.sight, out)
        stalled += end == STALLED
    return stalled
