"""Behaviour cloning: start PPO from the best heuristic the agent can imitate with its own moves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import obs_as_tensor

from ringyard.errors import ConfigurationError
from ringyard_agents.learning.vec_env import RingyardVecEnv

__all__ = ["CloneTeacher", "QueueTeacher"]


@dataclass(frozen=True)
class QueueTeacher:
    """Starts the first visible job that its template can place; waits if there is none.

    With `Actions.queue_order` "duration" this is shortest job first, with "work" smallest work first.

    Attributes:
        templates: names of placement rules; the first that is among the environment's templates is its.
    """

    templates: Sequence[str]

    def actions(self, env: RingyardVecEnv, masks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[num_envs] what the teacher does; masks are [num_envs, actions]."""
        actions = env.setting.actions
        names = [template.name for template in actions.starts]
        known = [name for name in self.templates if name in names]
        if not known:
            raise ConfigurationError(
                f"the teacher's templates are {', '.join(self.templates)}; the environment has"
                f" {', '.join(names)} (agent.teacher.teacher.templates=[...])"
            )
        template = names.index(known[0])
        starts = masks[:, template : actions.num_starts : len(names)]
        chosen = starts.argmax(axis=1) * len(names) + template
        waits = np.where(masks[:, actions.wait], actions.wait, masks.argmax(axis=1))
        return np.where(starts.any(axis=1), chosen, waits)


class CloneTeacher(BaseCallback):
    """Before learning: watch the teacher for some steps, then fit the policy to its choices.

    Args:
        teacher: whom to imitate.
        steps: environment steps to watch (times num_envs decisions).
        batches: gradient steps.
        batch_size: decisions per gradient step.
        learning_rate: of the fit.
    """

    def __init__(
        self,
        teacher: QueueTeacher,
        steps: int = 300,
        batches: int = 300,
        batch_size: int = 512,
        learning_rate: float = 1e-3,
    ) -> None:
        super().__init__()
        self.teacher = teacher
        self.steps = steps
        self.batches = batches
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        #: share of the teacher's choices the clone makes, on the watched decisions
        self.accuracy = float("nan")

    def _on_training_start(self) -> None:
        model, env = self.model, self.training_env
        assert isinstance(model, MaskablePPO)
        if not isinstance(env, RingyardVecEnv):
            raise ConfigurationError("cloning needs a RingyardVecEnv")
        if model.num_timesteps == 0:
            observations, masks, actions = self._watch(env)
            self._fit(model, observations, masks, actions)
            self.logger.record("clone/accuracy", self.accuracy)
            self.logger.record("clone/decisions", len(actions))
            self.logger.dump(0)

    def _on_step(self) -> bool:
        return True

    def _watch(self, env: RingyardVecEnv) -> tuple[Any, NDArray[np.bool_], NDArray[np.int64]]:
        """Decisions with a choice: (observations, masks, actions), each [decisions, ...]."""
        seen, masks, actions = [], [], []
        observation = env.reset()
        for _ in range(self.steps):
            if env.idle.all():
                observation = env.next_round()
            mask = env.action_masks().copy()
            action = self.teacher.actions(env, mask)
            kept = ~env.idle & (mask.sum(axis=1) > 1)
            if isinstance(observation, dict):
                seen.append({name: block[kept] for name, block in observation.items()})
            else:
                seen.append(observation[kept])
            masks.append(mask[kept])
            actions.append(action[kept])
            observation = env.step(action)[0]
        if isinstance(seen[0], dict):
            stacked: Any = {name: np.concatenate([one[name] for one in seen]) for name in seen[0]}
        else:
            stacked = np.concatenate(seen)
        return stacked, np.concatenate(masks), np.concatenate(actions)

    def _fit(
        self, model: MaskablePPO, observations: Any, masks: NDArray[np.bool_], actions: NDArray[np.int64]
    ) -> None:
        policy = model.policy
        policy.set_training_mode(True)
        optimizer = torch.optim.Adam(policy.parameters(), lr=self.learning_rate)
        rng = np.random.default_rng(0 if model.seed is None else model.seed)
        for _ in range(self.batches):
            rows = rng.integers(len(actions), size=self.batch_size)
            loss = -self._log_prob(model, observations, masks, actions, rows)[0].mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        rows = rng.integers(len(actions), size=4096)
        with torch.no_grad():
            _, right = self._log_prob(model, observations, masks, actions, rows)
        self.accuracy = float(right.float().mean())

    @staticmethod
    def _log_prob(
        model: MaskablePPO, observations: Any, masks: Any, actions: Any, rows: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probability of the teacher's choices, and whether they are the policy's favourites."""
        batch = (
            {name: block[rows] for name, block in observations.items()}
            if isinstance(observations, dict)
            else observations[rows]
        )
        tensor = obs_as_tensor(batch, model.device)
        chosen = torch.as_tensor(actions[rows], device=model.device)
        distribution = model.policy.get_distribution(tensor, action_masks=masks[rows])
        return distribution.log_prob(chosen), distribution.mode() == chosen
