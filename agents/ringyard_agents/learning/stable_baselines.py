"""On-policy algorithms of Stable-Baselines3 and sb3-contrib as learners."""

import inspect
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Annotated, Any

import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy

from ringyard.checks import Fraction, NonNegative, Positive, PositiveInt, checked, require, require_memory
from ringyard.errors import ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.cloning import CloneTeacher
from ringyard_agents.learning.learner import (
    Callback,
    network_state,
    only_world,
    random_state,
    restore_network,
    restore_random,
)
from ringyard_agents.learning.policies import NetworkLearner
from ringyard_agents.learning.process_group import Hardware
from ringyard_agents.learning.vec_env import RingyardVecEnv

#: counters of Stable-Baselines3 that start with the process, or repeat the number of decisions
_OF_THIS_PROCESS = ("time/iterations", "time/time_elapsed", "time/total_timesteps")

#: numbers kept of a decision beside observation and mask: action (two), reward, return, start, value, log
#: probability, advantage
_KEPT_NUMBERS = 8


class _BetweenRollouts(BaseCallback, KVWriter):
    """Hands the numbers that an algorithm has logged since its last rollout to a `Callback`."""

    def __init__(self, callback: Callback) -> None:
        super().__init__()
        self.measured: dict[str, float] = {}
        self._callback = callback

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        """Keep the numbers."""
        numbers = {name: value for name, value in key_values.items() if isinstance(value, Real)}
        self.measured |= {name: float(one) for name, one in numbers.items() if name not in _OF_THIS_PROCESS}

    def close(self) -> None:
        """Nothing to close."""

    def _on_rollout_start(self) -> None:
        self.logger.dump(self.num_timesteps)
        self._callback(self.measured)
        self.measured = {}

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._on_rollout_start()


_Schedule = Callable[[float], float]
#: ranges of arguments of the algorithms, which check the rest themselves
_ARGUMENTS = {
    **dict.fromkeys(("n_steps", "n_epochs"), PositiveInt),
    **dict.fromkeys(("ent_coef", "vf_coef"), NonNegative),
    **dict.fromkeys(("gamma", "gae_lambda"), Fraction),
    **dict.fromkeys(("learning_rate", "clip_range"), Positive | _Schedule),
    "batch_size": Annotated[int, "[2, 2147483647]"],
    "clip_range_vf": Positive | _Schedule | None,
    "max_grad_norm": Positive,
    "target_kl": Positive | None,
}


@checked("agent")
@dataclass
class StableBaselines(NetworkLearner):
    """Learns with an on-policy algorithm such as PPO or MaskablePPO.

    Attributes:
        model: the algorithm's class and its arguments, all but env, seed and device.
        flat: whether its policy reads one row of numbers a cluster, or blocks.
        num_envs: clusters.
        teacher: imitated before learning; needs MaskablePPO.
        hardware: device; one process only.
        masked: whether it is MaskablePPO, whose policies choose valid actions only.
    """

    model: partial[OnPolicyAlgorithm]
    flat: bool
    num_envs: PositiveInt = 64
    teacher: CloneTeacher | None = None
    hardware: Hardware = field(default_factory=Hardware, init=False, repr=False)
    masked: bool = field(init=False)

    def __post_init__(self) -> None:
        algorithm: Any = self.model.func
        if not issubclass(algorithm, OnPolicyAlgorithm):
            raise ConfigurationError(
                f"agent.model is {algorithm.__name__}; expected an on-policy algorithm such as"
                " stable_baselines3.PPO or sb3_contrib.MaskablePPO"
            )
        for name, value in self.model.keywords.items():
            if name in _ARGUMENTS:
                require(f"agent.model.{name}", value, _ARGUMENTS[name])
        self.masked = issubclass(algorithm, MaskablePPO)
        if self.teacher is not None and not self.masked:
            raise ConfigurationError(
                f"agent.teacher needs MaskablePPO, agent.model is {algorithm.__name__};"
                " set agent.teacher=null"
            )

    def _given(self, name: str) -> Any:
        """An argument of the algorithm, or its default."""
        bound = inspect.signature(self.model.func).bind_partial(*self.model.args, **self.model.keywords)
        bound.apply_defaults()
        return bound.arguments.get(name)

    @property
    def decisions(self) -> int:
        """Environment decisions learnt from so far."""
        return self._running.num_timesteps

    def _trained(self) -> BasePolicy:
        return self._running.policy

    def _build(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> BasePolicy:
        algorithm: Any = self.model.func
        chosen, options = self._given("policy"), self._given("policy_kwargs") or {}
        network_class: Any = algorithm.policy_aliases[chosen] if isinstance(chosen, str) else chosen
        network: BasePolicy = network_class(observation_space, action_space, lambda progress: 0.0, **options)
        return network

    def setup(self, worlds: Mapping[str, EnvConfig], seed: int, saved: Checkpoint | None = None) -> None:
        """Make the model, new or as saved, and its only environment."""
        setting = only_world(worlds)
        if self.hardware.peers.size > 1:
            raise ConfigurationError(
                f"algorithms of Stable-Baselines3 learn in one process, there are {self.hardware.peers.size};"
                " expected agent=group_relative or one that scores jobs (agent=evolution), or no torchrun"
            )
        torch.set_num_threads(1)
        self._require_memory(setting)
        self._seed, self._env = seed, RingyardVecEnv(setting, self.num_envs, seed=seed)
        model = self._running = self.model(env=self._env, seed=seed, device=self.hardware.device)
        if saved is None:
            return
        facts, arrays = saved.facts, saved.arrays
        restore_network(model.policy, saved, model.policy.optimizer)
        model.num_timesteps, model._n_updates = facts["decisions"], facts["updates"]
        if facts["started"]:
            model._last_obs = self._env.restore(arrays)  # type: ignore[assignment]
            model._last_episode_starts = arrays["episode_starts"].copy()
            model.ep_info_buffer = deque(facts["episodes"], maxlen=model._stats_window_size)
            model.ep_success_buffer = deque(maxlen=model._stats_window_size)
        restore_random(saved)

    def _require_memory(self, setting: EnvConfig) -> None:
        """Raise a ConfigurationError unless two copies of a rollout in float32 fit into memory."""
        steps = self._given("n_steps")
        if type(steps) is int:  # algorithms of others may have none
            actions = setting.actions
            kept = setting.observation.size(setting.cluster, actions) + actions.mask_size + _KEPT_NUMBERS
            name = f"agent.model.n_steps, with agent.num_envs={self.num_envs:,},"
            require_memory({name: (steps, 2 * 4 * kept * self.num_envs)})

    def state(self) -> Checkpoint:
        """Weights, optimiser, counters, random states and running episodes."""
        model, arrays = self._running, self._env.position()
        facts = {"decisions": self.decisions, "updates": model._n_updates, "started": False, "episodes": []}
        if model._last_obs is not None:
            assert model._last_episode_starts is not None
            assert model.ep_info_buffer is not None
            arrays["episode_starts"] = model._last_episode_starts.copy()
            facts |= {"started": True, "episodes": list(model.ep_info_buffer)}
        network = network_state(model.policy, model.policy.optimizer)
        return network.joined(random_state()).joined(Checkpoint(arrays, facts))

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Clone the teacher, if there is one and learning starts, then learn."""
        model, between = self._running, _BetweenRollouts(callback)
        model.set_logger(Logger(None, [between]))
        if self.teacher is not None and model._last_obs is None:
            assert isinstance(model.policy, MaskableActorCriticPolicy)  # of MaskablePPO
            watched, seen = self.teacher.watched(self._env.config.actions), self._env.reset()
            for _ in range(self.teacher.steps):
                seen = self._env.step(watched(seen, self._env.action_masks()))[0]
            between.measured = self.teacher.fit(model.policy, watched, self._seed)
        model.learn(max(total_decisions - self.decisions, 0), between, reset_num_timesteps=False)
