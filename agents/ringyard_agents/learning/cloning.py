"""Behaviour cloning: start from the best heuristic that the agent can imitate with its own actions."""

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
from ringyard.mdp.actions import ActionKind, Actions
from ringyard_agents.learning.episodes import stacked, take
from ringyard_agents.learning.learner import Policy


class QueueTeacher:
    """A policy that starts the first visible job that its template can place, and otherwise waits.

    With `Actions.queue_order` "duration" this is shortest job first, with "work" smallest work first.

    Args:
        actions: of the environment.
        templates: names of placement rules, of which the first that the environment has is used.

    Raises:
        ConfigurationError: the environment has none of them.
    """

    flat: bool = False

    def __init__(self, actions: Actions, templates: Sequence[str]) -> None:
        names = [template.name for template in actions.starts]
        known = [name for name in templates if name in names]
        if not known:
            raise ConfigurationError(
                f"the teacher's templates are {', '.join(templates)}; the environment has"
                f" {', '.join(names)} (agent.teacher.teacher.templates=[...])"
            )
        self.actions = actions
        self.template = names.index(known[0])

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[clusters] actions, which depend on the masks [clusters, actions] alone."""
        wait, num_templates = self.actions.wait, len(self.actions.starts)
        starts = masks[:, self.template : self.actions.num_starts : num_templates]
        chosen = starts.argmax(axis=1) * num_templates + self.template
        waits = np.where(masks[:, wait], wait, masks.argmax(axis=1))
        return np.where(starts.any(axis=1), chosen, waits)


class Watched:
    """A player that records a policy's choices among several valid actions, see `World.go_on`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._kept: list[tuple[Any, NDArray[np.bool_], NDArray[np.int64]]] = []

    def __call__(self, observations: Any, masks: NDArray[np.bool_], clusters: Any = None) -> Any:
        """[clusters] actions."""
        actions = self._policy.act(observations, masks)
        rows = np.flatnonzero(masks.sum(axis=1) > 1)
        self._kept.append((take(observations, rows), masks[rows], actions[rows]))
        return actions

    def decisions(self) -> tuple[Any, NDArray[np.bool_], NDArray[np.int64]]:
        """(observations, masks, actions), each [decisions, ...]."""
        observations, masks, actions = (stacked(column) for column in zip(*self._kept, strict=True))
        return observations, masks, actions


@checked("agent.teacher")
@dataclass(frozen=True)
class CloneTeacher:
    """Fits a network to the choices of a teacher that plays for some steps (behaviour cloning).

    Attributes:
        teacher: returns the policy to imitate, given the environment's actions.
        steps: environment steps to watch (times num_envs decisions).
        batches: gradient steps.
        batch_size: decisions per gradient step.
        learning_rate: of the fit.
    """

    teacher: Callable[[Actions], Policy]
    steps: PositiveInt = 300
    batches: PositiveInt = 300
    batch_size: PositiveInt = 512
    learning_rate: Positive = 1e-3

    def watched(self, actions: ActionKind) -> Watched:
        """The teacher, for an environment with these actions."""
        assert isinstance(actions, Actions)  # `world_of` sees to it
        return Watched(self.teacher(actions))

    def fit(self, network: MaskableActorCriticPolicy, watched: Watched, seed: int) -> dict[str, float]:
        """Fit the network.

        Args:
            network: learns.
            watched: the teacher, after it has played.
            seed: of the minibatches.

        Returns:
            Curves: clone/accuracy, the share of the teacher's choices that the network makes, and
            clone/decisions, the number of choices watched.
        """
        decisions = watched.decisions()
        network.set_training_mode(True)
        optimizer = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        rng = np.random.default_rng(seed)
        count = len(decisions[2])
        for _ in range(self.batches):
            rows = rng.integers(count, size=self.batch_size)
            loss = -_log_prob(network, decisions, rows)[0].mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            _, right = _log_prob(network, decisions, rng.integers(count, size=4096))
        return {"clone/accuracy": float(right.float().mean()), "clone/decisions": float(count)}


def _log_prob(
    network: MaskableActorCriticPolicy, decisions: tuple[Any, Any, Any], rows: NDArray[np.int64]
) -> tuple[torch.Tensor, torch.Tensor]:
    """([choices] log probability of the teacher's choices, [choices] whether they are the most likely)."""
    observations, masks, actions = decisions
    tensor = obs_as_tensor(take(observations, rows), network.device)
    chosen = torch.as_tensor(actions[rows], device=network.device)
    distribution = network.get_distribution(tensor, action_masks=masks[rows])
    return distribution.log_prob(chosen), distribution.mode() == chosen
