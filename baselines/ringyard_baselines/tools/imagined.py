"""What would come of the jobs that are there: simulations played on without what nobody may know."""

from dataclasses import replace

import numpy as np

from ringyard.compiled import FloatVector, kernel, linked_kernel
from ringyard.sim.allocator import Plan, Rules, allocate
from ringyard.sim.engine.events import advance
from ringyard.sim.engine.physics import Physics, iteration_seconds
from ringyard.sim.engine.present import copy_present
from ringyard.sim.engine.queues import heap_push
from ringyard.state.arrays import State, copy_state
from ringyard.state.progress import attained_service, run_seconds
from ringyard.state.records import Integral, JobOutcome, JobStatus, Losses, Segment

__all__ = ["REPAIR_SECONDS", "believe", "imagine", "play_on", "room_to_imagine"]

#: how long servers that are down stay so: assumption, the order of what clusters report
REPAIR_SECONDS = 1800.0

_RUNNING, _DONE = int(JobStatus.RUNNING), int(JobStatus.DONE)
_COMPLETED = int(JobOutcome.COMPLETED)
_JOBS = int(Integral.JOBS_IN_SYSTEM)


def room_to_imagine(state: State) -> State:
    """Arrays like those of a state, but for what is kept for people: timelines, segments, losses."""
    clusters = len(state.clusters)
    return replace(
        copy_state(state),
        timeline=np.zeros((clusters, 0, state.timeline.shape[2])),
        segments=Segment.zeros(clusters, 0),
        losses=Losses.zeros(clusters, 0),
        kernels_counted=np.zeros((clusters, 0)),
        fewest_servers=np.zeros(0, np.int32),
    )


@kernel
def _copy(state: State, b: int, copy: State) -> None:
    """The present of cluster b; rows of jobs still to arrive stay as they are, integrals begin anew."""
    copy_present(state, b, copy)
    for j in range(state.clusters[b].next_arrival):
        copy.jobs[b, j] = state.jobs[b, j]
    copy.integrals[b] = 0.0


@kernel
def _forget_servers(copy: State, b: int) -> None:
    """No server fails any more; those that are down come back."""
    cluster = copy.clusters[b]
    cluster.mean_up_seconds = np.inf
    cluster.next_change_seconds = np.inf
    for s in range(copy.servers.shape[1]):
        server = copy.servers[b, s]
        server.next_change_seconds = np.inf if server.up != 0 else cluster.now + REPAIR_SECONDS
        cluster.next_change_seconds = min(cluster.next_change_seconds, server.next_change_seconds)


@linked_kernel
def imagine(state: State, b: int, copy: State) -> None:
    """Copy cluster b as it is, without what lies ahead of it: nobody comes, fails, straggles or gives up.

    How much work jobs have left is still the truth, which `believe` replaces before time may pass.

    Args:
        state: the running simulation.
        b: cluster.
        copy: `room_to_imagine` of it.
    """
    _copy(state, b, copy)
    cluster = copy.clusters[b]
    cluster.num_jobs = cluster.next_arrival
    cluster.straggler_cv = 0.0
    cluster.wake_seconds = np.inf
    cluster.limit_seconds = np.inf
    cluster.next_cancel_seconds = np.inf
    cluster.steps_now = 0
    _forget_servers(copy, b)
    for j in range(cluster.next_arrival):
        job = copy.jobs[b, j]
        if job.status != _DONE:
            job.cancel_seconds = job.deadline_seconds
            job.predictable_from = np.inf
            job.outcome = _COMPLETED
            cluster.next_cancel_seconds = min(cluster.next_cancel_seconds, job.cancel_seconds)


@linked_kernel
def believe(copy: State, b: int, left: FloatVector, physics: Physics) -> None:
    """Give every live job as much work as it is thought to have.

    A job slowed by a straggler runs at full speed here, as one that starts later would: else a restart would
    look worth its while.

    Args:
        copy: what `imagine` made, at the same moment.
        b: cluster.
        left: [jobs] seconds that live jobs would still run alone as they ask.
        physics: performance model.
    """
    cluster = copy.clusters[b]
    cluster.num_running = 0
    cluster.may_be_late = 1
    for j in range(cluster.next_arrival):  # by row: the true ends have the heap in their order
        job = copy.jobs[b, j]
        if job.status == _DONE:
            continue
        if job.status == _RUNNING:
            job.attained_service = attained_service(job, cluster.now)
            job.run_seconds = run_seconds(job, cluster.now)
            job.synced_seconds = cluster.now
        job.remaining_iterations = left[j] / job.isolated_iteration_seconds
        job.prediction_factor = 1.0
        if job.status == _RUNNING:
            if job.straggler != 1.0:
                job.straggler = 1.0
                job.iteration_seconds = iteration_seconds(job, j, physics) / job.progress_per_iteration
            begin = max(cluster.now, job.progress_from_seconds)
            job.end_seconds = begin + job.remaining_iterations * job.iteration_seconds
            job.due_seconds = job.end_seconds
            heap_push(copy, b, j)


@linked_kernel
def play_on(copy: State, b: int, plan: Plan, rules: Rules, most: float, physics: Physics) -> float:
    """Let the allocator serve the jobs of cluster b until all are done; the sum of the seconds they take.

    Args:
        copy: an imagined simulation whose decision at this moment is carried out.
        b: cluster.
        plan: the allocator's notes, with the scores of its jobs.
        rules: of an `Allocator`.
        most: where it is no less, or a job would wait for ever, the answer is inf.
        physics: performance model.
    """
    cluster = copy.clusters[b]
    while cluster.num_done < cluster.num_jobs:
        if not advance(copy, b, physics) or copy.integrals[b, _JOBS] >= most:
            return np.inf
        allocate(copy, b, plan, rules, physics)
    return float(copy.integrals[b, _JOBS])
