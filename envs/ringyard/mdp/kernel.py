"""The compiled step: act, let time pass until there is something to decide, reward, observe.

`how` is a `How`, `rate` a `ringyard.performance.model.Rate`.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import fixed_type, function_at, kernel
from ringyard.mdp.observations import OBSERVE
from ringyard.placement import PLACE
from ringyard.sim.engine import advance, start, stop
from ringyard.sim.queues import sort_ascending
from ringyard.sim.setup import load
from ringyard.sim.what_if import spanned_servers

__all__ = [
    "DONE",
    "STALLED",
    "TRUNCATED",
    "Bank",
    "How",
    "Outputs",
    "all_valid",
    "reset_batch",
    "settle_batch",
    "step_batch",
]

# what a step ended in
GOES_ON, DONE, TRUNCATED, STALLED = 0, 1, 2, 3


place_at = function_at(PLACE)
observe_at = function_at(OBSERVE)


class How(NamedTuple):
    """What every cluster of a batch shares.

    Attributes:
        rules: [T, 2] `CompiledFunction.addresses` of the placement functions.
        parameters: [T, ...] of each.
        observe: [1, 2] addresses of the observation writer.
        num_templates: T.
        num_running: R, visible running jobs.
        preemptive: whether stop actions exist.
    """

    rules: NDArray[np.int64]
    parameters: NDArray[np.float64]
    observe: NDArray[np.int64]
    num_templates: int
    num_running: int
    preemptive: bool


fixed_type(
    How,
    numba.types.int64[:, ::1],
    numba.types.float64[:, ::1],
    numba.types.int64[:, ::1],
    numba.types.int64,
    numba.types.int64,
    numba.types.boolean,
)


class Outputs(NamedTuple):
    """What steps write, one row per cluster; each step overwrites it.

    Attributes:
        observations: [clusters, size].
        masks: [clusters, actions] valid actions.
        rewards: [clusters] of the last step.
        returns: [clusters] undiscounted sum of the episode's rewards.
        lengths: [clusters] steps of the episode.
        ends: [clusters] GOES_ON, DONE, TRUNCATED or STALLED.
    """

    observations: NDArray[np.float32]
    masks: NDArray[np.bool_]
    rewards: NDArray[np.float64]
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    ends: NDArray[np.int64]


class Bank(NamedTuple):
    """Workloads ready to be loaded.

    Attributes:
        records: [entries, jobs] `ringyard.records.JOB` at time zero.
        static: [entries, jobs, STATIC_FEATURES].
        num_jobs: [entries].
        weights: [entries, Integral] of the reward.
    """

    records: NDArray[np.void]
    static: NDArray[np.float32]
    num_jobs: NDArray[np.int64]
    weights: NDArray[np.float64]


@kernel
def _look_at_templates(state: Any, episode: Any, b: int, how: Any, rate: Any) -> bool:
    """Ask every template for every visible job; whether any start is possible.

    Jobs of one demand class get the same GPUs, so that a rule is asked once per class.
    """
    num_templates = how.num_templates
    cluster = state.clusters[b]
    cluster.stamp += 1
    stamp = cluster.stamp
    possible = False
    visible = min(episode.template_gpus.shape[1], cluster.num_waiting)
    out = state.gpu_scratch[b]
    for i in range(visible):
        j = state.waiting[b, i]
        job = state.jobs[b, j]
        demand = job.demand_class
        known = state.class_stamp[b, demand] == stamp
        if not known:
            state.class_stamp[b, demand] = stamp
            episode.class_slot[b, demand] = i
        slot = episode.class_slot[b, demand]
        for t in range(num_templates):
            if known:
                episode.template_gpus[b, i, t] = episode.template_gpus[b, slot, t]
                episode.template_servers[b, i, t] = episode.template_servers[b, slot, t]
                episode.template_worst[b, i, t] = episode.template_worst[b, slot, t]
            else:
                count = 0
                if job.num_gpus <= cluster.free_gpus:
                    count = place_at(how.rules, t)(state, b, j, how.parameters[t], out)
                episode.template_gpus[b, i, t] = count
                if count > 0:
                    sort_ascending(out, count)
                    servers, worst = spanned_servers(state, b, j, out, count)
                    episode.template_servers[b, i, t] = servers
                    episode.template_worst[b, i, t] = worst
            if episode.template_gpus[b, i, t] > 0:
                possible = True
                job.num_servers = episode.template_servers[b, i, t]
                job.worst_link_jobs = episode.template_worst[b, i, t]
                seconds = rate.seconds(job, rate.parameters)
                episode.template_slowdown[b, i, t] = 1.0 - job.isolated_iteration_seconds / seconds
                job.num_servers = 0
                job.worst_link_jobs = 0
    return possible


@kernel
def _write_mask(state: Any, episode: Any, b: int, how: Any, mask: Any) -> bool:
    """Valid actions into `mask`; whether any start or stop is among them.

    A job that changed hands at this very moment is left alone until time passes, unless only starting it
    again makes time pass.
    """
    num_templates, num_running, preemptive = how.num_templates, how.num_running, how.preemptive
    cluster = state.clusters[b]
    time_can_pass = cluster.num_running > 0 or cluster.next_arrival < cluster.num_jobs
    mask[:] = False
    any_valid = False
    num_waiting = episode.template_gpus.shape[1]
    for i in range(min(num_waiting, cluster.num_waiting)):
        stopped_now = state.jobs[b, state.waiting[b, i]].last_stop_seconds == cluster.now
        if preemptive and stopped_now and time_can_pass:
            continue
        for t in range(num_templates):
            if episode.template_gpus[b, i, t] > 0:
                mask[i * num_templates + t] = True
                any_valid = True
    if preemptive and cluster.num_waiting > 0:
        for r in range(min(num_running, cluster.num_running)):
            if state.jobs[b, state.running[b, r]].last_start_seconds < cluster.now:
                mask[num_waiting * num_templates + r] = True
                any_valid = True
    mask[len(mask) - 1] = time_can_pass or not any_valid
    return any_valid


@kernel
def _settle(state: Any, episode: Any, b: int, how: Any, rate: Any, mask: Any) -> int:
    """Let time pass until there is a start or stop to choose, or the episode ends."""
    cluster = state.clusters[b]
    while True:
        if cluster.num_done == cluster.num_jobs:
            mask[:] = False
            mask[len(mask) - 1] = True
            return DONE
        if cluster.now >= cluster.limit_seconds:
            _look_at_templates(state, episode, b, how, rate)
            _write_mask(state, episode, b, how, mask)
            return TRUNCATED
        if cluster.num_waiting > 0 and (how.preemptive or cluster.free_gpus >= cluster.smallest_demand):
            _look_at_templates(state, episode, b, how, rate)
            if _write_mask(state, episode, b, how, mask):
                return GOES_ON
        if not advance(state, b, rate):
            return STALLED


@kernel
def _act(state: Any, episode: Any, b: int, action: int, how: Any, rate: Any) -> int:
    """Carry out a valid action; STALLED if it waits and nothing can happen."""
    num_templates = how.num_templates
    num_starts = episode.template_gpus.shape[1] * num_templates
    if action < num_starts:
        out = state.gpu_scratch[b]
        j = state.waiting[b, action // num_templates]
        t = action % num_templates
        count = place_at(how.rules, t)(state, b, j, how.parameters[t], out)
        start(state, b, j, out, count, rate)
    elif how.preemptive and action < num_starts + how.num_running:
        stop(state, b, state.running[b, action - num_starts], rate)
    elif not advance(state, b, rate):
        return STALLED
    return GOES_ON


@kernel
def _reward(state: Any, episode: Any, b: int) -> float:
    reward = 0.0
    for k in range(state.integrals.shape[1]):
        grown = state.integrals[b, k] - episode.last_integrals[b, k]
        reward += episode.reward_weights[b, k] * grown
        episode.last_integrals[b, k] = state.integrals[b, k]
    return reward


@kernel
def all_valid(masks: Any, actions: Any, clusters: Any) -> bool:
    """Whether the actions of the given clusters are in the space and not masked."""
    for b in clusters:
        action = actions[b]
        if action < 0 or action >= masks.shape[1] or not masks[b, action]:
            return False
    return True


@kernel
def step_batch(state: Any, episode: Any, clusters: Any, actions: Any, how: Any, rate: Any, out: Any) -> None:
    """One action in each of the given clusters; actions are valid.

    Args:
        state: simulation arrays.
        episode: decision-process arrays.
        clusters: [stepped] indices.
        actions: [clusters] read at those indices.
        how: shared settings.
        rate: performance model.
        out: `Outputs`, written at those indices.
    """
    observe = observe_at(how.observe, 0)
    for b in clusters:
        end = _act(state, episode, b, actions[b], how, rate)
        if end == GOES_ON:
            end = _settle(state, episode, b, how, rate, out.masks[b])
        out.ends[b] = end
        reward = _reward(state, episode, b)
        out.rewards[b] = reward
        out.returns[b] += reward
        out.lengths[b] += 1
        observe(state, episode, b, how.num_running, out.observations[b])


@kernel
def reset_batch(
    state: Any,
    episode: Any,
    clusters: Any,
    entries: Any,
    bank: Any,
    limit_seconds: float,
    how: Any,
    rate: Any,
    out: Any,
) -> None:
    """Load workload `entries[i]` of the bank into cluster `clusters[i]` and go to its first decision.

    Args:
        bank: workloads.
        limit_seconds: the window's end; inf: until all jobs are done.
        (others): as in `step_batch`.
    """
    observe = observe_at(how.observe, 0)
    for i in range(len(clusters)):
        b = clusters[i]
        entry = entries[i]
        count = bank.num_jobs[entry]
        load(state, b, bank.records[entry, :count], limit_seconds, entry)
        for j in range(count):
            for feature in range(bank.static.shape[2]):
                episode.static[b, j, feature] = bank.static[entry, j, feature]
        for k in range(bank.weights.shape[1]):
            episode.reward_weights[b, k] = bank.weights[entry, k]
        episode.last_integrals[b] = 0.0
        out.ends[b] = _settle(state, episode, b, how, rate, out.masks[b])
        out.returns[b] = 0.0
        out.lengths[b] = 0
        observe(state, episode, b, how.num_running, out.observations[b])


@kernel
def settle_batch(state: Any, episode: Any, how: Any, rate: Any, out: Any) -> None:
    """Go to the next decision of clusters that something else has set up; arguments as in `step_batch`."""
    observe = observe_at(how.observe, 0)
    for b in range(state.clusters.shape[0]):
        out.ends[b] = _settle(state, episode, b, how, rate, out.masks[b])
        observe(state, episode, b, how.num_running, out.observations[b])
