"""The compiled step of `Scores`: an allocator makes allocations of them, then time passes to the next."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import (
    Rates,
    Rules,
    allocate,
    empty_plan,
    moves_of,
    put_rates,
    with_rates_of,
    with_room_for,
)
from ringyard.compiled import BoolMatrix, BoolVector, Float32Matrix, Float32Vector, IntVector, bundle, kernel
from ringyard.errors import ActionError, ConfigurationError
from ringyard.information import Information
from ringyard.mdp.actions import Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import Episode, empty_episode
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
from ringyard.performance.model import Physics
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.events import advance, is_round
from ringyard.sim.engine.livelock import count_step
from ringyard.state.arrays import State, copy_state
from ringyard.state.records import JobStatus

__all__ = ["ScoresDriver", "allocate_by"]

_DONE = int(JobStatus.DONE)


@bundle
class ScoresConfig:
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
def _settle(
    state: State, episode: Episode, b: int, config: ScoresConfig, physics: Physics, mask: BoolVector
) -> int:
    """Let time pass until there are jobs to score, or the episode ends."""
    cluster = state.clusters[b]
    while True:
        over = cluster.num_done == cluster.num_jobs
        late = cluster.now >= cluster.limit_seconds
        live = cluster.num_waiting + cluster.num_running > 0
        if (
            over
            or late
            or (live and (config.round_seconds == np.inf or is_round(cluster.now, config.round_seconds)))
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
    state: State, episode: Episode, b: int, scores: Float32Vector, config: ScoresConfig, physics: Physics
) -> int:
    """Allocate and let time pass to the next event; STALLED if there is none, or if time stands still."""
    if not count_step(state, b, state.clusters[b].now):
        return STALLED
    allocate_by(state, episode, b, scores, config.rules, physics)
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
def step_scores(
    state: State,
    episode: Episode,
    clusters: IntVector,
    phase: int,
    rows: IntVector,
    actions: Float32Matrix,
    bank: Bank,
    limit_seconds: float,
    config: ScoresConfig,
    physics: Physics,
    out: Outputs,
) -> int:
    """Bring each of the given clusters to its next decision; how many are STALLED. One kernel, compiled once.

    Args:
        state: simulation arrays.
        episode: decision-process arrays.
        clusters: [stepped] indices.
        phase: STEP: by one valid action each; BEGIN: from the start of a workload; SETTLE: from where
            something else has put it.
        rows: [clusters] of the bank, read at those indices.
        actions: [clusters, scores] read at those indices, see `allocate_by`.
        bank: workloads.
        limit_seconds: the window's end of a new episode; inf: until all jobs are done.
        config: what clusters share.
        physics: performance model.
        out: `Outputs`, written at those indices.
    """
    stalled = 0
    for b in clusters:
        end = enter(state, episode, b, phase, rows[b], bank, limit_seconds, out)
        if phase == STEP and end == GOES_ON:
            end = _act(state, episode, b, actions[b], config, physics)
        if end == GOES_ON:
            end = _settle(state, episode, b, config, physics, out.masks[b])
        conclude(state, episode, b, end, phase, config.sight, out)
        stalled += end == STALLED
    return stalled


class ScoresDriver:
    """Drives `Scores`. An allocation takes tens of microseconds."""

    kernel = step_scores
    all_valid = all_inside
    least_per_thread = 2

    def __init__(self, setting: EnvConfig, actions: Scores) -> None:
        self._actions = actions
        estimate = actions.allocator.estimate
        if Information.HISTORY in estimate.takes:
            raise ConfigurationError(
                f"action.allocator.estimate is {estimate.name}, which knows what ended before; expected one"
                " that does not: episodes begin without a past (schedulers such as allocator_hazard have it)"
            )
        scored = actions.type_scores
        self._scored_as = [
            scored.index(kind) if kind in scored else -1 for kind in setting.cluster.distinct_gpu_types
        ]
        observation = setting.observation
        sight = Sight(observation.write, observation.parameters, 0)
        rounds = np.inf if actions.round_seconds is None else actions.round_seconds
        self.config = ScoresConfig(actions.allocator.rules, rounds, sight)

    def episode(self, state: State) -> Episode:
        """Arrays for the clusters of a state."""
        own = self._actions
        plan = empty_plan(state, 0, own.allocator.estimate.memory, False, len(own.type_scores))
        if own.type_scores:
            plan.scored_as[: len(self._scored_as)] = self._scored_as  # the rest: a cluster that names none
        return empty_episode(state, num_scores=own.num_jobs, plan=plan)

    def null_actions(self, num_clusters: int) -> NDArray[np.float32]:
        """[num_clusters, ...] actions that are not read."""
        return np.zeros((num_clusters, *self._actions.space.shape), np.float32)

    def replace_invalid(
        self, masks: NDArray[np.bool_], actions: NDArray[np.float32], clusters: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Refuse scores outside of the space.

        Raises:
            ActionError: always, for the first score that is NaN or beyond -1 and 1.
        """
        inside = np.abs(actions[clusters]) <= 1.0  # NaN is not
        row, i = np.argwhere(~inside)[0]
        raise ActionError(
            f"score {i} of cluster {clusters[row]} is {actions[clusters[row], i]}; expected numbers from -1"
            " to 1, also where no job is: clip them, or squash them by tanh"
        )

    def with_rates(self, episode: Episode, b: int, rates: Rates | None) -> Episode:
        """The episode of which cluster b has the jobs with these rates."""
        assert rates is not None
        plan = with_room_for(episode.plan, rates)
        if plan is not episode.plan:
            episode = replace(episode, plan=plan)
        put_rates(plan, b, rates)
        plan.memory[b] = 0.0
        return episode

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        """What an action of cluster b gives to jobs, in order; nothing is carried out."""
        tried, plan = copy_state(state), episode.plan
        notes = empty_plan(tried, 0, plan.memory.shape[2], True, plan.type_score.shape[2])
        notes = replace(with_rates_of(notes, plan), memory=plan.memory.copy(), scored_as=plan.scored_as)
        rules = self._actions.allocator.rules
        allocate_by(tried, replace(episode, plan=notes), b, action, rules, physics)
        return moves_of(notes, tried, b)
