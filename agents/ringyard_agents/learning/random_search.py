"""Random search for constant actions, a baseline without observation."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy

from ringyard.checks import Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.episodes import EpisodeRunner
from ringyard_agents.learning.learner import Callback, EnvConfigs, restore_network, single_environment
from ringyard_agents.learning.policies import NetworkLearner
from ringyard_agents.learning.ppo import in_bounds


@checked("agent")
@dataclass(kw_only=True)
class RandomSearch(NetworkLearner):
    """Learner of constant continuous actions, such as weights, for comparison with learners that observe.

    In each round, candidates around the incumbent, and the incumbent itself, play the same workloads. The one
    with the largest mean return is the next incumbent.

    Source: the (1 + lambda) evolution strategy (Beyer and Schwefel 2002), with a constant deviation.
    """

    candidates: Annotated[int, "[2, 65536]"] = 16  #: in a round, the incumbent included
    workloads_per_round: PositiveInt = 4  #: that each candidate plays
    noise_std: Positive = 0.5  #: standard deviation of candidates about the incumbent
    flat, masked, decisions, _round = True, False, 0, 0

    def _build_network(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Any:
        if not isinstance(actions, spaces.Box):
            raise ConfigurationError(f"got the actions {actions}; expected continuous ones (form=weights)")
        return ActorCriticPolicy(observations, actions, lambda progress: 0.0, net_arch=[])

    def setup(self, environments: EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Begin with actions of 0, or as `saved`. See `Learner.setup`."""
        config = single_environment(environments)
        self._runner = EpisodeRunner(config, self.candidates * self.workloads_per_round)
        torch.manual_seed(seed)
        observations = config.observation.space(config.cluster, config.actions)
        self._network = self._build_network(observations, config.actions.space)
        self._seed, self.decisions, self._round = seed, 0, 0
        if saved is not None:
            restore_network(self._network, saved)
            self.decisions, self._round = saved.metadata["decisions"], saved.metadata["rounds"]

    def state(self) -> Checkpoint:
        """Copy the incumbent and the counters."""
        return self.weights().merge(Checkpoint({}, {"decisions": self.decisions, "rounds": self._round}))

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Search until `total_decisions`, with `callback` between rounds. See `Learner.learn`."""
        torch.nn.init.zeros_(self._network.action_net.weight)  # so that its bias is the action
        callback({})
        incumbent, config = self._network.action_net.bias.data, self._runner.config
        while self.decisions < total_decisions:
            rng = np.random.default_rng((self._seed, self._round))
            noise = rng.standard_normal((self.candidates, len(incumbent)), np.float32)
            noise[0] = 0.0  # the incumbent
            tried = in_bounds(incumbent.numpy() + self.noise_std * noise, config.actions.space)
            actions = tried.repeat(self.workloads_per_round, axis=0)
            drawn = rng.integers(config.num_workloads, size=self.workloads_per_round)
            workloads = np.tile(drawn, self.candidates)
            episodes = self._runner.run_episodes(workloads, lambda seen, masks, rows, a=actions: a[rows])
            returns = episodes.returns.reshape(self.candidates, -1).mean(axis=1)
            incumbent.copy_(torch.as_tensor(tried[returns.argmax()]))
            self.decisions += int(episodes.valid.sum())
            self._round += 1
            callback({"rollout/ep_rew_mean": float(returns[0])})
