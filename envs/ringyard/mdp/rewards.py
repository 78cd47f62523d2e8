"""Rewards of the environments: the growth of a time integral in a step, normalised by the job table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.checks import Fraction, checked, require, validate_array
from ringyard.cluster import Cluster
from ringyard.compiled import Records1
from ringyard.errors import ConfigurationError
from ringyard.observability import Observability
from ringyard.state.records import INTEGRALS, Integral, Job

#: function of (job records, cluster) that returns the reward per unit of the integral
Normaliser = Callable[[Records1[Job], Cluster], float]


@checked("reward")
@dataclass(frozen=True)
class Reward:
    """The growth of one time integral since the last step, times a weight that is constant in an episode."""

    integral: Integral  #: one of `ringyard.state.records.Integral`
    #: function of the episode's job records [jobs] and the cluster. Returns the reward per unit.
    weight: Normaliser
    metric: str = "mean_jct"  #: field of `Metrics` that evaluations in a training minimise
    #: whether the reward is the difference from that of an episode with equal scores in the same time
    saved: bool = False
    #: None: no shaping. Else gamma, the discount of the learner: each step adds gamma Phi(s') - Phi(s), which
    #: changes no optimal policy (Ng, Harada and Russell 1999). Phi is the predicted isolated seconds left of
    #: all live jobs times the weight. It is 0 when all jobs have ended, and not at a truncation.
    shaping: Fraction | None = None
    #: components of a vector reward, which has the metric of the first. (): the reward is a number
    parts: "tuple[Reward, ...]" = ()

    @property
    def space(self) -> spaces.Box:
        """Space of the rewards of a step: one number, or one for each of `parts` [parts]."""
        return spaces.Box(-np.inf, np.inf, (len(self.parts),) if self.parts else (), np.float64)

    def check(self, known: Observability) -> None:
        """Raise a ConfigurationError if `shaping` needs run times that an agent does not have `known`."""
        hidden = not known & (Observability.PREDICTIONS | Observability.DURATIONS)
        if self.shaping is not None and (hidden or self.integral != Integral.JOBS_IN_SYSTEM):
            raise ConfigurationError(
                f"reward.shaping is {self.shaping}; expected null, or reward=jct or total_jct, and run times"
                " in the observation (live_jobs) or the actions"
            )

    def weights(self, episodes: Sequence[Records1[Job]], cluster: Cluster) -> NDArray[np.float64]:
        """Return the reward per unit of each integral in each episode [episodes, Integral], of all `parts`.

        Args:
            episodes: job records [jobs] of each episode.
            cluster: servers and GPUs.

        Raises:
            PluginError: `weight` returned no finite number.
            ConfigurationError: `shaping` with a job that is not predictable when it arrives.
        """
        if self.shaping is not None and any((jobs["predictable_from"] > 0).any() for jobs in episodes):
            raise ConfigurationError(
                f"reward.shaping is {self.shaping}, and some jobs arrive unpredictable; expected null"
            )
        if self.parts:
            return np.asarray(sum(part.weights(episodes, cluster) for part in self.parts))
        weights = np.zeros((len(episodes), INTEGRALS))
        found = [self.weight(jobs, cluster) for jobs in episodes]
        weights[:, self.integral] = validate_array(found, len(found), self.weight, "weight")
        return weights


def _per_total_run_time(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0 / float(jobs["isolated_seconds"].sum())


def _per_mean_run_time(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0 / float(jobs["isolated_seconds"].mean())


def _per_job(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0 / len(jobs)


def _unscaled(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0


def _per_least_makespan(jobs: Records1[Job], cluster: Cluster) -> float:
    work = float((jobs["isolated_seconds"] * jobs["num_gpus"]).sum())
    latest = float((jobs["submit_seconds"] + jobs["isolated_seconds"]).max())
    return -1.0 / max(work / cluster.num_gpus, latest)


def _per_mean_run_time_of_the_cluster(jobs: Records1[Job], cluster: Cluster) -> float:
    return -1.0 / (cluster.num_gpus * float(jobs["isolated_seconds"].mean()))


def job_completion_time(shaping: Fraction | None = None) -> Reward:
    """Create the reward with the undiscounted return minus (mean JCT / mean isolated run time).

    Each step costs the integral of the number of jobs in the system, over the jobs' total isolated run time.
    `shaping` is that of `Reward`.
    """
    return Reward(Integral.JOBS_IN_SYSTEM, _per_total_run_time, shaping=shaping)


def total_job_completion_time(shaping: Fraction | None = None) -> Reward:
    """Create the reward with the undiscounted return minus (total JCT / mean isolated run time).

    It is `job_completion_time` times the number of jobs: of order one a step, as learners expect.
    """
    return Reward(Integral.JOBS_IN_SYSTEM, _per_mean_run_time, shaping=shaping)


def saved_job_completion_time() -> Reward:
    """Create the reward with the return (total JCT with equal scores - total JCT) / mean isolated run time.

    A second cluster plays the same jobs with all scores equal, and its reward of the same time is subtracted
    from `total_job_completion_time`. What a workload costs anyway cancels out, so that learners see what
    their actions change. Without discounting the best policy is the same. Between decisions of the second
    cluster its reward is interpolated. Only for actions that are scores or weights.

    Source: input-dependent baselines (Mao et al. 2019, "Variance reduction for reinforcement learning in
    input-driven environments"); the baseline policy is this project's.
    """
    return Reward(Integral.JOBS_IN_SYSTEM, _per_mean_run_time, saved=True)


def slowdown() -> Reward:
    """Create the reward with the undiscounted return minus the mean slowdown (JCT / isolated run time).

    Each step costs the integral of the sum over jobs in the system of 1 / isolated run time, over the jobs.
    """
    return Reward(Integral.INVERSE_DURATION_IN_SYSTEM, _per_job, "mean_slowdown")


def makespan() -> Reward:
    """Create the reward with the undiscounted return minus (makespan / a lower bound of it).

    The bound is the larger of total GPU seconds / GPUs and the last submission + isolated run time.
    """
    return Reward(Integral.ELAPSED, _per_least_makespan, "makespan")


def utilisation() -> Reward:
    """Create the reward minus the integral of free GPUs while jobs wait, over (GPUs x mean run time).

    Counting busy GPUs would reward slow placements, which keep GPUs busy for longer. For the same reason
    evaluations in a training minimise the mean queueing time.
    """
    return Reward(Integral.FREE_GPUS_WITH_QUEUE, _per_mean_run_time_of_the_cluster, "mean_queueing")


def blocking() -> Reward:
    """Create the reward with the undiscounted return minus the share of blocked jobs (PAC-ML)."""
    return Reward(Integral.BLOCKED_JOBS, _per_job, "blocking_rate")


def fairness() -> Reward:
    """Create the reward with the undiscounted return minus the mean finish-time fairness rho (Themis).

    The rho of a job (`ringyard.sim.metrics.JobTimes`) counts when the job ends. Jobs that have not ended at
    `limit_seconds` cost nothing.
    """
    return Reward(Integral.FAIRNESS, _per_job, "mean_fairness")


def worst_fairness() -> Reward:
    """Create the reward with the undiscounted return minus the largest finish-time fairness rho (Themis)."""
    return Reward(Integral.WORST_FAIRNESS, _unscaled, "worst_fairness")


#: {name of a reward, as in `conf/reward`: function that creates it}, without that of a second cluster
_PARTS = {"jct": job_completion_time, "total_jct": total_job_completion_time, "slowdown": slowdown}
_PARTS |= {"makespan": makespan, "utilisation": utilisation, "blocking": blocking}
_PARTS |= {"fairness": fairness, "worst_fairness": worst_fairness}


@checked("reward")
def vector(names: Annotated[Sequence[str], "not empty"] = ("jct", "worst_fairness", "makespan")) -> Reward:
    """Create a vector reward [names] for multi-objective learners, by the conventions of MO-Gymnasium.

    Environments return an array and have a `reward_space`. Learners of `ringyard train` get the sum of the
    components, and evaluations in a training minimise the metric of the first.

    Args:
        names: of the rewards in `conf/reward` that are components, all but `saved_jct` and `vector`.
    """
    for name in names:
        require("reward.names", name, Literal[tuple(_PARTS)])
    parts = tuple(_PARTS[name]() for name in names)
    return replace(parts[0], parts=parts)
