"""The compiled step of `Actions`: one of several is carried out, then time passes to the next choice."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import Rates
from ringyard.compiled import BoolMatrix, BoolVector, IntVector, bundle, kernel
from ringyard.errors import ActionError
from ringyard.mdp.actions import Actions
from ringyard.mdp.actions.moves import (
    Options,
    adjust,
    describe,
    options_of,
    propose_adjustment,
    propose_start,
    set_template_shape,
    start_by,
)
from ringyard.mdp.actions.space import REJECT, STOP
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
from ringyard.mdp.positions import next_running, running_at
from ringyard.performance.model import Physics
from ringyard.placement.room import sort_ascending
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.co_location import evaluate_placement, seconds_in
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.livelock import count_step
from ringyard.sim.engine.shape import ask
from ringyard.state.arrays import State, waiting_at
from ringyard.state.progress import slowdown
from ringyard.state.records import JobKind, JobStatus

__all__ = ["DiscreteDriver"]


@bundle
class DiscreteConfig:
    """What every cluster of a batch shares.

    Attributes:
        options: what actions can do.
        num_running: R, visible running jobs.
        sight: what agents see.
    """

    options: Options
    num_running: int
    sight: Sight


@kernel
def _look_at_templates(
    state: State, episode: Episode, b: int, config: DiscreteConfig, physics: Physics
) -> bool:
    """Ask every template for every visible job; whether any start is possible.

    Jobs of one demand class get the same GPUs, so that a rule is asked once per class.
    """
    options = config.options
    cluster = state.clusters[b]
    cluster.stamp += 1
    stamp = cluster.stamp
    possible = False
    visible = min(episode.looks.shape[1], cluster.num_waiting)
    out = state.gpu_scratch[b]
    whole_only = cluster.jobs_per_gpu == 1
    for i in range(visible):
        j = waiting_at(state, b, i)
        job = state.jobs[b, j]
        demand = job.demand_class
        known = state.class_stamp[b, demand] == stamp
        if not known:
            state.class_stamp[b, demand] = stamp
            episode.class_slot[b, demand] = i
        slot = episode.class_slot[b, demand]
        for t in range(options.num_templates):
            found = episode.looks[b, i, t]
            if known:
                found = episode.looks[b, slot, t]
                episode.looks[b, i, t] = found
            elif whole_only and job.min_gpus > cluster.free_gpus and options.kinds[t] != REJECT:
                found.num_places = 0
            else:
                found.num_places = propose_start(state, b, j, options, t, out)
                if found.num_places > 0:
                    sort_ascending(out, found.num_places)
                    evaluate_placement(state, b, j, out, found.num_places, found)
                if options.scaled:
                    ask(job)
            if found.num_places > 0:
                possible = True
                if options.scaled:
                    set_template_shape(job, options, t)
                seconds = seconds_in(job, j, found, physics)
                episode.template_slowdown[b, i, t] = slowdown(job.isolated_iteration_seconds, seconds)
                if options.kinds[t] == REJECT:
                    episode.template_slowdown[b, i, t] = 1.0  # it will never end
                if options.scaled:
                    ask(job)
    return possible


@kernel
def _look_at_adjustments(state: State, b: int, config: DiscreteConfig, mask: BoolVector) -> bool:
    """Mark the possible changes of visible running jobs in their part of the mask; whether there are any."""
    options = config.options
    cluster = state.clusters[b]
    out = state.gpu_scratch[b]
    any_valid = False
    j = -1
    for r in range(min(config.num_running, cluster.num_running)):
        j = next_running(state, b, r, j)
        if state.jobs[b, j].last_start_seconds >= cluster.now:
            continue
        for a in range(options.num_adjustments):
            if options.kinds[options.num_templates + a] == STOP:
                valid = cluster.num_waiting > 0
            else:
                valid = propose_adjustment(state, b, j, options, a, out) > 0
            if valid:
                mask[r * options.num_adjustments + a] = True
                any_valid = True
    return any_valid


@kernel
def _write_mask(state: State, episode: Episode, b: int, config: DiscreteConfig, mask: BoolVector) -> bool:
    """Valid actions into `mask`; whether any start or change is among them.

    A job that changed hands at this very moment is left alone until time passes, unless only starting it
    again makes time pass.
    """
    options = config.options
    num_templates = options.num_templates
    cluster = state.clusters[b]
    time_can_pass = cluster.num_running > 0 or cluster.next_arrival < cluster.num_jobs
    mask[:] = False
    any_valid = False
    num_waiting = episode.looks.shape[1]
    for i in range(min(num_waiting, cluster.num_waiting)):
        stopped_now = state.jobs[b, waiting_at(state, b, i)].last_stop_seconds == cluster.now
        if options.num_adjustments > 0 and stopped_now and time_can_pass:
            continue
        for t in range(num_templates):
            if episode.looks[b, i, t].num_places > 0:
                mask[i * num_templates + t] = True
                any_valid = True
    if options.num_adjustments > 0:
        if _look_at_adjustments(state, b, config, mask[num_waiting * num_templates :]):
            any_valid = True
    mask[len(mask) - 1] = time_can_pass or not any_valid
    return any_valid


@kernel
def _settle(
    state: State, episode: Episode, b: int, config: DiscreteConfig, physics: Physics, mask: BoolVector
) -> int:
    """Let time pass until there is a start or change to choose, or the episode ends."""
    cluster = state.clusters[b]
    changes = config.options.num_adjustments > 0
    while True:
        if cluster.num_done == cluster.num_jobs:
            mask[:] = False
            mask[len(mask) - 1] = True
            return DONE
        if cluster.now >= cluster.limit_seconds:
            _look_at_templates(state, episode, b, config, physics)
            _write_mask(state, episode, b, config, mask)
            return TRUNCATED
        if changes or (cluster.num_waiting > 0 and cluster.free_gpus >= cluster.smallest_demand):
            _look_at_templates(state, episode, b, config, physics)
            if _write_mask(state, episode, b, config, mask):
                return GOES_ON
        if not advance(state, b, physics):
            return STALLED


@kernel
def _act(
    state: State, episode: Episode, b: int, action: int, config: DiscreteConfig, physics: Physics
) -> int:
    """Carry out a valid action; STALLED if it waits and nothing can happen, or if time stands still."""
    options = config.options
    if not count_step(state, b, state.clusters[b].now):
        return STALLED
    num_starts = episode.looks.shape[1] * options.num_templates
    change = action - num_starts
    if change < 0:
        j = waiting_at(state, b, action // options.num_templates)
        start_by(state, b, j, options, action % options.num_templates, physics)
    elif change < config.num_running * options.num_adjustments:
        j = running_at(state, b, change // options.num_adjustments)
        adjust(state, b, j, options, change % options.num_adjustments, physics)
    elif not advance(state, b, physics):
        return STALLED
    return GOES_ON


@kernel
def all_valid(masks: BoolMatrix, playing: BoolVector, actions: IntVector, clusters: IntVector) -> bool:
    """Whether the given clusters are in an episode and their actions in the space and not masked."""
    for b in clusters:
        action = actions[b]
        if not playing[b] or action < 0 or action >= masks.shape[1] or not masks[b, action]:
            return False
    return True


@kernel
def step_discrete(
    state: State,
    episode: Episode,
    clusters: IntVector,
    phase: int,
    rows: IntVector,
    actions: IntVector,
    bank: Bank,
    limit_seconds: float,
    config: DiscreteConfig,
    physics: Physics,
    out: Outputs,
) -> int:
    """Bring each of the given clusters to its next choice; how many are STALLED. One kernel, compiled once.

    Args:
        state: simulation arrays.
        episode: decision-process arrays.
        clusters: [stepped] indices.
        phase: STEP: by one valid action each; BEGIN: from the start of a workload; SETTLE: from where
            something else has put it.
        rows: [clusters] of the bank, read at those indices.
        actions: [clusters], read at those indices.
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


class DiscreteDriver:
    """Drives `Actions`. A step takes microseconds, as handing clusters to a thread does."""

    kernel = step_discrete
    all_valid = all_valid
    least_per_thread = 128

    def __init__(self, setting: EnvConfig, actions: Actions) -> None:
        self._actions = actions
        observation = setting.observation
        sight = Sight(observation.write, observation.parameters, actions.num_running)
        self.config = DiscreteConfig(options_of(actions), actions.num_running, sight)

    def episode(self, state: State) -> Episode:
        """Arrays for the clusters of a state."""
        return empty_episode(state, self._actions.num_waiting, len(self._actions.starts))

    def null_actions(self, num_clusters: int) -> NDArray[np.int64]:
        """[num_clusters, ...] actions that are not read."""
        return np.zeros(num_clusters, np.int64)

    def replace_invalid(
        self, masks: NDArray[np.bool_], actions: NDArray[np.int64], clusters: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """[clusters] replace masked actions in place, if the config says so; which were masked.

        Raises:
            ActionError: an action outside the space, or a masked one with on_invalid "raise".
        """
        chosen = actions[clusters]
        num_actions = masks.shape[1]
        if chosen.min() < 0 or chosen.max() >= num_actions:
            wrong = chosen[(chosen < 0) | (chosen >= num_actions)][0]
            raise ActionError(f"action {wrong} is outside Discrete({num_actions})")
        masked: NDArray[np.bool_] = ~masks[clusters, chosen]
        if self._actions.on_invalid == "raise":
            first = int(np.flatnonzero(masked)[0])
            raise ActionError(
                f"action {chosen[first]} is masked in cluster {clusters[first]}; choose one where"
                " action_masks() is True, or set on_invalid='wait'"
            )
        wait = self._actions.wait
        bad = clusters[masked]
        actions[bad] = np.where(masks[bad, wait], wait, masks[bad].argmax(axis=1))
        return masked

    def with_rates(self, episode: Episode, b: int, rates: Rates | None) -> Episode:
        """The episode of which cluster b has the jobs with these rates."""
        return episode

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        """What an action of cluster b gives to jobs, in order; nothing is carried out."""
        if action == self._actions.wait:
            return []
        j, count, shape = describe(state, b, self.config.options, self._actions.num_waiting, int(action))
        if count == 0:
            waits = state.jobs["status"][b, j] == JobStatus.WAITING
            return [Allocation(int(j), reject=bool(waits))]
        places = tuple(sorted(int(one) for one in state.gpu_scratch[b, :count]))
        if state.jobs["kind"][b, j] == JobKind.CPU_ONLY:
            cap = shape.memory_bandwidth_cap
            cores = shape.cores_per_worker
            return [Allocation(int(j), (), cores, server=places[0], memory_bandwidth_cap=cap)]
        return [Allocation(int(j), places, shape.cores_per_worker, shape.batch_size)]
