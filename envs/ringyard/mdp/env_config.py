"""The config of an environment, shared by `ClusterEnv`, `ClusterVectorEnv` and training."""

from dataclasses import dataclass, field

import numpy as np

from ringyard.checks import Positive, PositiveInt, Seed, checked
from ringyard.cluster import Cluster
from ringyard.fabric import interconnect, network
from ringyard.failures import Failures, no_failures
from ringyard.mdp.actions import ActionKind, Actions
from ringyard.mdp.observations import Observation, queue_and_cluster
from ringyard.mdp.rewards import Reward, job_completion_time
from ringyard.performance import PerformanceModel, composed
from ringyard.performance.ring import ADA_SRSF_ALPHA_10GBE
from ringyard.restart import RestartCost, constant
from ringyard.workloads import Arrivals, LogNormalDurations, ModelMix, Sizes, Synthetic, Workload


def ten_gigabit_rings() -> PerformanceModel:
    """Rings over 10GbE, NVLink inside servers: `conf/performance/ring_10gbe.yaml`.

    alpha is Ada-SRSF's eta / b; no reduction time and no overhead are assumptions.
    """
    return composed(network("ethernet_10g"), interconnect("nvlink_v100"), alpha=ADA_SRSF_ALPHA_10GBE)


def _default_workload() -> Workload:
    """Published 160-job size mix, log-normal durations of the Helios Venus fit, Poisson arrivals."""
    return Synthetic(
        num_jobs=100,
        sizes=Sizes({1: 80, 2: 14, 4: 26, 8: 30, 16: 8, 32: 2}),
        durations=LogNormalDurations(5.782, 2.597, 1.0, 172800.0),
        arrivals=Arrivals(),
        models=ModelMix(),
    )


@checked("config")
@dataclass(frozen=True)
class EnvConfig:
    """The config of an environment.

    Attributes:
        cluster: servers and GPUs.
        workload: draws each episode's jobs.
        performance: how fast jobs run.
        restart: cost of starting a stopped job again.
        failures: servers that fail and return.
        observation: what the agent sees.
        actions: what it can do: `Actions` or `Scores`.
        reward: of each step.
        limit_seconds: truncate the episode at this time; None: run until every job is done.
        num_workloads: number of different job tables of the episodes.
        workload_seed: of the job tables; training and evaluation take different ones.

    Raises:
        ConfigurationError: a part of another kind, or a number out of range.
    """

    cluster: Cluster = field(default_factory=lambda: Cluster.homogeneous(16, 4))
    workload: Workload = field(default_factory=_default_workload)
    performance: PerformanceModel = field(default_factory=ten_gigabit_rings)
    restart: RestartCost = field(default_factory=lambda: constant(0.0))
    failures: Failures = field(default_factory=no_failures)
    observation: Observation = field(default_factory=queue_and_cluster)
    actions: ActionKind = field(default_factory=Actions)
    reward: Reward = field(default_factory=job_completion_time)
    limit_seconds: Positive | None = None
    num_workloads: PositiveInt = 1024
    workload_seed: Seed = 0

    @property
    def horizon(self) -> float:
        """The end of the window in seconds, infinity without one."""
        return np.inf if self.limit_seconds is None else self.limit_seconds
