"""PPO without a critic, with advantages within groups of episodes of the same workload (GRPO)."""

from collections.abc import Callable
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
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.cloning import CloneTeacher
from ringyard_agents.learning.episodes import EpisodeBatch, EpisodeRunner, concatenate_rows, index_rows
from ringyard_agents.learning.learner import (
    Callback,
    EnvConfigs,
    network_state,
    random_state,
    restore_network,
    restore_random_state,
    single_environment,
)
from ringyard_agents.learning.policies import NetworkLearner
from ringyard_agents.learning.policy_gradient import (
    Credit,
    DecisionOrder,
    add_gradients,
    clip_and_step,
    clipped_objective,
    group_advantages,
    order_decisions,
)
from ringyard_agents.learning.process_group import Hardware, to_device

#: decisions in one gradient computation of a thread, few enough for its caches
_DECISIONS_PER_PART = 2048

#: TensorBoard tags of the measurements of `add_ppo_gradient`
_MEASURED = ("policy_gradient_loss", "entropy_loss", "loss", "approx_kl", "clip_fraction")
TAGS = tuple(f"train/{name}" for name in _MEASURED)


class DecisionBatch(NamedTuple):
    """Decisions of a round to learn from."""

    observations: Any  #: {block: [decisions, length]} observations
    masks: NDArray[np.bool_]  #: [decisions, actions] True where an action was valid
    actions: NDArray[np.int64]  #: [decisions] chosen actions
    log_probs: NDArray[np.float32]  #: [decisions] log probabilities of the actions when they were chosen
    advantages: NDArray[np.float32]  #: [decisions] advantages

    def select(self, rows: NDArray[np.int64]) -> "DecisionBatch":
        """Return the decisions of some rows, by index."""
        return DecisionBatch(*(index_rows(column, rows) for column in self))


def _log_probs(network: MaskableActorCriticPolicy, observations: Any, masks: NDArray[np.bool_]) -> Tensor:
    """Return [clusters, actions] log probabilities, -1e8 if invalid, without state shared by threads."""
    device = network.device
    tensors: Any = {name: to_device(device, block) for name, block in observations.items()}
    features: Any = network.extract_features(tensors, network.pi_features_extractor)
    logits = network.action_net(network.mlp_extractor.forward_actor(features))
    return torch.log_softmax(logits.masked_fill(~to_device(device, masks), -1e8), 1)


def sample_actions(
    log_probs: Tensor, masks: NDArray[np.bool_], noise: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Sample actions by exponential races: the action with the largest probability / noise is chosen.

    All arrays are [clusters, actions], the noise exponential with rate 1. Returns ([clusters] actions,
    [clusters] their log probabilities). Actions are valid even if the network returns NaN.
    """
    values: NDArray[np.float32] = log_probs.cpu().numpy()
    races = np.where(masks, np.nan_to_num(np.exp(values) / noise), -1.0)
    actions = races.argmax(axis=1)
    return actions, values[np.arange(len(values)), actions]


def add_ppo_gradient(
    network: MaskableActorCriticPolicy,
    decisions: DecisionBatch,
    rows: NDArray[np.int64],
    total: int,
    clip_range: float,
    ent_coef: float,
) -> NDArray[np.float64]:
    """Add the gradient of PPO's clipped loss with an entropy bonus to the gradient of a network.

    `rows` are this process's part of a minibatch, which may be empty, of `total` decisions in all processes.
    Returns [5] this part's share of the minibatch's means, in the order of `TAGS`.
    """
    if not len(rows):
        return np.zeros(len(TAGS))

    def loss_of(rows: NDArray[np.int64]) -> tuple[Tensor, NDArray[np.float64]]:
        part, device = decisions.select(rows), network.device
        all_log_probs = _log_probs(network, part.observations, part.masks)
        entropy = -(torch.softmax(all_log_probs, 1) * all_log_probs).sum()
        log_probs = all_log_probs.gather(1, to_device(device, part.actions)[:, None])[:, 0]
        log_ratio = log_probs - to_device(device, part.log_probs)
        advantages = to_device(device, part.advantages)
        objective, divergence, outside = clipped_objective(log_ratio, advantages, clip_range)
        loss = -(objective + ent_coef * entropy) / total
        measured = (-objective.item(), -entropy.item(), loss.item() * total, divergence, outside)
        return loss, np.array(measured) / total

    num_parts = max(1, round(len(rows) / _DECISIONS_PER_PART))
    return add_gradients(network, loss_of, np.array_split(rows, num_parts))


@checked("agent")
@dataclass
class GroupRelative(NetworkLearner):
    """Learner of discrete actions by PPO without a critic (GRPO).

    In each round, every cluster runs one episode, and the clusters of a group run the same workload.

    Source: PPO (Schulman et al. 2017), advantages within groups (Shao et al. 2024).
    """

    #: function of (observation space, action space, learning rate by progress) that makes a maskable network
    network: Callable[..., MaskableActorCriticPolicy]
    num_envs: PositiveInt = 64  #: clusters of all processes together, a multiple of `group_size`
    group_size: Annotated[int, "[2, 2147483647]"] = 8  #: episodes of each workload in a round
    credit: Credit = "time_aligned"  #: how decisions share their episode's return, see `group_advantages`
    learning_rate: Positive = 3e-4  #: this and the next six as in PPO of Stable-Baselines3
    n_epochs: PositiveInt = 3
    batch_size: PositiveInt = 4096  #: decisions
    clip_range: Positive = 0.2
    ent_coef: NonNegative = 1e-3
    max_grad_norm: Positive = 0.5
    target_kl: Positive | None = None
    teacher: CloneTeacher | None = None  #: imitated before learning
    hardware: Hardware = field(default_factory=Hardware, init=False, repr=False)
    flat: bool = field(default=False, init=False)
    masked: bool = field(default=True, init=False)
    decisions: int = field(default=0, init=False)
    #: number of the next round, from 1 on. 0 before learning starts
    _round: int = field(default=0, init=False, repr=False)

    def _build_network(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Any:
        return self.network(observations, actions, lambda progress: self.learning_rate)

    def setup(self, environments: EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Make network and clusters of the `environments`, from `seed` or as `saved`. See `Learner.setup`."""
        config = single_environment(environments)
        torch.set_num_threads(1)
        set_random_seed(seed)
        self._seed, self._rng, self.decisions, self._round = seed, np.random.RandomState(seed), 0, 0
        local, space = self._local_clusters, config.observation.space(config.cluster, config.actions)
        self._runner = EpisodeRunner(config, local.stop - local.start)
        self._network = self._build_network(space, config.actions.space).to(self.hardware.device)
        if saved is None:
            return
        metadata, arrays = saved.metadata, saved.arrays
        restore_network(self._network, saved, self._network.optimizer)
        self.decisions = metadata["decisions"]
        if metadata["started"]:
            rounds = np.unique(arrays["episodes"])
            if len(rounds) != 1 or rounds[0] < 1:
                raise CheckpointError("the saved counts of episodes differ between clusters")
            self._round = int(rounds[0])
        self._rng.set_state(("MT19937", arrays["minibatches"], *metadata["minibatches"]))
        restore_random_state(saved)

    @property
    def _local_clusters(self) -> slice:
        """The clusters of this process among those of all processes."""
        if self.num_envs % self.group_size:
            expected = f"expected a multiple of agent.group_size, {self.group_size}"
            raise ConfigurationError(f"agent.num_envs is {self.num_envs}; {expected}")
        groups = self.num_envs // self.group_size
        process_group, size = self.hardware.process_group, self.group_size
        return process_group.local_slice("agent.num_envs / agent.group_size", groups, size)

    def state(self) -> Checkpoint:
        """Copy the weights, the optimizer's state, counters and random states. No episode is under way."""
        _, keys, *drawn = self._rng.get_state()
        arrays = {"episodes": np.full(self.num_envs, self._round), "minibatches": np.array(keys)}
        metadata = {"decisions": self.decisions, "started": self._round > 0, "minibatches": drawn}
        network = network_state(self._network, self._network.optimizer)
        return network.merge(random_state()).merge(Checkpoint(arrays, metadata))

    def learn(self, total_decisions: int, callback: Callback) -> None:
        """Imitate the teacher, then learn up to `total_decisions`, with `callback` between rounds."""
        scalars: dict[str, float] = {}
        if not self._round:
            self._round = 1
            if self.teacher is not None:
                scalars = self._imitate(self.teacher)
        callback(scalars)
        while self.decisions < total_decisions:
            decisions, order, scalars = self._collect()
            callback(scalars | self._update(decisions, order))

    def _imitate(self, teacher: CloneTeacher) -> dict[str, float]:
        """Fit the network to the teacher, in process 0 for all. Returns {TensorBoard tag: value}."""
        process_group, scalars = self.hardware.process_group, {}
        if process_group.rank == 0:
            recorder, steps = teacher.recorder(self._runner.config), teacher.demonstration_steps
            while steps > 0:
                self._begin_round()
                steps -= len(self._runner.continue_episodes(recorder, max_decisions=steps).times)
            scalars = teacher.fit(self._network, recorder, self._seed)
        result = self._network.state_dict(), random_state(), self._round, scalars
        weights, random, self._round, scalars = process_group.broadcast(result)
        if process_group.rank > 0:
            self._network.load_state_dict(weights)
            restore_random_state(random)
        return scalars

    def _begin_round(self) -> None:
        self._runner.reset(self._draw_workloads(self._round))
        self._round += 1
        self._runner.batch.workload_cache.prefetch(self._draw_workloads(self._round))

    def _draw_workloads(self, number: int) -> NDArray[np.int64]:
        """Draw [local clusters] indices of job tables for round `number`. Each group has its own stream."""
        local, num_workloads = self._local_clusters, self._runner.config.num_workloads
        groups = range(local.start // self.group_size, local.stop // self.group_size)
        streams = [np.random.default_rng((self._seed, group)) for group in groups]
        drawn = [stream.integers(num_workloads, size=number + 1)[-1] for stream in streams]
        return np.repeat(drawn, self.group_size)

    def _collect(self) -> tuple[DecisionBatch, DecisionOrder, dict[str, float]]:
        """Run a round: (this process's decisions, order of all processes' decisions, {tag: value})."""
        self._network.set_training_mode(False)
        self._begin_round()
        records: list[tuple[Any, ...]] = []

        @torch.inference_mode()
        def act(observations: Any, masks: NDArray[np.bool_], clusters: NDArray[np.int64]) -> Any:
            log_probs = _log_probs(self._network, observations, masks)
            actions, chosen = sample_actions(log_probs, masks, self._noise()[clusters])
            records.append((observations, masks, actions, chosen))
            return actions

        # A job starts once, and waiting ends at an arrival or a completion. Longer episodes are cut off.
        most = 4 * self._runner.config.workload.num_jobs + 8
        episodes = self._runner.continue_episodes(act, max_decisions=most)
        advantages = group_advantages(*episodes, self.group_size, self.credit)[episodes.valid]
        observations, masks, actions, log_probs = map(concatenate_rows, zip(*records, strict=True))
        order = order_decisions(self.hardware.process_group, [episodes.valid])
        decisions = DecisionBatch(observations, masks, actions, log_probs, advantages)
        return decisions, order, self._count(episodes)

    def _noise(self) -> NDArray[np.float32]:
        """Draw [local clusters, actions] noise. All processes draw that of all clusters, to stay in step."""
        size = (self.num_envs, self._runner.batch.masks.shape[1])
        drawn: NDArray[np.float32] = torch.empty(size).exponential_().numpy()
        return drawn[self._local_clusters]

    def _count(self, episodes: EpisodeBatch) -> dict[str, float]:
        """Count a round's decisions, and draw noise as often as the longest process. Returns {tag: mean}."""
        process_group, steps = self.hardware.process_group, len(episodes.times)
        for _ in range(int(process_group.gather(np.array([steps])).max()) - steps):
            self._noise()
        sums = [(episodes.rewards * episodes.valid).sum(dtype=np.float64), episodes.valid.sum()]
        returns, decisions = process_group.sum_values(np.array(sums))
        self.decisions += int(decisions)
        clusters = self.num_envs
        return {"rollout/ep_rew_mean": returns / clusters, "rollout/ep_len_mean": decisions / clusters}

    def _update(self, decisions: DecisionBatch, order: DecisionOrder) -> dict[str, float]:
        """Take gradient steps on a round for `n_epochs` epochs. Returns the means of `TAGS`."""
        network, process_group = self._network, self.hardware.process_group
        network.set_training_mode(True)
        measured: list[NDArray[np.float64]] = []
        count = len(order.counts)
        for _ in range(self.n_epochs):
            shuffled = self._rng.permutation(count)
            for begin in range(0, count, self.batch_size):
                batch = shuffled[begin : begin + self.batch_size]
                network.optimizer.zero_grad()
                local = order.to_local_indices(batch)
                part = add_ppo_gradient(network, decisions, local, len(batch), self.clip_range, self.ent_coef)
                measured.append(process_group.sum_values(part))
                if self.target_kl is not None and measured[-1][3] > 1.5 * self.target_kl:
                    return _means(measured)
                clip_and_step(network, network.optimizer, process_group, self.max_grad_norm)
        return _means(measured)


def _means(measured: list[NDArray[np.float64]]) -> dict[str, float]:
    return dict(zip(TAGS, np.mean(measured, axis=0).tolist(), strict=True))
