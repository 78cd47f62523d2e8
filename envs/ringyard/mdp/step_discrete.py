"""The decoder and the driver of `Actions`: carry out a discrete action and write the next mask."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import BoolVector, Float32Vector, implements, kernel
from ringyard.errors import ActionError
from ringyard.mdp.actions import Actions
from ringyard.mdp.actions.moves import (
    Options,
    apply_option,
    decode_action,
    options_of,
    preview_option,
    propose_adjustment,
    propose_start,
    target_shape,
)
from ringyard.mdp.actions.space import PREEMPT, REJECT
from ringyard.mdp.episode import Episode, empty_episode, next_running
from ringyard.mdp.step import DONE, ONGOING, STALLED, TRUNCATED, ActionConfig, Decode
from ringyard.performance.model import Physics
from ringyard.placement.availability import sort_ascending
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.co_location import evaluate_placement, seconds_in_context
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.shape import set_asked_shape, set_shape
from ringyard.state.arrays import State, waiting_at
from ringyard.state.progress import relative_slowdown
from ringyard.state.records import JobKind, JobStatus


@kernel
def _evaluate_templates(state: State, episode: Episode, b: int, options: Options, physics: Physics) -> None:
    """Find GPUs and slowdown of visible jobs by template, once for each demand class, which gets the same."""
    cluster = state.clusters[b]
    cluster.visit_mark += 1
    visit_mark = cluster.visit_mark
    visible = min(episode.placement_contexts.shape[1], cluster.num_waiting)
    out = state.gpu_scratch[b]
    whole_only = cluster.jobs_per_gpu == 1
    for i in range(visible):
        j = waiting_at(state, b, i)
        job = state.jobs[b, j]
        demand = job.demand_class
        known = state.class_marks[b, demand] == visit_mark
        if not known:
            state.class_marks[b, demand] = visit_mark
            episode.class_slot[b, demand] = i
        slot = episode.class_slot[b, demand]
        for t in range(options.num_templates):
            found = episode.placement_contexts[b, i, t]
            if known:
                found = episode.placement_contexts[b, slot, t]
                episode.placement_contexts[b, i, t] = found
            elif whole_only and job.min_gpus > cluster.free_gpus and options.kinds[t] != REJECT:
                found.num_places = 0
            else:
                found.num_places = propose_start(state, b, j, options, t, out)
                if found.num_places > 0:
                    sort_ascending(out, found.num_places)
                    evaluate_placement(state, b, j, out, found.num_places, found)
                if options.scaled:
                    set_asked_shape(job)
            if found.num_places > 0:
                if options.scaled:
                    set_shape(job, target_shape(job, options, t))
                seconds = seconds_in_context(job, j, found, physics)
                slowdown = relative_slowdown(job.isolated_iteration_seconds, seconds)
                episode.template_slowdown[b, i, t] = slowdown
                if options.kinds[t] == REJECT:
                    episode.template_slowdown[b, i, t] = 1.0  # a rejected job never ends
                if options.scaled:
                    set_asked_shape(job)


@kernel
def _write_mask(state: State, episode: Episode, b: int, config: ActionConfig, mask: BoolVector) -> bool:
    """Write the valid actions into `mask`, and return whether any start or adjustment is valid.

    A job that changed at this moment waits until time passes, unless time can pass only if it starts.
    """
    options, cluster = config.options, state.clusters[b]
    num_templates, num_adjustments = options.num_templates, options.num_adjustments
    time_can_pass = cluster.num_running > 0 or cluster.next_arrival < cluster.num_jobs
    mask[:] = False
    any_valid = False
    num_waiting = episode.placement_contexts.shape[1]
    for i in range(min(num_waiting, cluster.num_waiting)):
        stopped_now = state.jobs[b, waiting_at(state, b, i)].last_stop_seconds == cluster.now
        if num_adjustments > 0 and stopped_now and time_can_pass:
            continue
        for t in range(num_templates):
            if episode.placement_contexts[b, i, t].num_places > 0:
                mask[i * num_templates + t] = True
                any_valid = True
    must_start = any_valid and not config.may_wait
    j = -1
    for r in range(min(config.num_running, cluster.num_running) if num_adjustments > 0 else 0):
        j = next_running(state, b, r, j)
        if state.jobs[b, j].last_start_seconds >= cluster.now:
            continue
        for a in range(num_adjustments):
            if options.kinds[num_templates + a] == PREEMPT:
                valid = cluster.num_waiting > 0
            else:
                valid = propose_adjustment(state, b, j, options, a, state.gpu_scratch[b]) > 0
            if valid:
                mask[num_waiting * num_templates + r * num_adjustments + a] = True
                any_valid = True
    mask[len(mask) - 1] = not any_valid or (time_can_pass and not must_start)
    return any_valid


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
    options, cluster = config.options, state.clusters[b]
    if has_action and action < len(mask) - 1:
        j, o = decode_action(state, b, options, episode.placement_contexts.shape[1], action)
        apply_option(state, b, j, options, o, physics)
    elif has_action and not advance(state, b, physics):
        return STALLED
    always = options.num_adjustments > 0 or not config.may_wait  # not only if a GPU is free
    while True:
        if cluster.num_done == cluster.num_jobs:
            mask[:] = False
            mask[len(mask) - 1] = True
            return DONE
        late = cluster.now >= cluster.limit_seconds
        if late or always or (cluster.num_waiting > 0 and cluster.free_gpus >= cluster.min_demand_gpus):
            _evaluate_templates(state, episode, b, options, physics)
            if _write_mask(state, episode, b, config, mask) or late:
                return TRUNCATED if late else ONGOING
        if not advance(state, b, physics):
            return STALLED


class DiscreteDriver:
    """The part of `ClusterBatch` that depends on discrete actions, which `decode` carries out.

    A step takes as long as a hand-over to a thread, so that a thread has at least `min_per_thread` clusters.
    """

    decode = _decode
    min_per_thread = 128

    def __init__(self, actions: Actions) -> None:
        self._actions = actions
        self.config = ActionConfig(options_of(actions), actions.num_running, actions.may_wait)

    def episode(self, state: State) -> Episode:
        """Create the arrays for the clusters of a `state`."""
        return empty_episode(state, self._actions.num_waiting, len(self._actions.starts))

    def replace_invalid(
        self, masks: NDArray[np.bool_], actions: NDArray[np.int64], clusters: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Replace masked actions [B] in place, and return where [clusters], or raise an ActionError."""
        chosen, wait = actions[clusters], self._actions.wait
        outside = (chosen < 0) | (chosen > wait)
        if outside.any():
            raise ActionError(
                f"action {chosen[outside.argmax()]} is outside Discrete({wait + 1})"
                f"; expected an integer from 0 to {wait}"
            )
        masked: NDArray[np.bool_] = ~masks[clusters, chosen]
        if self._actions.on_invalid == "raise":
            first = int(masked.argmax())
            raise ActionError(
                f"action {chosen[first]} is masked in cluster {clusters[first]}"
                "; choose one where action_masks() is True, or set on_invalid='wait'"
            )
        bad = clusters[masked]
        actions[bad] = np.where(masks[bad, wait], wait, masks[bad].argmax(axis=1))
        return masked

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        """Return the allocation of a valid action of a cluster, none if it waits. Changes nothing."""
        if action == self._actions.wait:
            return []
        options = self.config.options
        j, o = decode_action(state, b, options, self._actions.num_waiting, int(action))
        count, shape = preview_option(state, b, j, options, o)
        if count == 0:
            waits = state.jobs["status"][b, j] == JobStatus.WAITING
            return [Allocation(int(j), reject=bool(waits))]
        places, cores = tuple(sorted(map(int, state.gpu_scratch[b, :count]))), shape.cores_per_worker
        plan, share = shape.plan, shape.link_share
        if state.jobs["kind"][b, j] == JobKind.CPU_ONLY:
            cap = shape.memory_bandwidth_cap
            return [Allocation(int(j), (), cores, server=places[0], memory_bandwidth_cap=cap)]
        return [Allocation(int(j), places, cores, shape.batch_size, plan=plan, link_share=share)]
