"""Tiresias with the Gittins index (Gu et al., NSDI 2019), for a known distribution of GPU time."""

import numpy as np
from numpy.typing import NDArray

from ringyard import Cluster, JobTable, Observability, PlacementRule
from ringyard.checks import Positive, checked
from ringyard.compiled import FloatVector, implements
from ringyard.state.progress import attained_service
from ringyard.state.records import Job, JobStatus
from ringyard_baselines.policies.preemptive import PreemptiveScheduler
from ringyard_baselines.policies.priority_rule import JobKey, KeyChanges, service_queue_key

_MAX_STEPS = 256


def gittins_index(attained: float, services: NDArray[np.float64], delta: float) -> float:
    """Pr(S - a <= delta | S > a) / E[min(S - a, delta) | S > a] in GPU seconds, 0 if no service exceeds a."""
    left = services[services > attained] - attained
    if not len(left):
        return 0.0
    return float((left <= delta).mean() / np.minimum(left, delta).mean())


@implements(JobKey)
def _gittins_key(job: Job, now: float, parameters: FloatVector) -> float:
    """Return the rank of the index (0: the highest) at the job's step of attained service, as a queue."""
    step = min(int(attained_service(job, now) / parameters[0]), len(parameters) - 2)
    return service_queue_key(job, int(parameters[1 + step]))


@implements(JobKey)
def _next_step(job: Job, now: float, parameters: FloatVector) -> float:
    """Return when a running job reaches its next step of attained service."""
    if job.status != JobStatus.RUNNING:
        return np.inf
    service = attained_service(job, now)
    step = int(service / parameters[0]) + 1
    if step > len(parameters) - 2:
        return np.inf
    return max(now + (step * parameters[0] - service) / job.num_gpus, now + 1e-6)


@checked("gittins")
class GittinsTiresias(PreemptiveScheduler):
    """Highest Gittins index of attained GPU time first, preemptive (Tiresias, Gu et al., NSDI 2019).

    FOUND (public code): the index, from the distribution of the jobs' GPU time, with delta = 3250 GPU
    seconds. The distribution is that of the workload itself, as in the public simulator, which reads it from
    the trace. Assumed: the index is looked up at multiples of delta, so that jobs between two multiples keep
    their rank. Within a rank running jobs stay ahead of waiting ones, as in `tiresias`.

    Args:
        placement: where jobs go.
        delta_gpu_seconds: service quantum in GPU seconds.
    """

    def __init__(self, placement: PlacementRule, delta_gpu_seconds: Positive = 3250.0) -> None:
        sees = Observability.SIZES | Observability.ATTAINED_SERVICE | Observability.DISTRIBUTION
        order = ("gittins", _gittins_key, np.array([delta_gpu_seconds, 0.0]), placement, sees)
        super().__init__(*order, wake=_next_step, key_changes=KeyChanges.AT_WAKES)
        self._delta = delta_gpu_seconds

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Learn the distribution of GPU time (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        super().reset(cluster, jobs, rng)
        services = jobs.gpu_seconds_distribution
        steps = int(min(np.ceil(services.max() / self._delta), _MAX_STEPS))
        index = np.array([gittins_index(i * self._delta, services, self._delta) for i in range(steps + 1)])
        ranks = np.unique(-index, return_inverse=True)[1].astype(np.float64)
        self.use_parameters(np.concatenate([[self._delta], ranks]))
