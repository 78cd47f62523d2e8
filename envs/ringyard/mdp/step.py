"""The compiled step of a batch: a loop over clusters, in which a decoder carries out the actions."""

from dataclasses import field
from typing import Protocol

import numpy as np

from ringyard.allocator import AllocatorConfig
from ringyard.allocator.estimates import live_job, num_live
from ringyard.compiled import (
    BoolVector,
    Float32Matrix,
    Float32Vector,
    FloatVector,
    IntVector,
    bundle,
    error_message,
    function_address,
    interface,
    is_validated,
    kernel,
    prefetch,
    raise_plugin_error,
    to_int,
)
from ringyard.mdp.actions.moves import Options
from ringyard.mdp.episode import Episode, StepOutputs, WorkloadRows
from ringyard.mdp.observations.observation import Observe
from ringyard.performance.model import Physics
from ringyard.sim.engine.livelock import count_step
from ringyard.sim.engine.setup import load_jobs
from ringyard.state.arrays import State
from ringyard.state.progress import predicted_iterations
from ringyard.state.records import Integral, JobOutcome, JobStatus

#: largest absolute value in an observation
MAX_VALUE = 10.0
_OUT_OF_RANGE = error_message(
    "observation {function} wrote {got} at position {there:.0f} of its row; expected a value from"
    " -{expected:.0f} to {expected:.0f}"
)

#: least clusters to prefetch (fewer stay in the cache), most jobs of one, bytes of an array, bytes of a job
_PREFETCH_CLUSTERS, _PREFETCH_JOBS, _PREFETCH_BYTES, _JOB_BYTES = 128, 16, 4096, 192

# state of an episode after a step
ONGOING, DONE, TRUNCATED, STALLED = 0, 1, 2, 3
# phases of `step`: carry out an action, load a job table, or go on from the present state
STEP, BEGIN, RESUME = 0, 1, 2


@bundle
class ActionConfig:
    """Parameters of a decoder, equal in all clusters of a batch."""

    options: Options  #: templates and adjustments of discrete actions, empty with scores
    num_running: int = 0  #: R, visible running jobs
    may_wait: bool = True  #: whether waiting is valid while a job can start
    #: configuration of the allocator of scores, empty with discrete actions
    allocators: tuple[AllocatorConfig, ...] = ()
    round_seconds: float = np.inf  #: seconds between score actions. inf: one at every event.
    #: [weights] positions in `JobFeatures` of the features that weights are for
    weighted: IntVector = field(default_factory=lambda: np.zeros(0, np.int64))
    scale: float = 1.0  #: factor of the weights
    running_bonus: float = 0.0  #: added to the scores of running jobs
    shows_estimates: bool = False  #: whether observations show the allocator's estimates


@interface
class Decode(Protocol):
    """Interface of a compiled function that carries out an action and advances to the next decision."""

    def __call__(
        self,
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
        """Return ONGOING, DONE, TRUNCATED or STALLED; write valid actions, or scores with a job, to `mask`.

        Before the first action, `has_action` is False and only time passes. `action` is the number of a valid
        one, `scores` [(1 + GPU types scored) x N] in [-1, 1].
        """


@bundle
class StepConfig:
    """Parameters of `step`, equal in all clusters of a batch."""

    decode: Decode  #: carries out actions
    actions: ActionConfig  #: parameters of `decode`
    observe: Observe  #: writes observations
    parameters: FloatVector  #: [parameters] numbers that `observe` reads
    physics: Physics  #: performance model
    limit_seconds: float  #: time at which new episodes are truncated, or inf
    discount: float  #: `Reward.shaping`, below 0 without shaping


@kernel
def all_valid(out: StepOutputs, clusters: IntVector, actions: IntVector, scores: Float32Matrix) -> bool:
    """Return whether all `clusters` are in an episode and their actions or scores are valid."""
    wrong = 0
    for b in clusters:
        wrong += not out.active_mask[b]
        for score in scores[b]:
            wrong += not -1.0 <= score <= 1.0  # NaN is not
        if scores.shape[1] == 0:
            wrong += not (0 <= actions[b] < out.masks.shape[1] and out.masks[b, actions[b]])
    return wrong == 0


@kernel
def _begin(state: State, episode: Episode, b: int, row: int, rows: WorkloadRows, limit: float) -> None:
    """Load the job table in `row` into cluster `b` at its beginning, to be truncated at `limit`."""
    count = rows.num_jobs[row]
    load_jobs(state, b, rows.records[row, :count], limit, rows.seeds[row])
    for j in range(count):
        episode.static[b, j] = rows.static[row, j]
    for s in range(rows.weights.shape[1]):
        for k in range(rows.weights.shape[2]):
            episode.weights[b, s, k] = rows.weights[row, s, k]
    for j in range(rows.due_seconds.shape[1]):
        episode.due_seconds[b, j] = rows.due_seconds[row, j]
    episode.num_late[b] = 0.0
    episode.last_integrals[b] = 0.0
    episode.num_live[b] = 0
    episode.num_arrived[b] = 0


@kernel
def _slowdown(state: State, b: int) -> float:
    """Return the sum of JCT / isolated run time over the jobs that have ended and were not blocked."""
    total = 0.0
    for j in state.ended[b, : state.clusters[b].num_done]:
        job = state.jobs[b, j]
        if job.outcome != JobOutcome.BLOCKED:
            total += (job.end_seconds - job.submit_seconds) / job.isolated_seconds
    return total


@kernel
def _potential(state: State, episode: Episode, b: int) -> float:
    """Return Phi of `Reward.shaping` in the present state."""
    left = 0.0
    for i in range(num_live(state, b)):
        job = state.jobs[b, live_job(state, b, i)]
        left += predicted_iterations(job, state.clusters[b].now) * job.isolated_iteration_seconds
    return left * episode.weights[b, 0, Integral.JOBS_IN_SYSTEM.value]


@kernel
def _num_late(state: State, episode: Episode, b: int) -> float:
    """Return the number of jobs that are or ended behind `due_seconds`, or were blocked and had some."""
    due, late = episode.due_seconds[b], 0.0
    for j in range(min(state.clusters[b].next_arrival, len(due))):
        job = state.jobs[b, j]
        end = job.end_seconds if job.status == JobStatus.DONE else state.clusters[b].now
        late += due[j] < (np.inf if job.outcome == JobOutcome.BLOCKED else end)
    return late


@kernel
def _write_rewards(state: State, episode: Episode, out: StepOutputs, b: int, discount: float) -> None:
    """Write the reward of a step, shaped unless `discount` is below 0, its parts and the cost."""
    late, last = _num_late(state, episode, b), state.integrals.shape[1]
    for s in range(episode.weights.shape[1]):
        weights = episode.weights[b, s]
        signal = weights[last] * (late - episode.num_late[b])
        for k in range(last):
            signal += weights[k] * (state.integrals[b, k] - episode.last_integrals[b, k])
        if s == 0:
            out.rewards[b] = signal
        elif s <= out.parts.shape[1]:
            out.parts[b, s - 1] = signal
        else:
            out.costs[b] = signal
    episode.num_late[b] = late
    for k in range(last):
        episode.last_integrals[b, k] = state.integrals[b, k]
    if discount >= 0.0:
        before = episode.potential[b]
        episode.potential[b] = _potential(state, episode, b)
        out.rewards[b] += discount * episode.potential[b] - before


@kernel
def _check_row(row: Float32Vector, function: int) -> None:
    """Raise an error for the first value of an observation that `function` wrote out of range."""
    outside = 0
    for value in row:
        outside += not -MAX_VALUE <= value <= MAX_VALUE
    if outside == 0:
        return
    for i in range(len(row)):
        if not -MAX_VALUE <= row[i] <= MAX_VALUE:
            raise_plugin_error(_OUT_OF_RANGE, function, 0, row[i], MAX_VALUE, i)


@kernel
def _prefetch_arrays(state: State, episode: Episode, out: StepOutputs, b: int) -> None:
    """Start to load what a step of cluster `b` reads and writes, but for its jobs."""
    prefetch(state.clusters[b], _PREFETCH_BYTES)
    prefetch(state.servers[b], _PREFETCH_BYTES)
    prefetch(state.slots[b], _PREFETCH_BYTES)
    prefetch(state.gpus[b], _PREFETCH_BYTES)
    prefetch(state.links[b], _PREFETCH_BYTES)
    prefetch(state.waiting[b], _PREFETCH_BYTES)
    prefetch(state.running[b], 4 * _PREFETCH_JOBS)
    prefetch(episode.placement_contexts[b], _PREFETCH_BYTES)
    prefetch(out.observations[b], _PREFETCH_BYTES)


@kernel
def _prefetch_jobs(state: State, b: int) -> None:
    """Start to load the first running, waiting and arriving jobs of cluster `b`, after its arrays."""
    cluster = state.clusters[b]
    for i in range(min(cluster.num_running, _PREFETCH_JOBS)):
        prefetch(state.jobs[b, state.running[b, i]], _JOB_BYTES)
    for i in range(min(cluster.num_waiting, _PREFETCH_JOBS)):
        prefetch(state.jobs[b, max(state.waiting[b, cluster.first_waiting + i], 0)], _JOB_BYTES)
    prefetch(state.jobs[b, cluster.next_arrival], _JOB_BYTES)


@kernel
def step(
    state: State,
    episode: Episode,
    out: StepOutputs,
    phase: int,
    actions: IntVector,
    scores: Float32Matrix,
    rows: WorkloadRows,
    workload_rows: IntVector,
    config: StepConfig,
    clusters: IntVector,
) -> int:
    """Advance the given clusters to their next decision.

    Args:
        state: simulation arrays.
        episode: arrays of the decision process.
        out: output: results, written at the given indices.
        phase: STEP carries out a valid action, BEGIN loads a job table, RESUME goes on as it is.
        actions: [clusters] discrete actions.
        scores: [clusters, scores] score actions, [clusters, 0] with discrete actions.
        rows: job tables.
        workload_rows: [clusters] row of the job table that each cluster begins.
        config: parameters.
        clusters: [stepped] indices.

    Returns:
        Number of STALLED clusters.
    """
    stalled = 0
    has_action = phase == STEP
    for i, b in enumerate(clusters):
        if has_action and len(clusters) >= _PREFETCH_CLUSTERS and i + 2 < len(clusters):
            _prefetch_arrays(state, episode, out, clusters[i + 2])
            _prefetch_jobs(state, clusters[i + 1])
        end = ONGOING
        if has_action:
            end = to_int(out.ends[b])  # an episode may end before its first action
            if end == ONGOING and not count_step(state, b, state.clusters[b].now):
                end = STALLED
        elif phase == BEGIN:
            _begin(state, episode, b, workload_rows[b], rows, config.limit_seconds)
            out.returns[b] = out.costs[b] = 0.0
            out.lengths[b] = 0
        if end == ONGOING:
            action, scored, mask = actions[b], scores[b], out.masks[b]
            physics = config.physics
            end = config.decode(state, episode, b, has_action, action, scored, config.actions, physics, mask)
        out.ends[b] = end
        out.done[b] = end == DONE
        out.truncated[b] = end == TRUNCATED
        out.active_mask[b] = end == ONGOING or (not has_action and end != STALLED)
        out.num_finished[b] = state.clusters[b].num_done
        served = out.num_finished[b] - state.integrals[b, Integral.BLOCKED_JOBS.value]
        out.episode_jct[b] = state.clusters[b].total_jct / max(served, 1.0)
        out.episode_slowdown[b] = 0.0
        out.episode_preemptions[b] = state.clusters[b].num_preemptions
        if end != ONGOING:
            out.episode_slowdown[b] = _slowdown(state, b) / served if served > 0.0 else np.nan
            out.episode_jct[b] = out.episode_jct[b] if served > 0.0 else np.nan
        if has_action:
            _write_rewards(state, episode, out, b, config.discount)
            out.returns[b] += out.rewards[b]
            out.lengths[b] += 1
        elif config.discount >= 0.0:
            episode.potential[b] = _potential(state, episode, b)
        seen = out.observations[b]
        config.observe(state, episode, b, config.actions.num_running, config.parameters, seen)
        if is_validated(config.observe):
            _check_row(seen, function_address(config.observe))
        stalled += end == STALLED
    return stalled
