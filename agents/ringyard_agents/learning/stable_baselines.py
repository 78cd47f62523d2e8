"""On-policy algorithms of Stable-Baselines3 and sb3-contrib, and SAC, as learners."""

import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Annotated, Any, Literal

import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from torch.optim import Optimizer

from ringyard.checks import Fraction, NonNegative, Positive, PositiveInt, checked, require
from ringyard.errors import ConfigurationError
from ringyard_agents.learning import learner as learners
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.policies import NetworkLearner
from ringyard_agents.learning.process_group import Hardware
from ringyard_agents.learning.vec_env import RingyardVecEnv, require_rollout_memory

#: tags of Stable-Baselines3 that restart at 0 in a resumed run, or repeat the number of decisions
_IGNORED_TAGS = ("time/iterations", "time/time_elapsed", "time/total_timesteps")


class _BetweenRollouts(BaseCallback, KVWriter):
    """Passes the numbers that an algorithm has logged since the last rollout to a `Callback`."""

    def __init__(self, callback: learners.Callback) -> None:
        super().__init__()
        self.scalars: dict[str, float] = {}
        self._callback = callback

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        """Store the numbers of `key_values`. `key_excluded` and `step` are not used, see `KVWriter`."""
        numbers = {name: value for name, value in key_values.items() if isinstance(value, Real)}
        self.scalars |= {name: float(one) for name, one in numbers.items() if name not in _IGNORED_TAGS}

    def close(self) -> None:
        """Do nothing, because there is nothing to close."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        self.logger.dump(self.num_timesteps)
        self._callback(self.scalars)
        self.scalars = {}

    def _on_training_end(self) -> None:
        self._on_rollout_start()


#: parts of a replay buffer
_REPLAY = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
_Schedule = Callable[[float], float]
#: allowed values of arguments of the algorithms, which check their other arguments themselves
_ARGUMENTS = {
    **dict.fromkeys(("n_steps", "n_epochs", "buffer_size", "train_freq", "gradient_steps"), PositiveInt),
    "ent_coef": NonNegative | Literal["auto"],
    "vf_coef": NonNegative,
    **dict.fromkeys(("gamma", "gae_lambda", "tau"), Fraction),
    **dict.fromkeys(("learning_rate", "clip_range"), Positive | _Schedule),
    "batch_size": Annotated[int, "[2, 2147483647]"],
    "clip_range_vf": Positive | _Schedule | None,
    "max_grad_norm": Positive,
    "target_kl": Positive | None,
}


@checked("agent")
@dataclass
class StableBaselines(NetworkLearner):
    """Learner that runs SAC, or an on-policy algorithm of Stable-Baselines3 or sb3-contrib, such as PPO.

    A checkpoint of SAC holds its replay buffer, so that a resumed run goes on bit for bit.
    """

    #: class of the algorithm and its arguments, without env, seed and device
    model: partial[OnPolicyAlgorithm | SAC]
    flat: bool  #: True if its policy reads one row of numbers per cluster, False if it reads blocks
    num_envs: PositiveInt = 64  #: number of clusters
    #: device. Only one process is supported.
    hardware: Hardware = field(default_factory=Hardware, init=False, repr=False)
    masked: bool = field(init=False)  #: whether it is MaskablePPO. Its policy chooses valid actions only.

    def __post_init__(self) -> None:
        algorithm: Any = self.model.func
        if not issubclass(algorithm, OnPolicyAlgorithm | SAC):
            raise ConfigurationError(
                f"agent.model is {algorithm.__name__}; expected stable_baselines3.SAC, or an on-policy"
                " algorithm such as stable_baselines3.PPO or sb3_contrib.MaskablePPO"
            )
        for name, value in self.model.keywords.items():
            if name in _ARGUMENTS:
                require(f"agent.model.{name}", value, _ARGUMENTS[name])
        self.masked = issubclass(algorithm, MaskablePPO)

    def _argument(self, name: str) -> Any:
        """Return an argument of the algorithm, given or default. None if it has no such argument."""
        bound = inspect.signature(self.model.func).bind_partial(*self.model.args, **self.model.keywords)
        bound.apply_defaults()
        return bound.arguments.get(name)

    @property
    def decisions(self) -> int:
        """Decisions learnt from so far."""
        return self._model.num_timesteps

    def _build_network(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> BasePolicy:
        algorithm: Any = self.model.func
        policy, options = self._argument("policy"), dict(self._argument("policy_kwargs") or {})
        if self._argument("use_sde"):
            options["use_sde"] = True
        network_class: Any = algorithm.policy_aliases[policy] if isinstance(policy, str) else policy
        return network_class(observations, actions, lambda progress: 0.0, **options)

    def setup(self, environments: learners.EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Make model and clusters of the `environments`, from `seed` or as `saved`. See `Learner.setup`."""
        config = learners.single_environment(environments)
        if self.hardware.process_group.size > 1:
            raise ConfigurationError(
                f"Stable-Baselines3 learns in one process; got {self.hardware.process_group.size}; expected"
                " agent=ppo, agent=evolution or another agent of several processes, or no torchrun"
            )
        algorithm: Any = self.model.func
        if not isinstance(config.actions.space, spaces.Box):
            got = f"take {config.actions.space} actions; set form=weights"
            if issubclass(algorithm, SAC):
                raise ConfigurationError(f"SAC cannot {got}")
            if self._argument("use_sde"):
                raise ConfigurationError(f"agent.model.use_sde=true cannot {got} or form=jobs")
        torch.set_num_threads(1)
        for argument, clusters in (("n_steps", 1), ("buffer_size", self.num_envs)):
            steps = self._argument(argument)
            if type(steps) is int:  # not every algorithm has the argument
                require_rollout_memory(f"agent.model.{argument}", steps // clusters, config, self.num_envs)
        self._seed, self._env = seed, RingyardVecEnv(config, self.num_envs, seed=seed)
        model = self._model = self.model(env=self._env, seed=seed, device=self.hardware.device)
        self._network = model.policy
        if saved is None:
            return
        metadata, arrays = saved.metadata, saved.arrays
        learners.restore_network(model.policy, saved, **self._optimizers)
        model.num_timesteps, model._n_updates = metadata["decisions"], metadata["updates"]
        if metadata["started"]:
            model._last_obs = self._env.restore(arrays)  # type: ignore[assignment]
            model._last_episode_starts = arrays["episode_starts"].copy()
            model.ep_info_buffer = deque(metadata["episodes"], maxlen=model._stats_window_size)
            model.ep_success_buffer = deque(maxlen=model._stats_window_size)
        if isinstance(model, SAC):
            buffer = model.replay_buffer
            assert buffer is not None
            rows = len(arrays["replay.rewards"])
            for part in _REPLAY:
                getattr(buffer, part)[:rows] = arrays[f"replay.{part}"]
            buffer.pos, buffer.full = metadata["position"], rows == buffer.buffer_size
            model._episode_num = metadata["ended"]
            model.action_space.np_random.bit_generator.state = metadata["sampling"]
            if model.log_ent_coef is not None:
                model.log_ent_coef.data[:] = torch.from_numpy(arrays["log_ent_coef"])
        learners.restore_random_state(saved)

    @property
    def _optimizers(self) -> dict[str, Optimizer]:
        model = self._model
        if not isinstance(model, SAC):
            return {"optimizer": model.policy.optimizer}
        found = {"actor": model.actor.optimizer, "critic": model.critic.optimizer}
        return found if model.ent_coef_optimizer is None else found | {"entropy": model.ent_coef_optimizer}

    def state(self) -> Checkpoint:
        """Copy the weights, the optimizer's state, counters, random states and running episodes."""
        model, arrays = self._model, self._env.episode_state()
        metadata: dict[str, Any] = {"decisions": self.decisions, "updates": model._n_updates}
        metadata["started"] = False
        if model._last_obs is not None:
            assert model._last_episode_starts is not None
            assert model.ep_info_buffer is not None
            arrays["episode_starts"] = model._last_episode_starts.copy()
            metadata |= {"started": True, "episodes": list(model.ep_info_buffer)}
        if isinstance(model, SAC):
            assert model.replay_buffer is not None
            rows = model.replay_buffer.size()
            arrays |= {f"replay.{part}": getattr(model.replay_buffer, part)[:rows].copy() for part in _REPLAY}
            if model.log_ent_coef is not None:
                arrays["log_ent_coef"] = model.log_ent_coef.detach().cpu().numpy().copy()
            metadata |= {"position": model.replay_buffer.pos, "ended": model._episode_num}
            metadata["sampling"] = model.action_space.np_random.bit_generator.state
        network = learners.network_state(model.policy, **self._optimizers)
        return network.merge(learners.random_state()).merge(Checkpoint(arrays, metadata))

    def learn(self, total_decisions: int, callback: learners.Callback) -> None:
        """Learn up to `total_decisions`, with `callback` between rounds."""
        model, between = self._model, _BetweenRollouts(callback)
        model.set_logger(Logger(None, [between]))
        model.learn(max(total_decisions - self.decisions, 0), between, reset_num_timesteps=False)
