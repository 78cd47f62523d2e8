"""`EnvConfig`: the configuration of `ClusterEnv`, `ClusterVectorEnv` and training."""

from dataclasses import dataclass, field

from ringyard.checks import Positive, PositiveInt, Seed, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.fabric import interconnect, network
from ringyard.failures import Failures, no_failures
from ringyard.mdp.actions import ActionKind, Actions, AllocatorActions
from ringyard.mdp.costs import Cost
from ringyard.mdp.observations import Observation, queue_and_cluster
from ringyard.mdp.rewards import Reward, job_completion_time
from ringyard.performance import PerformanceModel, composite
from ringyard.performance.ring import ADA_SRSF_ALPHA_10GBE
from ringyard.restart import RestartCost, constant
from ringyard.workloads import Arrivals, LogNormalDurations, ModelMix, Sizes, Synthetic, Workload


def ten_gigabit_rings() -> PerformanceModel:
    """Return the model of ring all-reduces over 10GbE and NVLink, `conf/performance/ring_10gbe.yaml`.

    alpha is Ada-SRSF's eta / b. Assumptions: no reduction time and no overhead.
    """
    return composite(network("ethernet_10g"), interconnect("nvlink_v100"), alpha=ADA_SRSF_ALPHA_10GBE)


def _default_workload() -> Workload:
    """Return 100 jobs of the published 160-job size mix, Helios Venus' durations and Poisson arrivals."""
    return Synthetic(
        num_jobs=100,
        sizes=Sizes({1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}),
        durations=LogNormalDurations(5.782, 2.597, 1.0, 172800.0),
        arrivals=Arrivals(),
        models=ModelMix(),
    )


@checked("EnvConfig")
@dataclass(frozen=True)
class EnvConfig:
    """Configuration of an environment. `dataclasses.replace` changes parts of it.

    Attributes:
        cluster: servers, GPUs and links.
        workload: generator or trace that gives the job table of each episode.
        performance: model of the seconds per iteration of a job on given GPUs.
        restart: pauses of jobs that restart, migrate or change.
        failures: times to failure and repair of servers.
        observation: what the agent sees.
        actions: what the agent can do: `Actions` (start, adjust or wait) or `Scores` (rank the jobs).
        reward: of each step.
        cost: of each step, which a constrained learner keeps below a limit. None: `info` has no cost.
        limit_seconds: simulated time at which episodes are truncated. None: episodes end with the last job.
        num_workloads: number of different job tables, from which `reset` draws.
        workload_seed: of the job tables. Training and evaluation use different ones.

    Raises:
        ConfigurationError: a part of another type, a number out of range, a reward that compares with equal
            scores where actions are none, or `shaping` by run times that the agent may not see.
    """

    cluster: Cluster = field(default_factory=lambda: Cluster.homogeneous(16, 4))
    workload: Workload = field(default_factory=_default_workload)
    performance: PerformanceModel = field(default_factory=ten_gigabit_rings)
    restart: RestartCost = field(default_factory=lambda: constant(0.0))
    failures: Failures = field(default_factory=no_failures)
    observation: Observation = field(default_factory=queue_and_cluster)
    actions: ActionKind = field(default_factory=Actions)
    reward: Reward = field(default_factory=job_completion_time)
    cost: Cost | None = None
    limit_seconds: Positive | None = None
    num_workloads: PositiveInt = 1024
    workload_seed: Seed = 0

    def __post_init__(self) -> None:
        if self.reward.saved and not isinstance(self.actions, AllocatorActions):
            raise ConfigurationError(
                f"reward=saved_jct compares with equal scores, got {type(self.actions).__name__}; expected"
                " actions that are scores or weights (form=jobs or form=weights), or reward=total_jct"
            )
        self.reward.check(self.observation.observability | self.actions.observability)
