"""A trained policy as a scheduler, on any cluster."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ringyard.allocator import Rates
from ringyard.checks import Amount, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.mdp.actions import ActionKind, Actions, Adjustment, Scores, Template
from ringyard.mdp.bank import QUEUE_TAKES, queue_priority
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations.observation import Observation
from ringyard.performance import PerformanceModel
from ringyard.sim.allocation import Allocation
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State, copy_state, waiting_rows
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.learning.agent_file import find_checkpoint, load_policy
from ringyard_agents.learning.learner import Policy
from ringyard_agents.learning.score_networks import ScorePolicy
from ringyard_baselines.policies import allocating
from ringyard_baselines.scheduler import Powers, Scheduler

__all__ = ["AgentScheduler", "load_agent", "powers_of"]

#: live jobs that an agent scores at most, those that came first: attention among more takes 0.2 s a decision
_MOST_SCORED = 4096


def powers_of(actions: ActionKind) -> Powers:
    """What an agent with these actions may do: with scores, what the allocator does."""
    if isinstance(actions, Scores):
        return allocating.powers_of(actions.allocator)
    assert isinstance(actions, Actions)
    may = Powers.STARTS
    if actions.preemptive or any(one.placement is not None for one in actions.adjustments):
        may |= Powers.STOPS
    options: tuple[Template | Adjustment, ...] = (*actions.starts, *actions.adjustments)
    for one in options:
        if one.gpu_factor != 1.0 or one.batch_factor != 1.0:
            may |= Powers.RESIZES
        if one.core_factor != 1.0 or getattr(one, "bandwidth_cap", None) is not None:
            may |= Powers.CORES
    return may


class AgentScheduler(Scheduler):
    """Starts, stops and changes jobs as a trained policy says, taking its favourite action.

    Args:
        policy: says what to do.
        observation: what it sees.
        actions: what it can do; an action that is masked waits. A network that scores any number of jobs
            scores all that are live, up to 4,096, however many its training showed.
        name: shown in tables.
    """

    published = False

    def __init__(
        self, policy: Policy, observation: Observation, actions: ActionKind, name: str = "agent"
    ) -> None:
        self.name = name
        self.information = observation.knows | QUEUE_TAKES[actions.queue_order] | actions.takes
        self.may = powers_of(actions)
        self.policy = policy
        self.observation = replace(observation, flat=policy.flat)
        self.actions = actions.refusing(False)
        self.round_seconds = actions.round_seconds
        self._played = self.actions
        self._cluster = Cluster((1,))
        self._rates: Rates | None = None

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Note the cluster and how many jobs there are, forget the speeds of jobs."""
        if isinstance(self.actions, Scores) and isinstance(self.policy, ScorePolicy):
            self._played = replace(self.actions, num_jobs=min(max(len(jobs), 1), _MOST_SCORED))
        self._cluster = cluster
        self._rates = None

    def act(self, observation: Any, mask: Any) -> Any:
        """What to do in an environment whose spaces are those of its training (`load` can check them).

        Args:
            observation: as the environment gives it: of one cluster, or of many in arrays with one more axis.
            mask: `info["action_mask"]`: [actions], or [clusters, actions].

        Returns:
            An action for `step`: a number, or [(1 + T) N] scores (`Scores`); of many clusters an array.

        Raises:
            CheckpointError: observations or masks of other shapes.
        """
        masks = np.asarray(mask, np.bool_)
        if masks.ndim == 2:
            return self.policy.act(observation, masks)
        if isinstance(observation, dict):
            many: Any = {name: block[None] for name, block in observation.items()}
        else:
            many = np.asarray(observation)[None]
        return self.policy.act(many, masks[None])[0]

    def drive(self, sim: Simulator) -> None:
        """Simulate until every job has finished."""
        records = sim.state.jobs[0, : len(sim.jobs)]
        sim.prioritise(queue_priority(self.actions.queue_order, records))
        batch = self._attach(sim.state, sim.performance)
        while not batch.done[0]:
            batch.step(self._choose(batch))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """What the policy does until it waits or time passes, tried out on a copy of the simulation."""
        now, _, _, performance = live(view)
        state = copy_state(now)
        rows = view.waiting
        priority = queue_priority(self.actions.queue_order, state.jobs[0, :-1])
        state.jobs["priority"][0, : len(priority)] = priority
        waiting_rows(state, 0)[:] = rows[np.lexsort((rows, priority[rows]))]
        events = state.clusters["num_decisions"][0]
        allocations: list[Allocation] = []
        batch = self._attach(state, performance)
        while not batch.done[0] and state.clusters["num_decisions"][0] == events:
            action = self._choose(batch)
            given = batch.allocations(0, action[0])
            if not given:
                break
            allocations += given
            batch.step(action)
        return allocations

    def _attach(self, state: State, performance: PerformanceModel) -> ClusterBatch:
        setting = EnvConfig(
            cluster=self._cluster,
            performance=performance,
            observation=self.observation,
            actions=self._played,
            num_workloads=1,
        )
        batch = ClusterBatch(setting, 1, state=state)
        self._rates = self._rates or batch.bank.rates_of(state.jobs[0, : state.clusters["num_jobs"][0]])
        batch.settle(self._rates)
        return batch

    def _choose(self, batch: ClusterBatch) -> Any:
        action = self.policy.act(batch.split(batch.observations), batch.masks)
        batch.valid(action, np.array([0]))
        return action


def _priced(actions: ActionKind, stop_price: float, name: str) -> ActionKind:
    """Scores whose allocator counts stops as that."""
    if not isinstance(actions, Scores):
        raise ConfigurationError(
            f"{name} has stop_price: {stop_price}, and chooses one of several actions; expected"
            " stop_price: null, or an agent that scores jobs (action=scores)"
        )
    if actions.allocator.starts is not None:
        raise ConfigurationError(
            f"{name} has stop_price: {stop_price}, and stops no job (action=scores_start); expected"
            " stop_price: null"
        )
    return replace(actions, allocator=replace(actions.allocator, stop_price=stop_price))


@checked("scheduler")
def load_agent(
    checkpoint: str | None = None,
    name: str = "agent",
    trust: Trust = (),
    stop_price: Amount | None = None,
) -> AgentScheduler:
    """The agent of a checkpoint.

    Args:
        checkpoint: an agent.safetensors, its run folder, zoo:NAME, or None for the newest under runs/.
        name: shown in tables.
        trust: full names of classes of yours that the agent may name; True: of anybody's.
        stop_price: of its allocator (`ringyard.allocator.Allocator`), in place of what it learnt with.

    Raises:
        CheckpointError: there is none, it cannot be read, or it names classes that are neither Ringyard's nor
            trusted.
        ConfigurationError: an argument of another kind, or an agent without scores that shall count stops.
    """
    policy, observation, actions = load_policy(find_checkpoint(checkpoint), trust)
    if stop_price is not None:
        actions = _priced(actions, stop_price, name)
    return AgentScheduler(policy, observation, actions, name)
