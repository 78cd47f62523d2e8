"""PPO without a critic, on rounds of whole episodes in groups that play the same workload."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.utils import set_random_seed
from torch import Tensor

from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.cloning import CloneTeacher
from ringyard_agents.learning.episodes import Episodes, World, stacked, take
from ringyard_agents.learning.learner import (
    Callback,
    network_state,
    only_world,
    random_state,
    restore_network,
    restore_random,
)
from ringyard_agents.learning.policies import NetworkLearner
from ringyard_agents.learning.policy_gradient import (
    Credit,
    RoundOrder,
    add_gradients,
    clipped_gain,
    descend,
    group_advantages,
    round_order,
)
from ringyard_agents.learning.process_group import Hardware, on

#: decisions whose gradient a thread computes in one call: few enough for its caches
_PART = 2048

#: TensorBoard tags of the measurements of `add_ppo_gradient`
CURVES = (
    "train/policy_gradient_loss",
    "train/entropy_loss",
    "train/loss",
    "train/approx_kl",
    "train/clip_fraction",
)


class Choices(NamedTuple):
    """Decisions to learn from.

    Attributes:
        observations: {block: [decisions, length]}.
        masks: [decisions, actions] True where an action was valid.
        actions: [decisions] chosen actions.
        log_probs: [decisions] logarithms of their probabilities when they were chosen.
        advantages: [decisions].
    """

    observations: Any
    masks: NDArray[np.bool_]
    actions: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    advantages: NDArray[np.float32]

    def some(self, rows: NDArray[np.int64]) -> "Choices":
        """The decisions of some rows."""
        return Choices(*(take(column, rows) for column in self))


def _log_probs(network: MaskableActorCriticPolicy, observations: Any, masks: NDArray[np.bool_]) -> Tensor:
    """[clusters, actions] log probabilities, -1e8 or less where an action is not valid.

    The network's own distribution is stateful, and threads may share a network.
    """
    device = network.device
    seen: Any = {name: on(device, block) for name, block in observations.items()}
    features: Any = network.extract_features(seen, network.pi_features_extractor)
    logits = network.action_net(network.mlp_extractor.forward_actor(features))
    return torch.log_softmax(logits.masked_fill(~on(device, masks), -1e8), 1)


def choose(
    log_probs: Tensor, masks: NDArray[np.bool_], noise: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Sample actions by the exponential race: the largest probability over noise wins.

    Args:
        log_probs: [clusters, actions].
        masks: [clusters, actions] True where an action is valid.
        noise: [clusters, actions] drawn from the exponential distribution of rate 1.

    Returns:
        ([clusters] actions, [clusters] their log probabilities). Actions are valid even if the network
        returns NaN.
    """
    known: NDArray[np.float32] = log_probs.cpu().numpy()
    drawn = np.where(masks, np.nan_to_num(np.exp(known) / noise), -1.0)
    actions = drawn.argmax(axis=1)
    return actions, known[np.arange(len(known)), actions]


def add_ppo_gradient(
    network: MaskableActorCriticPolicy,
    choices: Choices,
    rows: NDArray[np.int64],
    total: int,
    clip_range: float,
    ent_coef: float,
) -> NDArray[np.float64]:
    """Add the gradient of PPO's clipped loss with an entropy bonus to a network's gradient.

    Args:
        network: learns.
        choices: of a round.
        rows: this process's part of a minibatch, which may be empty.
        total: decisions in the minibatch, in all processes.
        clip_range: of the ratio of probabilities.
        ent_coef: weight of the entropy.

    Returns:
        [5] this part's share of the minibatch's means of `CURVES`.
    """
    if not len(rows):
        return np.zeros(len(CURVES))

    def loss_of(rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.float64]]:
        part, device = choices.some(rows), network.device
        possible = _log_probs(network, part.observations, part.masks)
        entropy = -(torch.softmax(possible, 1) * possible).sum()
        now = possible.gather(1, on(device, part.actions)[:, None])[:, 0]
        log_ratio = now - on(device, part.log_probs)
        gain, moved, outside = clipped_gain(log_ratio, on(device, part.advantages), clip_range)
        loss = -(gain + ent_coef * entropy) / total
        found = (-gain.item(), -entropy.item(), loss.item() * total, moved, outside)
        return loss, np.array(found) / total

    return add_gradients(network, loss_of, np.array_split(rows, max(1, round(len(rows) / _PART))))


@checked("agent")
@dataclass
class GroupRelative(NetworkLearner):
    """PPO without a critic: every cluster plays one episode a round, groups of clusters the same workload.

    Attributes:
        network: (observation space, action space, learning rate by progress) -> a maskable policy network.
        num_envs: clusters of all processes together, a multiple of `group_size`.
        group_size: episodes of each workload in a round, 2 or more.
        credit: how decisions share their episode's return, see `group_advantages`.
        learning_rate, n_epochs, batch_size, clip_range, ent_coef, max_grad_norm, target_kl: as in
            Stable-Baselines3's PPO.
        teacher: imitated before learning.
        hardware: device and processes.
        masked: True, its policy chooses valid actions only.
    """

    network: Callable[..., MaskableActorCriticPolicy]
    num_envs: PositiveInt = 64
    group_size: Annotated[int, "[2, 2147483647]"] = 8
    credit: Credit = "time_aligned"
    learning_rate: Positive = 3e-4
    n_epochs: PositiveInt = 3
    batch_size: PositiveInt = 4096
    clip_range: Positive = 0.2
    ent_coef: NonNegative = 1e-3
    max_grad_norm: Positive = 0.5
    target_kl: Positive | None = None
    teacher: CloneTeacher | None = None
    hardware: Hardware = field(default_factory=Hardware, init=False, repr=False)
    flat: bool = field(default=False, init=False)
    masked: bool = field(default=True, init=False)
    decisions: int = field(default=0, init=False)
    #: number of the next round, from 1 on; 0 before learning starts
    _round: int = field(default=0, init=False, repr=False)

    def _trained(self) -> MaskableActorCriticPolicy:
        return self._network

    def _build(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]) -> Any:
        return self.network(observation_space, action_space, lambda progress: self.learning_rate)

    def setup(self, worlds: Mapping[str, EnvConfig], seed: int, saved: Checkpoint | None = None) -> None:
        """Make the network, new or as saved, and its only environment."""
        setting = only_world(worlds)
        torch.set_num_threads(1)
        set_random_seed(seed)
        self._seed, self._rng, self.decisions, self._round = seed, np.random.RandomState(seed), 0, 0
        own, space = self._own, setting.observation.space(setting.cluster, setting.actions)
        self._world = World(setting, own.stop - own.start)
        self._network = self._build(space, setting.actions.space).to(self.hardware.device)
        if saved is None:
            return
        facts, arrays = saved.facts, saved.arrays
        restore_network(self._network, saved, self._network.optimizer)
        self.decisions = facts["decisions"]
        if facts["started"]:
            rounds = np.unique(arrays["episodes"])
            if len(rounds) != 1 or rounds[0] < 1:
                raise CheckpointError("the saved episodes are not those of clusters that play in rounds")
            self._round = int(rounds[0])
        self._rng.set_state(("MT19937", arrays["minibatches"], *facts["minibatches"]))
        restore_random(saved)

    @property
    def _own(self) -> slice:
        """The clusters of this process among all."""
        if self.num_envs % self.group_size:
            raise ConfigurationError(
                f"agent.num_envs is {self.num_envs}; expected a multiple of agent.group_size,"
                f" {self.group_size}"
            )
        groups = self.num_envs // self.group_size
        return self.hardware.peers.part("agent.num_envs / agent.group_size", groups, self.group_size)

    def state(self) -> Checkpoint:
        """Weights, optimiser, counters and random states; no episode runs between rounds."""
        _, keys, *drawn = self._rng.get_state()
        arrays = {"episodes": np.full(self.num_envs, self._round), "minibatches": np.array(keys)}
        facts = {"decisions": self.decisions, "started": self._round > 0, "minibatches": drawn}
        network = network_state(self._network, self._network.optimizer)
        return network.joined(random_state()).joined(Checkpoint(arrays, facts))

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Clone the teacher, if there is one and learning starts, then play and learn in rounds."""
        measured: dict[str, float] = {}
        if not self._round:
            self._round = 1
            if self.teacher is not None:
                measured = self._imitate(self.teacher)
        callback(measured)
        while self.decisions < total_decisions:
            choices, order, measured = self._play()
            callback(measured | self._update(choices, order))

    def _imitate(self, teacher: CloneTeacher) -> dict[str, float]:
        """Fit the network to the teacher, in the first process for all; returns {curve: value}."""
        peers, measured = self.hardware.peers, {}
        if peers.rank == 0:
            watched, steps = teacher.watched(self._world.config.actions), teacher.steps
            while steps > 0:
                self._begin_round()
                steps -= len(self._world.go_on(watched, events=steps).times)
            measured = teacher.fit(self._network, watched, self._seed)
        known = self._network.state_dict(), random_state(), self._round, measured
        weights, random, self._round, measured = peers.from_first(known)
        if peers.rank > 0:
            self._network.load_state_dict(weights)
            restore_random(random)
        return measured

    def _begin_round(self) -> None:
        self._world.reset(self._entries(self._round))
        self._round += 1
        self._world.batch.workload_cache.prefetch(self._entries(self._round))

    def _entries(self, number: int) -> NDArray[np.int64]:
        """[own clusters] job tables of a round; each group draws its own."""
        own, most = self._own, self._world.config.num_workloads
        groups = range(own.start // self.group_size, own.stop // self.group_size)
        drawn = [np.random.default_rng((self._seed, g)).integers(most, size=number + 1)[-1] for g in groups]
        return np.repeat(drawn, self.group_size)

    def _play(self) -> tuple[Choices, RoundOrder, dict[str, float]]:
        """Play a round: (own decisions, order of all processes' decisions, {curve: value})."""
        self._network.set_training_mode(False)
        self._begin_round()
        decided: list[tuple[Any, ...]] = []

        def player(observations: Any, masks: NDArray[np.bool_], clusters: NDArray[np.int64]) -> Any:
            actions, log_probs = self._decide(observations, masks, self._noise()[clusters])
            decided.append((observations, masks, actions, log_probs))
            return actions

        # a job starts once, and a wait ends at an arrival or a completion; longer episodes are cut off
        played = self._world.go_on(player, events=4 * self._world.config.workload.num_jobs + 8)
        advantages = group_advantages(*played, self.group_size, self.credit)[played.valid]
        seen, masks, actions, log_probs = (stacked(column) for column in zip(*decided, strict=True))
        order = round_order(self.hardware.peers, [played.valid])
        return Choices(seen, masks, actions, log_probs, advantages), order, self._count(played)

    @torch.inference_mode()
    def _decide(
        self, observations: Any, masks: NDArray[np.bool_], noise: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Sampled actions and their log probabilities, see `choose`."""
        return choose(_log_probs(self._network, observations, masks), masks, noise)

    def _noise(self) -> NDArray[np.float32]:
        """[own clusters, actions] noise for `choose`, drawn for all clusters so that processes stay alike."""
        size = (self.num_envs, self._world.batch.masks.shape[1])
        drawn: NDArray[np.float32] = torch.empty(size).exponential_().numpy()
        return drawn[self._own]

    def _count(self, played: Episodes) -> dict[str, float]:
        """Count a round's decisions, and draw noise as often as the longest process; {curve: value}."""
        peers, clusters, steps = self.hardware.peers, self.num_envs, len(played.times)
        for _ in range(int(peers.gathered(np.array([steps])).max()) - steps):
            self._noise()
        sums = [(played.rewards * played.valid).sum(dtype=np.float64), played.valid.sum()]
        returns, decisions = peers.sums(np.array(sums))
        self.decisions += int(decisions)
        return {"rollout/ep_rew_mean": returns / clusters, "rollout/ep_len_mean": decisions / clusters}

    def _update(self, choices: Choices, order: RoundOrder) -> dict[str, float]:
        """Take gradient steps on a round for some epochs; returns means of `CURVES`."""
        network, peers = self._network, self.hardware.peers
        network.set_training_mode(True)
        measured: list[NDArray[np.float64]] = []
        count = len(order.counts)
        for _ in range(self.n_epochs):
            every = self._rng.permutation(count)
            for begin in range(0, count, self.batch_size):
                batch = every[begin : begin + self.batch_size]
                network.optimizer.zero_grad()
                own = order.among_own(batch)
                part = add_ppo_gradient(network, choices, own, len(batch), self.clip_range, self.ent_coef)
                measured.append(peers.sums(part))
                if self.target_kl is not None and measured[-1][3] > 1.5 * self.target_kl:
                    return _means(measured)
                descend(network, network.optimizer, peers, self.max_grad_norm)
        return _means(measured)


def _means(measured: list[NDArray[np.float64]]) -> dict[str, float]:
    return dict(zip(CURVES, np.mean(measured, axis=0).tolist(), strict=True))
