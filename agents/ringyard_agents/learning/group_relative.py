"""PPO on rounds of whole episodes, groups of which play the same workload."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.utils import obs_as_tensor, set_random_seed

from ringyard.checks import Amount, Count, Positive, checked
from ringyard.mdp.setting import Setting
from ringyard_agents.learning.cloning import CloneTeacher
from ringyard_agents.learning.credit import Credit, group_advantages
from ringyard_agents.learning.greedy import GreedyPolicy
from ringyard_agents.learning.learner import Saved, Watch, only_world
from ringyard_agents.learning.rows import stacked, take
from ringyard_agents.learning.torch_state import (
    network_state,
    random_state,
    restore_network,
    restore_random,
    restore_spaces,
    weights_with_spaces,
)
from ringyard_agents.learning.vec_env import RingyardVecEnv

__all__ = ["GroupRelative"]


class _Round(NamedTuple):
    """The decisions of one round, without those of clusters whose episode was over."""

    observations: Any  # [decisions, size] or {block: [decisions, length]}
    masks: NDArray[np.bool_]  # [decisions, actions]
    actions: NDArray[np.int64]  # [decisions]
    log_probs: NDArray[np.float32]  # [decisions] when they were made
    advantages: NDArray[np.float32]  # [decisions]


@checked("agent")
@dataclass
class GroupRelative:
    """PPO without a critic: every cluster plays one episode a round, groups of clusters the same workload.

    Attributes:
        network: (observation space, action space, learning rate by progress) -> a maskable policy network.
        flat: the network reads one row of numbers a cluster; False: blocks.
        num_envs: clusters played at once, a multiple of `group_size`.
        group_size: episodes of each workload per round, 2 or more.
        credit: how decisions share their episode's return, see `ringyard_agents.learning.credit`.
        learning_rate, n_epochs, batch_size, clip_range, ent_coef, max_grad_norm, target_kl: as in
            Stable-Baselines3's PPO.
        teacher: whom to imitate before learning.
        masked: its policy chooses valid actions only.
    """

    network: Callable[..., MaskableActorCriticPolicy]
    flat: bool = False
    num_envs: Count = 64
    group_size: Annotated[int, "[2, 2147483647]"] = 8
    credit: Credit = "time_aligned"
    learning_rate: Positive = 3e-4
    n_epochs: Count = 3
    batch_size: Count = 4096
    clip_range: Positive = 0.2
    ent_coef: Amount = 1e-3
    max_grad_norm: Positive = 0.5
    target_kl: Positive | None = None
    teacher: CloneTeacher | None = None
    masked: bool = field(default=True, init=False)
    decisions: int = field(default=0, init=False)
    _network: MaskableActorCriticPolicy = field(init=False, repr=False)
    _env: RingyardVecEnv = field(init=False, repr=False)
    _seed: int = field(init=False, repr=False)
    _rng: np.random.RandomState = field(init=False, repr=False)
    _started: bool = field(default=False, init=False, repr=False)

    @property
    def policy(self) -> GreedyPolicy:
        """What has been learnt so far."""
        return GreedyPolicy(self._network, self.flat, self.masked)

    def _build(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> Any:
        return self.network(observation_space, action_space, lambda progress: self.learning_rate)

    def begin(self, worlds: Mapping[str, Setting], seed: int, saved: Saved | None = None) -> None:
        """Make the network, new or as saved, in its only world."""
        setting = only_world(worlds)
        torch.set_num_threads(1)
        set_random_seed(seed)
        self._seed, self._rng, self.decisions, self._started = seed, np.random.RandomState(seed), 0, False
        self._env = RingyardVecEnv(setting, self.num_envs, self.group_size, True, seed)
        self._network = self._build(self._env.observation_space, self._env.action_space)
        if saved is not None:
            self._restore(saved)

    def _restore(self, saved: Saved) -> None:
        facts, arrays = saved.facts, saved.arrays
        restore_network(self._network, saved, self._network.optimizer)
        self.decisions, self._started = facts["decisions"], facts["started"]
        if self._started:
            self._env.restore(arrays)
        self._rng.set_state(("MT19937", arrays["minibatches"], *facts["minibatches"]))
        restore_random(saved)

    def adopt(self, weights: Saved) -> None:
        """Begin with these weights."""
        restore_network(self._network, weights)

    def state(self) -> Saved:
        """Weights, optimiser, counters and random states; between rounds no episode matters."""
        network, random = network_state(self._network, self._network.optimizer), random_state()
        _, keys, *drawn = self._rng.get_state()
        arrays = {**network.arrays, **random.arrays, **self._env.position(), "minibatches": np.array(keys)}
        facts = {"decisions": self.decisions, "started": self._started, "minibatches": drawn}
        return Saved(arrays, {**network.facts, **random.facts, **facts})

    def weights(self) -> Saved:
        """Of the network, and its spaces."""
        network = self._network
        return weights_with_spaces(network.state_dict(), network.observation_space, network.action_space)

    def load(self, saved: Saved) -> GreedyPolicy:
        """The policy of saved weights."""
        network = self._build(*restore_spaces(saved.facts["spaces"]))
        restore_network(network, saved)
        return GreedyPolicy(network, self.flat, self.masked)

    def learn(self, total_decisions: int, watch: Watch) -> None:
        """Clone the teacher, if there is one and nothing was played yet; then play and learn in rounds."""
        measured: dict[str, float] = {}
        if not self._started:
            self._env.reset()
            if self.teacher is not None:
                measured = self.teacher.fit(self._network, self._env, self._seed)
            self._started = True
        watch(measured)
        while self.decisions < total_decisions:
            played, measured = self._play()
            watch(measured | self._update(played))

    def _play(self) -> tuple[_Round, dict[str, float]]:
        """One round, and the mean return and length of its episodes."""
        env = self._env
        self._network.set_training_mode(False)
        observations: Any = env.next_round()
        decided: list[tuple[Any, ...]] = []
        outcomes: list[tuple[Any, ...]] = []
        # a job is started once and a wait passes an arrival or a completion; what stops more is cut off
        most_steps = 4 * env.setting.workload.num_jobs + 8
        while not env.idle.all() and len(decided) < most_steps:
            playing, masks = ~env.idle, env.action_masks().copy()
            times = env.batch.state.clusters["now"].copy()
            with torch.no_grad():
                seen = obs_as_tensor(observations, self._network.device)
                distribution = self._network.get_distribution(seen, action_masks=masks)
                drawn = distribution.get_actions()
                log_probs = distribution.log_prob(drawn).numpy()
            actions = drawn.numpy()
            rows = take(observations, playing)
            decided.append((rows, masks[playing], actions[playing], log_probs[playing]))
            observations, rewards, _, _ = env.step(actions)
            outcomes.append((rewards, times, playing))
            self.decisions += int(playing.sum())
        rewards, times, valid = (np.stack(column) for column in zip(*outcomes, strict=True))
        ends = env.batch.state.clusters["now"].copy()
        advantages = group_advantages(rewards, times, valid, ends, self.group_size, self.credit)
        seen, masks, actions, log_probs = (stacked(column) for column in zip(*decided, strict=True))
        measured = {
            "rollout/ep_rew_mean": float((rewards * valid).sum(0).mean()),
            "rollout/ep_len_mean": float(valid.sum(0).mean()),
        }
        return _Round(seen, masks, actions, log_probs, advantages[valid]), measured

    def _update(self, played: _Round) -> dict[str, float]:
        """Epochs of PPO's clipped updates on a round; means of what they measured."""
        self._network.set_training_mode(True)
        measured: list[dict[str, float]] = []
        count = len(played.actions)
        for _ in range(self.n_epochs):
            order = self._rng.permutation(count)
            for begin in range(0, count, self.batch_size):
                loss, found = self._loss(played, order[begin : begin + self.batch_size])
                measured.append(found)
                if self.target_kl is not None and found["train/approx_kl"] > 1.5 * self.target_kl:
                    return _means(measured)
                self._network.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                torch.nn.utils.clip_grad_norm_(self._network.parameters(), self.max_grad_norm)
                self._network.optimizer.step()
        return _means(measured)

    def _loss(self, played: _Round, rows: NDArray[np.int64]) -> tuple[torch.Tensor, dict[str, float]]:
        """PPO's clipped loss of some decisions with an entropy bonus, and what to plot."""
        seen: Any = obs_as_tensor(take(played.observations, rows), self._network.device)
        values, log_probs, entropy = self._network.evaluate_actions(
            seen, torch.as_tensor(played.actions[rows]), action_masks=torch.as_tensor(played.masks[rows])
        )
        assert entropy is not None  # of a categorical distribution
        log_ratio = log_probs - torch.as_tensor(played.log_probs[rows])
        ratio = torch.exp(log_ratio)
        advantages = torch.as_tensor(played.advantages[rows])
        clipped = torch.clamp(ratio, 1 - self.clip_range, 1 + self.clip_range)
        gain = torch.min(advantages * ratio, advantages * clipped).mean()
        # as PPO with vf_coef=0: the network's critic learns nothing, its gradients are 0
        loss = -gain - self.ent_coef * entropy.mean() + 0.0 * values.mean()
        found = {
            "train/policy_gradient_loss": -gain.item(),
            "train/entropy_loss": -entropy.mean().item(),
            "train/loss": loss.item(),
            "train/approx_kl": (ratio.detach() - 1 - log_ratio.detach()).mean().item(),
            "train/clip_fraction": (torch.abs(ratio - 1) > self.clip_range).float().mean().item(),
        }
        return loss, found


def _means(measured: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in measured])) for name in measured[0]}
