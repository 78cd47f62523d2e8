"""Behaviour cloning of exact optima: small instances are solved, and a policy for larger ones is fitted."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import PositiveInt, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Actions
from ringyard.mdp.env_config import EnvConfig
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus
from ringyard.workloads import Synthetic
from ringyard_agents.learning.cloning import CloneTeacher, DemonstrationRecorder, QueueTeacher
from ringyard_agents.learning.episodes import EpisodeRunner

#: continues the first cluster of a batch alone, see `EpisodeRunner.continue_episodes`
_FIRST = np.array([np.inf])


def _lower_bounds(state: State, count: int) -> NDArray[np.float64]:
    """Return [count] lower bounds on the total JCT of the first clusters, seconds.

    It is the larger of two: all jobs alone from now on, and one pooled machine that takes the shortest
    remaining work first.
    """
    clusters, jobs = state.clusters[:count], state.jobs[:count, :-1]
    now, ended = clusters["now"][:, None], jobs["status"] == JobStatus.DONE
    ready = np.maximum(now, jobs["submit_seconds"])
    begin = np.where(jobs["status"] == JobStatus.RUNNING, jobs["updated_seconds"], ready)
    left = jobs["isolated_seconds"] * jobs["remaining_iterations"] / jobs["total_iterations"]
    alone = np.maximum(begin + left, ready)
    work = np.where(ended, 0.0, (alone - ready) * jobs["num_gpus"])
    pooled = np.sort(work, 1).cumsum(1).sum(1) / clusters["num_gpus"]
    pooled += np.where(ended, 0.0, now - jobs["submit_seconds"]).sum(1)
    isolated = np.where(ended, 0.0, alone - jobs["submit_seconds"]).sum(1)
    bounds: NDArray[np.float64] = clusters["total_jct"] + np.maximum(isolated, pooled)
    return bounds


def find_optimum(runner: EpisodeRunner, workload: int, first: QueueTeacher) -> list[int] | None:
    """Return the actions with the least mean JCT of an episode with a job table, by branch and bound.

    Jobs only start, by the template of `first`, on equal GPUs that they have alone. The policy `first` makes
    the first schedule. All open states of a depth are clusters of the `runner`. None: they are too many.
    """
    batch, best = runner.batch, list[int]()

    def act(observations: Any, masks: NDArray[np.bool_], clusters: Any) -> NDArray[np.int64]:
        best.append(int(first.act(observations, masks)[0]))
        return np.array(best[-1:])

    runner.reset(np.array([workload]))
    runner.continue_episodes(act, _FIRST)
    least = batch.state.clusters["total_jct"][0]
    runner.reset(np.array([workload]))
    live, steps = np.zeros(1, np.int64), []
    while len(live):
        rows, actions = np.nonzero(first.restrict(batch.masks[live]))
        count = len(rows)
        if count > batch.num_clusters:
            return None
        batch.copy_clusters(live[rows])
        batch.step(np.resize(actions, batch.num_clusters), np.arange(count))
        steps.append((live[rows], actions))
        totals, done = _lower_bounds(batch.state, count), batch.done[:count]
        ends = np.where(done, totals, np.inf)
        if ends.min() < least:
            least, child, best = ends.min(), ends.argmin(), []
            for parents, chosen in reversed(steps):
                best.insert(0, int(chosen[child]))
                child = parents[child]
        live = np.flatnonzero(~done & (totals < least * (1 - 1e-9)))
    return best


@dataclass
class _Replay:
    """A policy that repeats known actions of one cluster."""

    actions: list[int] = field(default_factory=list)
    flat: bool = False

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the next of the actions. Observations and masks are not read."""
        return np.array([self.actions.pop(0)])


@checked("agent.teacher")
@dataclass(frozen=True)
class CloneOptima(CloneTeacher):
    """Fits a network to exact optima of small instances of the environment, for the environment itself.

    Source: a policy that learns the behaviour of optimal algorithms on small graphs, for larger ones, as in
    RESPECT (Yin et al. 2023, arXiv 2304.04716), which schedules layers of networks on edge TPUs. Jobs on a
    cluster, branch and bound, and maximum likelihood are this project's.
    """

    #: function of the environment's actions that makes the policy of the first schedule of each search
    policy: Callable[[Actions], QueueTeacher]
    demonstration_steps: Annotated[int, "[0, 0]"] = 0  #: no steps in the environment itself
    num_jobs: PositiveInt = 6  #: jobs of a small instance, drawn as those of the environment
    num_servers: PositiveInt = 2  #: its servers, with as many GPUs as the environment's first server
    num_workloads: PositiveInt = 300  #: number of small instances
    max_states: PositiveInt = 4096  #: open states of a search. Instances that need more are left out.

    def recorder(self, config: EnvConfig) -> DemonstrationRecorder:
        """Return a recorder that holds the optima, or raise a ConfigurationError if there can be none."""
        actions, workload = config.actions, config.workload
        if not isinstance(actions, Actions) or actions.num_adjustments or not isinstance(workload, Synthetic):
            raise ConfigurationError(
                "agent.teacher searches optima of drawn jobs that only start; expected action=start and a"
                f" workload with num_jobs and load (workload=helios_like); got {actions} and {workload}"
            )
        first, replay = self.policy(actions), _Replay()
        cluster = Cluster.homogeneous(self.num_servers, config.cluster.gpus_per_server[0])
        jobs = replace(workload, num_jobs=self.num_jobs)
        small = replace(config, cluster=cluster, workload=jobs, num_workloads=self.num_workloads)
        runner, recorder = EpisodeRunner(small, self.max_states), DemonstrationRecorder(replay)
        for table in range(self.num_workloads):
            optimum = find_optimum(runner, table, first)
            if optimum is not None:
                replay.actions = optimum
                runner.reset(np.array([table]))
                runner.continue_episodes(recorder, _FIRST)
        return recorder
