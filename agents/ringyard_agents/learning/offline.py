"""Offline Q-learning: an ensemble of networks learns from recorded decisions, and never acts itself."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor, nn

from ringyard.checks import Fraction, Positive, PositiveInt, checked, require
from ringyard_agents.learning import learner as learners
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.episodes import EpisodeRunner, concatenate_rows, index_rows
from ringyard_agents.learning.policies import NetworkLearner, PointerNetwork, PointerPolicy


class EnsembleNetwork(nn.ModuleList):
    """Pointer networks with values of actions as logits. Its logits are the least of the networks' values."""

    def __init__(self, space: Any, num_actions: int, width: int, members: int) -> None:
        super().__init__(PointerNetwork(space, num_actions, width) for _ in range(members))
        self.latent_dim_pi, self.latent_dim_vf = num_actions, width

    def values(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [members, B, actions] values."""
        return torch.stack([member(blocks)[0] for member in self])

    def forward_actor(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, actions] least values."""
        return self.values(blocks).amin(0)


class EnsemblePolicy(PointerPolicy):
    """A policy around an `EnsembleNetwork` with `members`, otherwise as `PointerPolicy`."""

    def __init__(self, *arguments: Any, members: int = 5, **options: Any) -> None:
        require("members", members, Annotated[int, "[1, 1024]"])
        self.network_class = partial(EnsembleNetwork, members=members)
        super().__init__(*arguments, **options)


@checked("agent")
@dataclass
class OfflineEnsemble(NetworkLearner):
    """Learner from recorded decisions, by Q-learning with masks and a pessimistic ensemble.

    A value is the least of the members' values, so that it is low for actions that are not in the data, on
    which they differ. Targets are the reward plus the largest value of a valid next action.

    Source: SAC-N (An et al. 2021) with large batches (Nikulin et al. 2022, arXiv 2211.11092). Assumptions: no
    actor, entropy bonus or discount, and a share of the recorded return in each target.
    """

    #: function of (observation space, action space, learning rate by progress) that makes a network
    network: Callable[..., EnsemblePolicy]
    recorded: Callable[[Any], Any]  #: function of the actions: the policy to record
    num_envs: PositiveInt = 512  #: clusters that are recorded, for one episode each
    random_actions: Fraction = 0.1  #: share of recorded actions that are drawn among the valid ones instead
    batch_size: PositiveInt = 4096  #: decisions per gradient step. `decisions` sums them up.
    learning_rate: Positive = 3e-4  #: of Adam at a batch of 256. It grows by the square root of the batch.
    target_rate: Fraction = 0.02  #: step of the target networks towards the networks
    return_share: Fraction = 0.3  #: share of the recorded return to go in the target
    flat, masked, decisions = False, True, 0

    def _build_network(self, observations: Any, actions: Any) -> Any:
        rate = self.learning_rate * math.sqrt(self.batch_size / 256)
        return self.network(observations, actions, lambda progress: rate)

    def setup(self, environments: learners.EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Make the networks, from `seed` or as `saved`. See `Learner.setup`."""
        config = self._config = learners.single_environment(environments)
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        spaces = config.observation.space(config.cluster, config.actions), config.actions.space
        self._networks: Any = nn.ModuleList([self._build_network(*spaces) for _ in range(2)])
        self._network, self._seed, self.decisions = self._networks[0], seed, 0
        if saved is not None:
            learners.restore_network(self._networks, saved, optimizer=self._network.optimizer)
            self.decisions = saved.metadata["decisions"]

    def state(self) -> Checkpoint:
        """Copy the weights, the optimizer's state and the counter. The data are recorded anew."""
        networks = learners.network_state(self._networks, optimizer=self._network.optimizer)
        return networks.merge(Checkpoint({}, {"decisions": self.decisions}))

    def learn(self, total_decisions: int, callback: learners.Callback) -> None:
        """Record the data, then learn up to `total_decisions`, with `callback` every 10 steps."""
        data, names = self.record(), ("train/loss", "train/value", "train/disagreement")
        if not self.decisions:
            self._networks[1].load_state_dict(self._network.state_dict())
        callback({})
        while self.decisions < total_decisions:
            rng = np.random.default_rng((self._seed, self.decisions))
            rows = rng.integers(len(data[1]), size=(10, self.batch_size))
            measured = np.mean([self._step(data, one) for one in rows], axis=0)
            self.decisions += rows.size
            callback(dict(zip(names, measured.tolist(), strict=True)))

    def record(self) -> tuple[Any, ...]:
        """Return recorded (observations, masks, actions, rewards, returns, next decisions by index or -1)."""
        config, rng, records = self._config, np.random.default_rng(self._seed), list[Any]()
        policy, runner = self.recorded(config.actions), EpisodeRunner(config, self.num_envs)

        def act(observations: Any, masks: NDArray[np.bool_], clusters: Any) -> NDArray[np.int64]:
            actions, is_random = policy.act(observations, masks), rng.random(len(masks)) < self.random_actions
            actions[is_random] = np.where(masks, rng.random(masks.shape), -1.0).argmax(1)[is_random]
            records.append((observations, masks, actions))
            return actions

        episodes = runner.run_episodes(np.arange(self.num_envs) % config.num_workloads, act)
        valid, rewards = episodes.valid, episodes.rewards * episodes.valid
        number = np.full((len(valid) + 1, self.num_envs), -1)
        number[:-1][valid] = np.arange(valid.sum())
        columns = rewards, np.cumsum(rewards[::-1], axis=0)[::-1], number[1:]
        return (*map(concatenate_rows, zip(*records, strict=True)), *(one[valid] for one in columns))

    def _step(self, data: tuple[Any, ...], rows: NDArray[np.int64]) -> tuple[float, float, float]:
        """Take a gradient step. Returns (loss, mean value, mean standard deviation between members)."""
        network, target = (one.mlp_extractor for one in self._networks)
        actions, rewards, returns, later = (torch.as_tensor(column[rows]) for column in data[2:])
        blocks = (index_rows(data[0], one) for one in (rows, later.numpy()))
        now, then = (obs_as_tensor(one, self._network.device) for one in blocks)
        with torch.no_grad():
            best = target.forward_actor(then).where(torch.as_tensor(data[1][later]), -torch.inf).amax(1)
            wanted = torch.lerp(rewards + best.masked_fill(later < 0, 0.0), returns, self.return_share)
        values = network.values(now)
        own = values.gather(2, actions.expand(len(values), -1)[..., None])[..., 0]
        loss = ((own - wanted) ** 2).mean(1).sum()
        self._network.optimizer.zero_grad()
        loss.backward()
        self._network.optimizer.step()
        for slow, fast in zip(target.parameters(), network.parameters(), strict=True):
            slow.data.lerp_(fast.data, self.target_rate)
        return loss.item(), own.mean().item(), own.std(0, correction=0).mean().item()
