"""PPO whose advantages compare episodes of the same workload with one another.

Run times are heavy-tailed: returns differ more between workloads than between policies, and drown a
critic. Several episodes of each workload cancel that. `credit="episode"` gives every decision its
episode's return, normalised within the group (as GRPO does, Shao et al. 2024). `credit="time_aligned"`
gives a decision at simulated time t its reward to go minus the group's mean reward to go at t (the
input-driven baseline of Mao et al. 2019), so that a decision is not blamed for what came before it.
"""

from collections.abc import Generator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.buffers import (
    MaskableDictRolloutBuffer,
    MaskableRolloutBuffer,
)
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import obs_as_tensor

from ringyard.errors import ConfigurationError
from ringyard_agents.learning.vec_env import RingyardVecEnv

__all__ = ["GroupRelativePPO", "group_advantages"]

Credit = Literal["episode", "time_aligned"]


def _returns_to_go(rewards: NDArray[np.float32], valid: NDArray[np.bool_]) -> NDArray[np.float64]:
    """[steps, envs] undiscounted reward from each step on."""
    return np.cumsum((rewards * valid)[::-1].astype(np.float64), axis=0)[::-1]


def group_advantages(
    rewards: NDArray[np.float32],
    times: NDArray[np.float64],
    valid: NDArray[np.bool_],
    group_size: int,
    credit: Credit,
) -> NDArray[np.float32]:
    """Advantages of decisions relative to the other episodes of their group.

    Args:
        rewards: [steps, envs] after each decision.
        times: [steps, envs] simulated seconds at each decision.
        valid: [steps, envs] True until the episode's end.
        group_size: neighbouring columns that share a workload.
        credit: see the module.

    Returns:
        [steps, envs] advantages, of unit spread within each group; 0 where not valid.
    """
    to_go = _returns_to_go(rewards, valid)
    advantages = np.zeros_like(to_go)
    for first in range(0, rewards.shape[1], group_size):
        members = range(first, first + group_size)
        returns = to_go[0, first : first + group_size]
        if credit == "episode":
            advantages[:, first : first + group_size] = returns - returns.mean()
            spread = returns.std()
        else:
            baselines = np.zeros((rewards.shape[0], group_size))
            for other in members:
                known = valid[:, other]
                at = np.append(times[known, other], np.inf)
                value = np.append(to_go[known, other], 0.0)
                # linear between decisions; after its last one an episode counts as over, though its
                # last jobs still run
                at[-1] = at[-2] + 1.0 if len(at) > 1 else 0.0
                baselines += np.interp(times[:, first : first + group_size], at, value)
            advantages[:, first : first + group_size] = (
                to_go[:, first : first + group_size] - baselines / group_size
            )
            spread = advantages[:, first : first + group_size][valid[:, first : first + group_size]].std()
        advantages[:, first : first + group_size] /= spread + 1e-8
    return (advantages * valid).astype(np.float32)


class _Rounds:
    """What both rollout buffers do: keep the valid decisions of one round of whole episodes."""

    advantages: Any
    full: Any
    observations: Any
    pos: Any
    returns: Any
    rewards: Any

    def reset(self) -> None:
        """Forget the round."""
        super().reset()  # type: ignore[misc]
        self.valid = np.zeros((self.buffer_size, self.n_envs), np.bool_)  # type: ignore[attr-defined]
        self.times = np.zeros((self.buffer_size, self.n_envs))  # type: ignore[attr-defined]

    def finish(self, group_size: int, credit: Credit) -> None:
        """Compute advantages and keep the valid decisions only."""
        steps = self.pos
        valid = self.valid[:steps]
        self.advantages = group_advantages(
            self.rewards[:steps],
            self.times[:steps],
            valid,
            group_size,
            credit,
        )
        self.returns = _returns_to_go(self.rewards[:steps], valid).astype(np.float32)
        for name in ("actions", "values", "log_probs", "action_masks"):
            setattr(self, name, getattr(self, name)[:steps][valid])
        self.advantages = self.advantages[valid]
        self.returns = self.returns[valid]
        observations = self.observations
        if isinstance(observations, dict):
            self.observations = {name: block[:steps][valid] for name, block in observations.items()}
        else:
            self.observations = observations[:steps][valid]
        self.pos = steps
        self.full = True

    def get(self, batch_size: int | None = None) -> Generator[Any, None, None]:
        """Minibatches of decisions in random order."""
        count = len(self.advantages)
        order = np.random.permutation(count)
        for begin in range(0, count, batch_size or count):
            yield self._get_samples(order[begin : begin + (batch_size or count)])  # type: ignore[attr-defined]


class _BoxRounds(_Rounds, MaskableRolloutBuffer):
    """Rounds of flat observations."""


class _DictRounds(_Rounds, MaskableDictRolloutBuffer):
    """Rounds of observations in blocks."""


class GroupRelativePPO(MaskablePPO):
    """MaskablePPO on rounds: every cluster plays one episode, groups of clusters the same workload.

    Needs a `RingyardVecEnv` with `one_episode_per_round` and a `group_size` of 2 or more.

    Args:
        policy: a maskable policy class or its name.
        env: the environment.
        credit: how decisions share their episode's return, see the module.
        learning_rate, n_epochs, batch_size, clip_range, ent_coef, max_grad_norm, target_kl: as in PPO.
        policy_kwargs, tensorboard_log, seed, verbose: as in PPO.
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        credit: Credit = "time_aligned",
        learning_rate: float = 3e-4,
        n_epochs: int = 3,
        batch_size: int = 4096,
        clip_range: float = 0.2,
        ent_coef: float = 1e-3,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        tensorboard_log: str | None = None,
        seed: int | None = None,
        verbose: int = 0,
        device: str = "cpu",
        _init_setup_model: bool = True,
    ) -> None:
        if credit not in ("episode", "time_aligned"):
            raise ConfigurationError(f"credit is {credit!r}; expected 'episode' or 'time_aligned'")
        self.credit: Credit = credit
        jobs = env.setting.workload.num_jobs if isinstance(env, RingyardVecEnv) else 1
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            # each job is started once per stop, and each wait passes an arrival or a completion
            n_steps=4 * jobs + 8,
            batch_size=batch_size,
            n_epochs=n_epochs,
            gamma=1.0,
            clip_range=clip_range,
            normalize_advantage=False,
            ent_coef=ent_coef,
            vf_coef=0.0,
            max_grad_norm=max_grad_norm,
            target_kl=target_kl,
            policy_kwargs=policy_kwargs,
            tensorboard_log=tensorboard_log,
            seed=seed,
            verbose=verbose,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    def _setup_model(self) -> None:
        self.rollout_buffer_class = _DictRounds if hasattr(self.observation_space, "spaces") else _BoxRounds
        super()._setup_model()

    def collect_rollouts(
        self,
        env: Any,
        callback: BaseCallback,
        rollout_buffer: Any,
        n_rollout_steps: int,
        use_masking: bool = True,
    ) -> bool:
        """Play one round; `n_rollout_steps` only bounds its length."""
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        self._last_obs = env.next_round()
        while not env.idle.all() and rollout_buffer.pos < n_rollout_steps:
            valid = ~env.idle
            rollout_buffer.valid[rollout_buffer.pos] = valid
            rollout_buffer.times[rollout_buffer.pos] = env.batch.state.clusters["now"]
            masks = env.action_masks().copy()
            with torch.no_grad():
                observations = obs_as_tensor(self._last_obs, self.device)
                actions, values, log_probs = self.policy(observations, action_masks=masks)
            chosen = actions.cpu().numpy()
            new_obs, rewards, dones, infos = env.step(chosen)
            self.num_timesteps += int(valid.sum())
            callback.update_locals(locals())
            if not callback.on_step():
                return False
            self._update_info_buffer(infos, dones)
            rollout_buffer.add(
                self._last_obs,
                chosen.reshape(-1, 1),
                rewards,
                self._last_episode_starts,
                values,
                log_probs,
                action_masks=masks,
            )
            self._last_obs = new_obs
            self._last_episode_starts = dones
        rollout_buffer.finish(env.group_size, self.credit)
        callback.on_rollout_end()
        return True
