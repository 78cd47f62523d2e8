"""Behaviour cloning: fit a network to a heuristic's decisions, or to optima, before learning starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.utils import obs_as_tensor

from ringyard.checks import Positive, PositiveInt, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Actions
from ringyard.mdp.env_config import EnvConfig
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus
from ringyard.workloads import Synthetic
from ringyard_agents.learning.episodes import EpisodeRunner, concatenate_rows, index_rows
from ringyard_agents.learning.learner import Policy


class QueueTeacher:
    """A policy that starts the first visible job that fits, and waits if none does.

    With `Actions.queue_order` "duration" this is shortest job first, with "work" smallest work first.

    Args:
        actions: actions of the environment.
        templates: names of action templates. The first that the environment has places all jobs.

    Raises:
        ConfigurationError: the environment has none of them.
    """

    flat: bool = False

    def __init__(self, actions: Actions, templates: Sequence[str]) -> None:
        names = [template.name for template in actions.starts]
        available = [name for name in templates if name in names]
        if not available:
            raise ConfigurationError(
                f"the teacher's templates are {', '.join(templates)}; the environment has"
                f" {', '.join(names)} (agent.teacher.policy.templates=[...], agent.recorded.templates=[...])"
            )
        self.actions = actions
        self.template = names.index(available[0])

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return [clusters] actions. Only the `masks` [clusters, actions] are read, not `observations`."""
        wait, num_templates = self.actions.wait, len(self.actions.starts)
        starts = masks[:, self.template : self.actions.num_starts : num_templates]
        chosen = starts.argmax(axis=1) * num_templates + self.template
        waits = np.where(masks[:, wait], wait, masks.argmax(axis=1))
        return np.where(starts.any(axis=1), chosen, waits)


class DemonstrationRecorder:
    """Acts as a policy does, and records the decisions among several valid actions."""

    def __init__(self, act: Callable[[Any, NDArray[np.bool_]], NDArray[np.int64]]) -> None:
        self._act = act
        self._records: list[tuple[Any, NDArray[np.bool_], NDArray[np.int64]]] = []

    def __call__(self, observations: Any, masks: NDArray[np.bool_], clusters: Any = None) -> Any:
        """Return [clusters] actions, see `EpisodeRunner.continue_episodes`."""
        actions = self._act(observations, masks)
        rows = np.flatnonzero(masks.sum(axis=1) > 1)
        self._records.append((index_rows(observations, rows), masks[rows], actions[rows]))
        return actions

    def demonstrations(self) -> tuple[Any, NDArray[np.bool_], NDArray[np.int64]]:
        """Return (observations, masks, actions) of all recorded decisions, each [decisions, ...]."""
        if not any(len(actions) for *_, actions in self._records):
            raise ConfigurationError("agent.teacher recorded no decision among several; expected more jobs")
        observations, masks, actions = map(concatenate_rows, zip(*self._records, strict=True))
        return observations, masks, actions


@checked("agent.teacher")
@dataclass(frozen=True)
class CloneTeacher:
    """Fits a network to the decisions of a teacher policy by maximum likelihood (behaviour cloning)."""

    policy: Callable[[Actions], Policy]  #: function of the actions that makes the teacher policy
    demonstration_steps: PositiveInt = 300  #: steps of the teacher in each cluster
    gradient_steps: PositiveInt = 300  #: gradient steps of the fit
    batch_size: PositiveInt = 512  #: decisions per gradient step
    learning_rate: Positive = 1e-3  #: learning rate of Adam

    def recorder(self, config: EnvConfig) -> DemonstrationRecorder:
        """Return a recorder of the teacher, for this environment."""
        assert isinstance(config.actions, Actions)  # `adapt_env_config` has checked it
        return DemonstrationRecorder(self.policy(config.actions).act)

    def fit(
        self, network: MaskableActorCriticPolicy, recorder: DemonstrationRecorder, seed: int
    ) -> dict[str, float]:
        """Fit the network to the teacher's recorded decisions, and return {TensorBoard tag: value}.

        `imitation/accuracy` is the fraction of decisions for which the network prefers the same action.
        """
        decisions = recorder.demonstrations()
        network.set_training_mode(True)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        rng = np.random.default_rng(seed)
        count = len(decisions[2])
        for _ in range(self.gradient_steps):
            rows = rng.integers(count, size=self.batch_size)
            loss = -_log_prob(network, decisions, rows)[0].mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            _, correct = _log_prob(network, decisions, rng.integers(count, size=4096))
        return {"imitation/accuracy": float(correct.float().mean()), "imitation/decisions": float(count)}


def _log_prob(
    network: MaskableActorCriticPolicy, decisions: tuple[Any, Any, Any], rows: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ([rows] log probability of the teacher's action, [rows] True if it is the most likely one)."""
    observations, masks, actions = decisions
    tensors = obs_as_tensor(index_rows(observations, rows), network.device)
    teacher_actions = torch.as_tensor(actions[rows], device=network.device)
    distribution = network.get_distribution(tensors, action_masks=masks[rows])
    return distribution.log_prob(teacher_actions), distribution.mode() == teacher_actions


def _lower_bounds(state: State, count: int) -> NDArray[np.float64]:
    """Return [count] lower bounds on total JCT, seconds, by jobs that run alone or on one pooled machine."""
    clusters, jobs = state.clusters[:count], np.asarray(state.jobs)[:count, :-1]
    now, ended = clusters["now"][:, None], jobs["status"] == JobStatus.DONE
    ready = np.maximum(now, jobs["submit_seconds"])
    begin = np.where(jobs["status"] == JobStatus.RUNNING, jobs["updated_seconds"], ready)
    left = jobs["isolated_seconds"] * jobs["remaining_iterations"] / jobs["total_iterations"]
    alone = np.maximum(begin + left, ready)
    work = np.where(ended, 0.0, (alone - ready) * jobs["num_gpus"])
    pooled = np.sort(work, 1).cumsum(1).sum(1) / clusters["num_gpus"]
    pooled += np.where(ended, 0.0, now - jobs["submit_seconds"]).sum(1)
    isolated = np.where(ended, 0.0, alone - jobs["submit_seconds"]).sum(1)
    return np.asarray(clusters["total_jct"] + np.maximum(isolated, pooled))


def find_optimum(runner: EpisodeRunner, workload: int, first: QueueTeacher) -> list[int]:
    """Return the actions with the least mean JCT of an episode with a job table, by branch and bound.

    Jobs only start, by the template of `first`, on equal GPUs that they have alone. The policy `first` gives
    an upper bound. Open states are clusters of the `runner`. An empty list: there are too many.
    """
    batch, tables, number = runner.batch, np.array([workload]), np.arange(runner.batch.masks.shape[1])
    allowed = (number % len(first.actions.starts) == first.template) | (number >= first.actions.num_starts)
    runner.reset(tables)
    runner.continue_episodes(lambda blocks, masks, clusters: first.act(blocks, masks), num_clusters=1)
    least = batch.state.clusters["total_jct"][0] * (1 + 1e-6)  # ties are found anew
    runner.reset(tables)
    live, steps, best = np.zeros(1, np.int64), [], list[int]()
    while len(live):
        rows, actions = np.nonzero(batch.masks[live] & allowed)
        count = len(rows)
        if count > batch.num_clusters:
            return []
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


@checked("agent.teacher")
@dataclass(frozen=True)
class CloneOptima(CloneTeacher):
    """Fits a network to exact optima of small instances of the environment, for the environment itself.

    Source: a policy that learns the behaviour of optimal algorithms on small graphs, for larger ones, as in
    RESPECT (Yin et al. 2023, arXiv 2304.04716). Jobs, search and likelihood are this project's.
    """

    #: function of the environment's actions that makes the policy of the upper bounds, and the template
    policy: Callable[[Actions], QueueTeacher]
    demonstration_steps: Annotated[int, "[0, 0]"] = 0  #: no steps in the environment itself
    num_jobs: PositiveInt = 6  #: jobs of a small instance, drawn as those of the environment
    num_servers: PositiveInt = 2  #: its servers, with as many GPUs as the environment's first server
    num_workloads: PositiveInt = 300  #: number of small instances
    max_states: PositiveInt = 4096  #: open states of a search. Instances that need more are left out.

    def recorder(self, config: EnvConfig) -> DemonstrationRecorder:
        """Return a recorder that holds the optima, or raise a ConfigurationError if there can be none."""
        actions, jobs = config.actions, config.workload
        if not isinstance(actions, Actions) or actions.num_adjustments or not isinstance(jobs, Synthetic):
            raise ConfigurationError(
                "agent.teacher searches optima of drawn jobs that only start; expected action=start and a"
                f" workload that draws each job, not {type(actions).__name__} and {type(jobs).__name__}"
            )
        cluster = Cluster.homogeneous(self.num_servers, config.cluster.gpus_per_server[0])
        jobs = replace(jobs, num_jobs=self.num_jobs)
        small = replace(config, cluster=cluster, workload=jobs, limit_seconds=None)
        small = replace(small, num_workloads=self.num_workloads)
        runner, first, left = EpisodeRunner(small, self.max_states), self.policy(actions), list[int]()
        recorder = DemonstrationRecorder(lambda blocks, masks: np.array([left.pop(0)]))
        for table in range(self.num_workloads):
            left += find_optimum(runner, table, first)
            if left:
                runner.reset(np.array([table]))
                runner.continue_episodes(recorder, num_clusters=1)
        return recorder
