"""A trained policy as a scheduler, on any cluster."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor

from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.mdp.bank import QUEUE_TAKES, queue_priority
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.setting import Setting
from ringyard.performance import PerformanceModel
from ringyard.sim.allocation import Allocation
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView, live
from ringyard.state.arrays import State, copy_state
from ringyard_agents.checkpoint import find_checkpoint, load_model

__all__ = ["AgentScheduler", "favourite_actions", "load_agent"]


def favourite_actions(model: OnPolicyAlgorithm, batch: ClusterBatch, masks: Any) -> Any:
    """[clusters] the policy's most likely valid actions.

    Shapes are not compared with those of training: a pointer policy runs on any cluster.
    """
    observations = obs_as_tensor(batch.split(batch.observations), model.device)
    with torch.no_grad():
        if isinstance(model, MaskablePPO):
            distribution: Any = model.policy.get_distribution(observations, action_masks=masks)
        else:
            distribution = model.policy.get_distribution(observations)
        return distribution.mode().cpu().numpy().astype(np.int64)


class AgentScheduler:
    """Starts (and stops) jobs as a trained policy says, taking its most likely action.

    Args:
        model: the trained algorithm.
        observation: what it sees.
        actions: what it can do.
    """

    name = "ppo"
    round_seconds: float | None = None

    def __init__(self, model: OnPolicyAlgorithm, observation: Any, actions: Any) -> None:
        torch.set_num_threads(1)
        self.model = model
        self.model.policy.set_training_mode(False)
        self.observation = observation
        self.actions = actions
        self.information = observation.knows | QUEUE_TAKES[actions.queue_order]
        self._cluster = Cluster((1,))

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Note the cluster."""
        self._cluster = cluster

    def drive(self, sim: Simulator) -> None:
        """Simulate until every job has finished."""
        records = sim.state.jobs[0, : len(sim.jobs)]
        sim.prioritise(queue_priority(self.actions.queue_order, records))
        batch = self._attach(sim.state, sim.performance)
        while not batch.done[0]:
            batch.step(self._choose(batch))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """What the policy does until it waits, tried out on a copy of the simulation."""
        now, _, _, performance = live(view)
        state = copy_state(now)
        rows = view.waiting
        priority = queue_priority(self.actions.queue_order, state.jobs[0, :-1])
        state.jobs["priority"][0, : len(priority)] = priority
        state.waiting[0, : len(rows)] = rows[np.lexsort((rows, priority[rows]))]
        events = state.clusters["num_decisions"][0]
        allocations: list[Allocation] = []
        batch = self._attach(state, performance)
        while not batch.done[0] and state.clusters["num_decisions"][0] == events:
            action = self._choose(batch)
            if action[0] == self.actions.wait:
                break
            allocations.append(batch.allocation(0, int(action[0])))
            batch.step(action)
        return allocations

    def _attach(self, state: State, performance: PerformanceModel) -> ClusterBatch:
        setting = Setting(
            cluster=self._cluster,
            performance=performance,
            observation=self.observation,
            actions=self.actions,
            num_workloads=1,
        )
        batch = ClusterBatch(setting, 1, state=state)
        batch.settle()
        return batch

    def _choose(self, batch: ClusterBatch) -> Any:
        action = favourite_actions(self.model, batch, batch.masks)
        batch.valid(action, np.array([0]))
        return action


def load_agent(checkpoint: str | None = None) -> AgentScheduler:
    """The agent of a checkpoint.

    Args:
        checkpoint: an agent.zip, its run folder, or None for the newest under runs/.

    Raises:
        CheckpointError: there is none, or it cannot be read.
    """
    model, observation, actions = load_model(find_checkpoint(checkpoint))
    # a policy without masks may propose what is masked: it waits then
    return AgentScheduler(model, observation, replace(actions, on_invalid="wait"))
