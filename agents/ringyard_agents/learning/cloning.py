"""Behaviour cloning: fit a network to the decisions of a heuristic before learning starts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.utils import obs_as_tensor

from ringyard.checks import Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Actions
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.episodes import concatenate_rows, index_rows
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
                f" {', '.join(names)} (agent.teacher.policy.templates=[...])"
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

    def restrict(self, masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return `masks` [clusters, actions] without the other templates, unless nothing else is valid."""
        own = np.arange(masks.shape[1])
        own = masks & ((own % len(self.actions.starts) == self.template) | (own >= self.actions.num_starts))
        return np.where(own.any(axis=1, keepdims=True), own, masks)


class DemonstrationRecorder:
    """Acts by a policy, and records its decisions among several valid actions."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._records: list[tuple[Any, NDArray[np.bool_], NDArray[np.int64]]] = []

    def __call__(self, observations: Any, masks: NDArray[np.bool_], clusters: Any = None) -> Any:
        """Return [clusters] actions, see `EpisodeRunner.continue_episodes`."""
        actions = self._policy.act(observations, masks)
        rows = np.flatnonzero(masks.sum(axis=1) > 1)
        self._records.append((index_rows(observations, rows), masks[rows], actions[rows]))
        return actions

    def demonstrations(self) -> tuple[Any, NDArray[np.bool_], NDArray[np.int64]]:
        """Return (observations, masks, actions) of all recorded decisions, each [decisions, ...]."""
        observations, masks, actions = map(concatenate_rows, zip(*self._records, strict=True))
        return observations, masks, actions


@checked("agent.teacher")
@dataclass(frozen=True)
class CloneTeacher:
    """Fits a network to the decisions of a teacher policy by maximum likelihood (behaviour cloning)."""

    #: function of the environment's actions that makes the teacher policy
    policy: Callable[[Actions], Policy]
    demonstration_steps: PositiveInt = 300  #: steps of the teacher in each cluster
    gradient_steps: PositiveInt = 300  #: gradient steps of the fit
    batch_size: PositiveInt = 512  #: decisions per gradient step
    learning_rate: Positive = 1e-3  #: learning rate of Adam

    def recorder(self, config: EnvConfig) -> DemonstrationRecorder:
        """Return a recorder of the teacher, for this environment."""
        assert isinstance(config.actions, Actions)  # `adapt_env_config` has checked it
        return DemonstrationRecorder(self.policy(config.actions))

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
