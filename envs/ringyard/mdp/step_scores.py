"""Decoders and the driver of `Scores` and `Weights`: an allocator carries out scores, and time passes."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import (
    JobUtilities,
    empty_allocation_plan,
    logged_moves,
    run_allocator,
    with_capacity_for,
    with_utilities_of,
    write_utilities,
)
from ringyard.allocator.target_sizes import estimate_seconds_left
from ringyard.cluster import Cluster
from ringyard.compiled import BoolVector, Float32Vector, implements, kernel, take_rows, to_int
from ringyard.errors import ActionError
from ringyard.mdp.actions import AllocatorActions, Scores, Weights
from ringyard.mdp.actions.moves import EMPTY_OPTIONS
from ringyard.mdp.episode import Episode, empty_episode
from ringyard.mdp.job_features import (
    NUM_JOB_FEATURES,
    JobFeatures,
    write_job_features,
    write_predicted_seconds,
)
from ringyard.mdp.step import DONE, ONGOING, STALLED, TRUNCATED, ActionConfig, Decode
from ringyard.performance.model import Physics
from ringyard.performance.plan_table import PlanTable
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.events import advance, is_round
from ringyard.state.arrays import State, copy_state
from ringyard.state.records import JobStatus


@kernel
def _update_live_jobs(state: State, episode: Episode, b: int) -> None:
    """Update the ascending list of jobs that wait or run in `episode`."""
    live = episode.live[b]
    count = 0
    for i in range(episode.num_live[b]):
        if state.jobs[b, live[i]].status != JobStatus.DONE:
            live[count] = live[i]
            count += 1
    for j in range(episode.num_arrived[b], state.clusters[b].next_arrival):
        if state.jobs[b, j].status != JobStatus.DONE:
            live[count] = j
            count += 1
    episode.num_live[b] = count
    episode.num_arrived[b] = state.clusters[b].next_arrival


@kernel
def _allocate_by_scores(
    state: State, episode: Episode, b: int, scores: Float32Vector, config: ActionConfig, physics: Physics
) -> None:
    """Run the allocator with the scores of the live jobs, then those for the first GPU type, and so on."""
    plan = episode.plan
    num_types = plan.type_score.shape[2]
    shown = len(scores) // (1 + num_types)
    for i in range(episode.num_live[b]):
        j = episode.live[b, i]
        bonus = config.running_bonus if state.jobs[b, j].status == JobStatus.RUNNING else 0.0
        plan.score[b, j] = bonus + (scores[i] if i < shown else 0.0)
        for kind in range(num_types):
            plan.type_score[b, j, kind] = scores[(1 + kind) * shown + i] if i < shown else 0.0
    run_allocator(state, b, plan, config.allocators[0], physics)


@kernel
def _advance_to_decision(
    state: State, episode: Episode, b: int, config: ActionConfig, physics: Physics
) -> int:
    """Let time pass to the next decision, update the live jobs, and return the state of the episode."""
    cluster = state.clusters[b]
    while True:
        over = cluster.num_done == cluster.num_jobs
        late = cluster.now >= cluster.limit_seconds
        live = cluster.num_waiting + cluster.num_running > 0
        due = config.round_seconds == np.inf or is_round(cluster.now, config.round_seconds)
        if over or late or (live and due):
            _update_live_jobs(state, episode, b)
            return DONE if over else TRUNCATED if late else ONGOING
        if not advance(state, b, physics):
            return STALLED


@kernel
def _score_by_weights(episode: Episode, b: int, weights: Float32Vector, config: ActionConfig) -> None:
    """Write the scores of the live jobs from `weights` of their features."""
    scores, live, size = episode.scores[b], episode.num_live[b], NUM_JOB_FEATURES
    mean = 0.0
    for i in range(live):
        scores[i] = 0.0
        for k in range(len(weights)):
            scores[i] += config.scale * weights[k] * episode.features[b, i * size + config.weighted[k]]
        mean += scores[i] / live
    for i in range(live):
        scores[i] -= mean


@kernel
def _write_features(state: State, episode: Episode, b: int) -> None:
    """Write the features of the live jobs to `Episode.features`."""
    features = episode.features[b]
    features[: to_int(episode.num_live[b]) * NUM_JOB_FEATURES] = 0.0
    jobs, _ = take_rows(features, len(episode.left[b]), JobFeatures)
    write_predicted_seconds(state, episode, b, jobs)
    write_job_features(state, episode, b, jobs)


@implements(Decode)
def _decode(
    state: State,
    episode: Episode,
    b: int,
    has_action: bool,
    action: int,
    scores: Float32Vector,
    config: ActionConfig,
    physics: Physics,
    mask: BoolVector,
) -> int:
    weighted = len(config.weighted) > 0
    if has_action:
        if weighted:
            _score_by_weights(episode, b, scores, config)
        _allocate_by_scores(state, episode, b, episode.scores[b] if weighted else scores, config, physics)
        if not advance(state, b, physics):
            return STALLED
    end = _advance_to_decision(state, episode, b, config, physics)
    for i in range(len(mask)):
        mask[i] = weighted or i < episode.num_live[b]
    if weighted:
        _write_features(state, episode, b)
    if config.shows_estimates:
        estimate_seconds_left(state, b, episode.plan, config.allocators[0])
    return end


def with_utilities(episode: Episode, b: int, utilities: JobUtilities, memory: NDArray[np.float64]) -> Episode:
    """Return `episode` with `utilities` of cluster `b`'s jobs and the [jobs, numbers] estimate memory."""
    plan = with_capacity_for(episode.plan, utilities)
    write_utilities(plan, b, utilities)
    plan.estimate_memory[b] = 0.0
    plan.estimate_memory[b, : len(memory), : memory.shape[1]] = memory
    return episode if plan is episode.plan else replace(episode, plan=plan)


class AllocatorDriver:
    """The part of `ClusterBatch` that depends on `Scores` or `Weights`, which `decode` carries out.

    An allocation takes tens of microseconds, so that a thread has at least `min_per_thread` clusters.
    """

    decode = _decode
    min_per_thread = 2

    def __init__(self, actions: AllocatorActions, cluster: Cluster, plans: PlanTable | None = None) -> None:
        self._actions = actions
        rounds = np.inf if actions.round_seconds is None else actions.round_seconds
        self.config = ActionConfig(
            EMPTY_OPTIONS,
            allocators=(actions.allocator.config,),
            round_seconds=rounds,
            running_bonus=actions.running_bonus,
        )
        self._type_score_columns: list[int] = []
        self._class_tables: dict[str, Any] = {}
        if isinstance(actions, Weights):
            names = list(JobFeatures.__annotations__)
            columns = np.array([names.index(name) for name in actions.features])
            self.config = replace(self.config, weighted=columns, scale=actions.scale)
        elif isinstance(actions, Scores):
            types = {kind: column for column, kind in enumerate(actions.type_scores)}
            self._type_score_columns = [types.get(kind, -1) for kind in cluster.distinct_gpu_types]
            if plans is not None and types:
                numbers, speeds = zip(*map(plans.fastest_of, types), strict=True)  # of a GPU type: all 0
                tables = (np.ascontiguousarray(np.stack(one, axis=1)) for one in (numbers, speeds))
                self._class_tables = dict(zip(("class_plan", "class_speed"), tables, strict=True))

    def episode(self, state: State) -> Episode:
        """Create the arrays for the clusters of a `state`."""
        own, memory = self._actions, self._actions.allocator.estimate.memory
        if isinstance(own, Scores):
            plan = empty_allocation_plan(state, 0, memory, False, len(own.type_scores))
            if own.type_scores:
                # A cluster without GPU types has one column that no score belongs to.
                plan.type_score_columns[: len(self._type_score_columns)] = self._type_score_columns
            return empty_episode(state, num_scores=own.num_jobs, plan=replace(plan, **self._class_tables))
        jobs, plan = state.running.shape[1], empty_allocation_plan(state, 0, memory, False, 0)
        return empty_episode(state, num_scores=jobs, num_features=NUM_JOB_FEATURES, plan=plan)

    def replace_invalid(
        self, masks: NDArray[np.bool_], actions: NDArray[np.float32], clusters: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Raise an `ActionError` for the first number [B, numbers] that is NaN or not in [-1, 1]."""
        inside = np.abs(actions[clusters]) <= 1.0  # NaN is not
        row, i = np.argwhere(~inside)[0]
        what = "weight" if isinstance(self._actions, Weights) else "score"
        raise ActionError(
            f"{what} {i} of cluster {clusters[row]} is {actions[clusters[row], i]}; expected numbers from -1"
            " to 1, also for scores without a job: clip them, or squash them by tanh"
        )

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        """Return the allocations, in order, that the scores of a cluster lead to. Changes nothing."""
        tried, plan = copy_state(state), episode.plan
        notes = empty_allocation_plan(tried, 0, plan.estimate_memory.shape[2], True, plan.type_score.shape[2])
        kept: dict[str, Any] = {"estimate_memory": plan.estimate_memory.copy(), **self._class_tables}
        kept["type_score_columns"] = plan.type_score_columns
        notes = replace(with_utilities_of(notes, plan), **kept)
        own = replace(episode, plan=notes, scores=episode.scores.copy())
        scores = action
        if isinstance(self._actions, Weights):
            _score_by_weights(own, b, action, self.config)
            scores = own.scores[b]
        _allocate_by_scores(tried, own, b, scores, self.config, physics)
        return logged_moves(notes, tried, b)
