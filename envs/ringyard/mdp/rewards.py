"""Rewards: minus or plus the growth of time integrals, counts and sums, normalised by the workload."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.plugin_checks import validate_array
from ringyard.state.records import INTEGRALS, Integral, Job

#: (job records, cluster) -> reward per unit of the integral
Normaliser = Callable[[Records1[Job], Cluster], float]


@checked("reward")
@dataclass(frozen=True)
class Reward:
    """The growth of one time integral since the last step, times a weight fixed per episode.

    Attributes:
        integral: what is rewarded or punished.
        weight: of the episode's job records and the cluster.
        metric: the field of `Metrics` by which agents trained with it are judged; less is better.
    """

    integral: Integral
    weight: Normaliser
    metric: str = "mean_jct"

    def weights(self, episodes: Sequence[Records1[Job]], cluster: Cluster) -> NDArray[np.float64]:
        """[episodes, Integral] reward per unit of growth of each integral, by each one's job records.

        Raises:
            PluginError: `weight` returned no finite number.
        """
        weights = np.zeros((len(episodes), INTEGRALS))
        found = [self.weight(jobs, cluster) for jobs in episodes]
        weights[:, self.integral] = validate_array(found, len(found), self.weight, "weight")
        return weights


def _per_total_run_time(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0 / float(jobs["isolated_seconds"].sum())


def _per_job(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0 / len(jobs)


def _as_it_is(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0


def _per_least_makespan(jobs: Records1[Job], cluster: Cluster) -> float:
    work = float((jobs["isolated_seconds"] * jobs["num_gpus"]).sum())
    latest = float((jobs["submit_seconds"] + jobs["isolated_seconds"]).max())
    return -1.0 / max(work / cluster.num_gpus, latest)


def _per_mean_run_time_of_the_cluster(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0 / (cluster.num_gpus * float(jobs["isolated_seconds"].mean()))


def job_completion_time() -> Reward:
    """Minus the jobs in the system, integrated: the undiscounted return is minus the total JCT.

    Normalised by the jobs' total isolated run time: the return is minus (mean JCT / mean run time).
    """
    return Reward(Integral.JOBS_IN_SYSTEM, _per_total_run_time)


def slowdown() -> Reward:
    """Minus the sum of 1 / run time of the jobs in the system, integrated: minus the mean slowdown."""
    return Reward(Integral.INVERSE_DURATION_IN_SYSTEM, _per_job, "mean_slowdown")


def makespan() -> Reward:
    """Minus the time passed, over the least possible makespan (total work / GPUs, or the latest end)."""
    return Reward(Integral.ELAPSED, _per_least_makespan, "makespan")


def utilisation() -> Reward:
    """Minus the GPUs left free while jobs wait, over the cluster's GPUs and the mean run time.

    Busy GPUs alone would reward slow placements, which keep GPUs busy longer; for the same reason agents are
    judged by their mean queueing.
    """
    return Reward(Integral.FREE_GPUS_WITH_QUEUE, _per_mean_run_time_of_the_cluster, "mean_queueing")


def blocking() -> Reward:
    """Minus the jobs blocked, over all jobs: the return is minus the blocking rate (PAC-ML)."""
    return Reward(Integral.BLOCKED_JOBS, _per_job, "blocking_rate")


def fairness() -> Reward:
    """Minus the sum of finish-time fairness, over all jobs: minus the mean rho (Themis).

    A job's rho (`ringyard.sim.metrics.JobTimes`) counts when it ends: jobs that `limit_seconds` cuts off cost
    nothing.
    """
    return Reward(Integral.FAIRNESS, _per_job, "mean_fairness")


def worst_fairness() -> Reward:
    """Minus the growth of the largest finish-time fairness of any job: minus the worst rho (Themis)."""
    return Reward(Integral.WORST_FAIRNESS, _as_it_is, "worst_fairness")
