"""Proximal policy optimisation (PPO) in one file: rollouts, advantages, the clipped loss, gradient steps."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.distributions import DiagGaussianDistribution, StateDependentNoiseDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import explained_variance, obs_as_tensor, set_random_seed
from stable_baselines3.common.vec_env.base_vec_env import VecEnv
from torch import Tensor

from ringyard.checks import Fraction, NonNegative, Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard.threads import get_num_threads, run_in_parts
from ringyard_agents.learning import learner as learners
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.episodes import concatenate_rows, index_rows
from ringyard_agents.learning.policies import NetworkLearner
from ringyard_agents.learning.process_group import Hardware, to_device
from ringyard_agents.learning.score_networks import Floats, Ids, Masks
from ringyard_agents.learning.vec_env import RingyardVecEnv, require_rollout_memory

_DECISIONS_PER_PART = 2048  #: decisions in one gradient computation of a thread, few enough for its caches
_CLIP = 10.0  #: normalised observations and rewards are clipped to this absolute value, as by VecNormalize

_MEASURED = ("policy_gradient_loss", "entropy_loss", "value_loss", "loss", "approx_kl", "clip_fraction")
TAGS = tuple(f"train/{name}" for name in _MEASURED)  #: TensorBoard tags of the results of `add_ppo_gradient`
_KL = _MEASURED.index("approx_kl")


class DecisionBatch(NamedTuple):
    """Decisions to learn from."""

    observations: Any  #: [decisions, size] or {block: [decisions, length]} observations
    masks: Masks  #: [decisions, actions] True where an action was valid ([decisions, 1] without)
    actions: NDArray[Any]  #: [decisions, ...] chosen actions
    log_probs: Floats  #: [decisions] log probabilities of the actions when they were chosen
    advantages: Floats  #: [decisions] advantages
    returns: Floats  #: [decisions] targets of the critic. Not read if vf_coef is 0.


class Categorical:
    """Distributions over discrete actions, of [decisions, actions] logits and masks (None: all are valid)."""

    def __init__(self, logits: Tensor, masks: Masks | None) -> None:
        if masks is not None:
            logits = logits.masked_fill(~to_device(logits.device, masks), -1e8)
        self.log_probs, self.masks = torch.log_softmax(logits, 1), masks

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return [decisions] log probabilities of [decisions] actions."""
        return self.log_probs.gather(1, actions[:, None])[:, 0]

    def entropy(self) -> Tensor:
        """Return [decisions] entropies."""
        return -(torch.softmax(self.log_probs, 1) * self.log_probs).sum(1)


Distribution = Categorical | DiagGaussianDistribution | StateDependentNoiseDistribution


def sample_actions(distribution: Distribution, noise: Floats | None) -> NDArray[Any]:
    """Turn [decisions, size] noise into actions: exponential for discrete ones, else standard normal.

    Without noise, they are drawn with that of `draw_lasting_noise`. Discrete actions are drawn by exponential
    races: the largest probability / noise wins. They are valid even if the network returns NaN.
    """
    if isinstance(distribution, Categorical):
        assert noise is not None
        races = np.nan_to_num(np.exp(distribution.log_probs.cpu().numpy()) / noise)
        valid = distribution.masks
        return (races if valid is None else np.where(valid, races, -1.0)).argmax(axis=1)
    if noise is None:
        return np.asarray(distribution.sample().cpu())
    normal: Any = distribution.distribution
    drawn = normal.mean + normal.stddev * to_device(normal.mean.device, noise)
    return np.asarray((drawn * getattr(distribution, "present", 1.0)).cpu())  # no job, no score


def draw_noise(actions: spaces.Space[Any], clusters: int) -> Floats:
    """Draw [clusters, size] noise for `sample_actions`, by torch's generator."""
    empty = torch.empty(clusters, spaces.flatdim(actions))
    return np.asarray(empty.exponential_() if isinstance(actions, spaces.Discrete) else empty.normal_())


def draw_lasting_noise(network: ActorCriticPolicy, clusters: int, local: slice) -> None:
    """Draw the noise of a round for a number of clusters, by `use_sde`, and keep that of the `local` ones."""
    network.reset_noise(clusters)
    dist: Any = network.action_dist
    name = "exploration_matrices" if isinstance(dist, StateDependentNoiseDistribution) else "noise"
    setattr(dist, name, getattr(dist, name)[local])


def in_bounds(actions: NDArray[Any], space: spaces.Space[Any]) -> NDArray[Any]:
    """Return continuous actions clipped to their space, and discrete ones as they are."""
    return actions.clip(space.low, space.high) if isinstance(space, spaces.Box) else actions


def evaluate_network(
    network: ActorCriticPolicy, observations: Any, masks: Masks, with_values: bool = True
) -> tuple[Distribution, Tensor]:
    """Return the distributions of the actions and [decisions] values of the critic ([0] without).

    Nothing is stored in the network, so that threads can share it. `masks` [decisions, actions] are read by
    maskable policies.
    """
    tensors = obs_as_tensor(observations, network.device)
    features: Any = network.extract_features(tensors, network.pi_features_extractor)
    if with_values:
        latent, critic = network.mlp_extractor(features)
        values = network.value_net(critic)[:, 0]
    else:
        latent = network.mlp_extractor.forward_actor(features)
        values = latent.new_zeros(0)
    outputs = network.action_net(latent)
    if isinstance(network.action_space, spaces.Discrete):
        masked = isinstance(network, MaskableActorCriticPolicy)
        return Categorical(outputs, masks if masked else None), values
    dist: Any = copy(network.action_dist)
    features = (latent,) if isinstance(dist, StateDependentNoiseDistribution) else ()
    return dist.proba_distribution(outputs, network.log_std, *features), values


def generalized_advantages(
    rewards: Floats, values: Floats, ended: Masks, last_values: Floats, gamma: float, gae_lambda: float
) -> Floats:
    """Return [steps, envs] advantages A_t = sum over k of (gamma lambda)^k delta_(t+k) within an episode.

    delta_t = r_t + gamma V_(t+1) - V_t. Arrays are [steps, envs]: `ended` says that an episode ended with the
    step, after which V_(t+1) counts as 0. `last_values` [envs] are those of the observations after the last
    step.

    Source: generalised advantage estimation (Schulman et al. 2016, equation 16).
    """
    advantages, following, later = np.zeros_like(values), last_values, np.zeros_like(last_values)
    for t in reversed(range(len(rewards))):
        not_ended = 1.0 - ended[t]
        delta = rewards[t] + gamma * following * not_ended - values[t]
        advantages[t] = later = delta + gamma * gae_lambda * not_ended * later
        following = values[t]
    return advantages


def add_ppo_gradient(
    network: ActorCriticPolicy,
    batch: DecisionBatch,
    rows: Ids,
    total: int,
    clip_range: float,
    ent_coef: float,
    vf_coef: float = 0.0,
    center_and_scale: tuple[float, float] = (0.0, 1.0),
) -> NDArray[np.float64]:
    """Add the gradient of PPO's loss, computed in parts by threads, to the gradient of a network.

    The loss is -(clipped surrogate objective + ent_coef x entropy) + vf_coef x squared error of the critic
    (Schulman et al. 2017, equations 7 and 9). Advantages count as (advantage - center) / scale.

    `rows` are this process's part of a minibatch, which may be empty, of `total` decisions in all processes.
    Returns [6] this part's share of the minibatch's means, in the order of `TAGS`. Sums have the same bits
    for any number of threads.
    """
    if not len(rows):
        return np.zeros(len(TAGS))
    (center, scale), parameters = center_and_scale, [one for one in network.parameters() if one.requires_grad]
    parts = np.array_split(rows, max(1, round(len(rows) / _DECISIONS_PER_PART)))

    def loss_of(rows: Ids) -> tuple[Tensor, NDArray[np.float64]]:
        part, device = DecisionBatch(*(index_rows(column, rows) for column in batch)), network.device
        distribution, values = evaluate_network(network, part.observations, part.masks, vf_coef > 0)
        entropies: Any = distribution.entropy()
        entropy = entropies.sum()
        log_ratio = distribution.log_prob(to_device(device, part.actions)) - to_device(device, part.log_probs)
        advantages = (to_device(device, part.advantages) - center) / scale
        ratio = torch.exp(log_ratio)
        clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
        objective = torch.min(advantages * ratio, advantages * clipped).sum()
        loss, error = -(objective + ent_coef * entropy), torch.zeros(())
        if vf_coef > 0:
            error = ((to_device(device, part.returns) - values) ** 2).sum()
            loss = loss + vf_coef * error
        with torch.no_grad():
            divergence, outside = (ratio - 1 - log_ratio).sum(), (torch.abs(ratio - 1) > clip_range).sum()
        sums = -objective, -entropy, error, loss, divergence, outside
        return loss / total, np.array([one.item() for one in sums]) / total

    def gradients_of(indices: Ids) -> list[tuple[tuple[Tensor | None, ...], Any]]:
        torch.set_num_threads(1)  # applies to the current thread
        losses = (loss_of(parts[i]) for i in indices.tolist())
        return [(torch.autograd.grad(loss, parameters, allow_unused=True), found) for loss, found in losses]

    threads = get_num_threads() if network.device.type == "cpu" else 1
    results = [one for some in run_in_parts(gradients_of, np.arange(len(parts)), threads, 1) for one in some]
    for gradients, _ in results:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return np.cumsum([measured for _, measured in results], axis=0)[-1]  # a sum in the order of the parts


@dataclass
class ClippedLearner(NetworkLearner, ABC):
    """Base class of PPO and its variants: rounds of decisions, and steps along the clipped objective."""

    #: function of (observation space, action space, learning rate by progress) that makes a policy network
    #: of Stable-Baselines3 or sb3-contrib
    network: Callable[..., ActorCriticPolicy]
    _: KW_ONLY
    num_envs: PositiveInt = 64  #: clusters of all processes together
    learning_rate: Positive = 3e-4  #: this and the next six mean what they do in Stable-Baselines3
    n_epochs: PositiveInt = 4
    batch_size: PositiveInt = 512  #: decisions
    clip_range: Positive = 0.2
    ent_coef: NonNegative = 0.0
    max_grad_norm: Positive = 0.5
    target_kl: Positive | None = None
    hardware: Hardware = field(default_factory=Hardware, init=False, repr=False)
    masked: bool = field(init=False)  #: whether the network is a maskable policy
    flat, vf_coef, normalize_advantage = False, 0.0, False  # arguments of `PPO`
    lasting_noise = False  # whether the network may have use_sde
    decisions, _round = 0, 0  # the second: number of the next round, in `GroupRelative`

    def __post_init__(self) -> None:
        made: Any = getattr(self.network, "func", self.network)
        self.masked = isinstance(made, type) and issubclass(made, MaskableActorCriticPolicy)

    @abstractmethod
    def _make_clusters(self, config: EnvConfig) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """Make this process's clusters. Returns their observation space and their action space."""

    @abstractmethod
    def _collect(self) -> tuple[DecisionBatch, Ids, dict[str, float]]:
        """Play a round: (decisions of this process, indices among these of all processes', {tag: value})."""

    def _prepare(self) -> dict[str, float]:
        """Get ready for the first round of a run, new or resumed. Returns {TensorBoard tag: value}."""
        return {}

    def _build_network(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Any:
        return self.network(observations, actions, lambda progress: self.learning_rate)

    def setup(self, environments: learners.EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Make network and clusters of the `environments`, from `seed` or as `saved`. See `Learner.setup`."""
        torch.set_num_threads(1)
        set_random_seed(seed % 2**32)
        self._seed, self._rng = seed, np.random.RandomState(seed % 2**32)
        self.decisions, self._round = 0, 0
        spaces = self._make_clusters(learners.single_environment(environments))
        self._network = self._build_network(*spaces).to(self.hardware.device)
        self._noise_lasts: bool = getattr(self._network, "use_sde", False)  # maskable policies do not have it
        if self._noise_lasts > self.lasting_noise or not self._network.share_features_extractor:
            expected = "" if self.lasting_noise else "use_sde=false, "
            raise ConfigurationError(f"agent.network: expected {expected}share_features_extractor=true")
        if saved is None:
            return
        learners.restore_network(self._network, saved, optimizer=self._network.optimizer)
        metadata = saved.metadata
        self.decisions, self._round = metadata["decisions"], metadata["rounds"]
        self._rng.set_state(("MT19937", saved.arrays["minibatches"], *metadata["minibatches"]))
        learners.restore_random_state(saved)

    def state(self) -> Checkpoint:
        """Copy the weights, the optimizer's state, counters and random states."""
        _, keys, *drawn = self._rng.get_state()
        metadata = {"decisions": self.decisions, "rounds": self._round, "minibatches": drawn}
        counters = Checkpoint({"minibatches": np.array(keys)}, metadata)
        network = learners.network_state(self._network, optimizer=self._network.optimizer)
        return network.merge(learners.random_state()).merge(counters)

    def learn(self, total_decisions: int, callback: learners.Callback) -> None:
        """Learn up to `total_decisions`, with `callback` between rounds. See `Learner.learn`."""
        callback(self._prepare())
        while self.decisions < total_decisions:
            batch, local_rows, measured = self._collect()
            callback(measured | self._update(batch, local_rows))

    def _update(self, batch: DecisionBatch, local_rows: Ids) -> dict[str, float]:
        """Take gradient steps on a round for `n_epochs` epochs. Returns the means of `TAGS`."""
        network, process_group = self._network, self.hardware.process_group
        network.set_training_mode(True)
        parameters, measured = list(network.parameters()), list[NDArray[np.float64]]()
        for _ in range(self.n_epochs):
            shuffled = self._rng.permutation(len(local_rows))
            for begin in range(0, len(local_rows), self.batch_size):
                drawn = local_rows[shuffled[begin : begin + self.batch_size]]
                rows, total = drawn[drawn >= 0], len(drawn)
                network.optimizer.zero_grad()
                coefficients = self.clip_range, self.ent_coef, self.vf_coef
                scale = self._center_and_scale(batch.advantages[rows], total)
                part = add_ppo_gradient(network, batch, rows, total, *coefficients, scale)
                measured.append(part)
                if self.target_kl is not None:
                    divergence = process_group.sum_values(part[_KL : _KL + 1])[0]
                    if divergence > 1.5 * self.target_kl:
                        return self._means(measured)
                process_group.sum_gradients(parameters)
                torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
                network.optimizer.step()
        return self._means(measured)

    def _means(self, measured: list[NDArray[np.float64]]) -> dict[str, float]:
        """Return the mean over minibatches of what all processes measured together, by tag."""
        sums = self.hardware.process_group.sum_values(np.array(measured))
        return dict(zip(TAGS, sums.mean(axis=0).tolist(), strict=True))

    def _center_and_scale(self, advantages: Floats, total: int) -> tuple[float, float]:
        """Return mean and standard deviation of the advantages of a minibatch of `total` in all processes."""
        if not self.normalize_advantage or total < 2:
            return 0.0, 1.0
        own = advantages.astype(np.float64)
        mean, squares = self.hardware.process_group.sum_values(np.array([own.sum(), own @ own])) / total
        return mean, (max(squares - mean**2, 0.0) * total / (total - 1)) ** 0.5 + 1e-8


class NormalizedObservations(FlattenExtractor):
    """Features extractor that standardises rows by mean and variance over all rounds, saved as buffers."""

    moments: Tensor

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space)
        moments = torch.tensor([0.0, 1.0, 1e-4], dtype=torch.float64).repeat(self.features_dim, 1)
        self.register_buffer("moments", moments.T.contiguous())  # [3, size] mean, variance and count

    def forward(self, observations: Tensor) -> Tensor:
        """Return [decisions, size] standardised `observations`, clipped."""
        mean, variance, _ = self.moments
        scaled = (super().forward(observations) - mean) / torch.sqrt(variance + 1e-8)
        return scaled.clamp(-_CLIP, _CLIP).float()

    def update(self, observations: Floats) -> None:
        """Take in the [decisions, size] observations of a round."""
        stats, rows = RunningMeanStd(), observations.astype(np.float64)
        stats.mean, stats.var, stats.count = self.moments.cpu().numpy()
        stats.update(rows)
        self.moments.copy_(torch.as_tensor(np.stack((stats.mean, stats.var, stats.count))))


@checked("agent")
@dataclass(kw_only=True)
class PPO(ClippedLearner):
    """PPO with a critic, for weights, scores of jobs and discrete actions with masks.

    In each round, every cluster makes `n_steps` decisions; episodes go on from round to round.

    Source: PPO (Schulman et al. 2017) with generalised advantages (Schulman et al. 2016).
    """

    lasting_noise = True
    flat: bool = True  #: True if the network reads one row of numbers per cluster, False if it reads blocks
    n_steps: PositiveInt = 128  #: decisions of each cluster in a round
    gamma: Fraction = 0.99
    gae_lambda: Fraction = 0.95
    vf_coef: NonNegative = 0.5
    normalize_advantage: bool = True  #: by minibatch, to mean 0 and standard deviation 1
    normalize_observations: bool = False  #: by running moments of each number, only with flat=true
    normalize_rewards: bool = False  #: divided by the running standard deviation of discounted returns

    def __post_init__(self) -> None:
        if self.normalize_observations and not self.flat:
            problem = "agent.normalize_observations is true and agent.flat is false"
            raise ConfigurationError(f"{problem}; expected flat=true: blocks of jobs are padded")
        super().__post_init__()

    def _build_network(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> Any:
        normalized = self.normalize_observations
        options: dict[str, Any] = {"features_extractor_class": NormalizedObservations} if normalized else {}
        if isinstance(actions, spaces.Discrete) and "use_sde" in getattr(self.network, "keywords", ()):
            options["use_sde"] = False  # noise is for numbers
        return self.network(observations, actions, lambda progress: self.learning_rate, **options)

    def _make_clusters(self, config: EnvConfig) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        self._local = self.hardware.process_group.local_slice("agent.num_envs", self.num_envs)
        self._env: Any = self._make_env(config, self._local)
        self._return_moments, self._discounted = RunningMeanStd(), np.zeros(self._env.num_envs)
        return self._env.observation_space, self._env.action_space

    def _make_env(self, config: EnvConfig, local: slice) -> VecEnv:
        require_rollout_memory("agent.n_steps", self.n_steps, config, self.num_envs)
        return RingyardVecEnv(config, local.stop - local.start, self._seed, local.start)

    def setup(self, environments: learners.EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Make network and clusters of the `environments`, from `seed` or as `saved`. See `Learner.setup`."""
        super().setup(environments, seed, saved)
        self._seen: Any = None
        if saved is None:
            return
        moments = self._return_moments
        moments.mean, moments.var, moments.count = saved.arrays["moments"]
        if "played" in saved.arrays and self.hardware.process_group.size == 1:
            self._seen, self._discounted = self._env.restore(saved.arrays), saved.arrays["discounted"].copy()

    def state(self) -> Checkpoint:
        """Copy also the moments of rewards and, of a single process, running episodes (others begin new)."""
        moments = self._return_moments
        arrays: dict[str, Any] = {"moments": np.array([moments.mean, moments.var, moments.count])}
        if self._seen is not None and self.hardware.process_group.size == 1:
            arrays |= self._env.episode_state() | {"discounted": self._discounted}
        return super().state().merge(Checkpoint(arrays, {}))

    @torch.no_grad()
    def _collect(self) -> tuple[DecisionBatch, Ids, dict[str, float]]:
        network, env = self._network, self._env
        network.set_training_mode(False)
        self._seen = env.reset() if self._seen is None else self._seen
        records, episodes = [], []
        rewards, bootstrap = np.zeros((2, self.n_steps, env.num_envs), np.float32)
        ended = np.zeros(rewards.shape, np.bool_)
        if self._noise_lasts:
            draw_lasting_noise(network, self.num_envs, self._local)
        for step in range(self.n_steps):
            masks = env.action_masks() if self.masked else np.ones((env.num_envs, 1), np.bool_)
            distribution, values = evaluate_network(network, self._seen, masks)
            # noise is drawn for all processes, which stay in step
            noise = None if self._noise_lasts else draw_noise(env.action_space, self.num_envs)[self._local]
            actions = sample_actions(distribution, noise)
            log_probs = distribution.log_prob(to_device(network.device, actions)).cpu()
            records.append((self._seen, masks, actions, np.asarray(log_probs), np.asarray(values.cpu())))
            self._seen, rewards[step], ended[step], infos = env.step(in_bounds(actions, env.action_space))
            for b in np.flatnonzero(ended[step]).tolist():
                episodes.append(infos[b]["episode"])
                if infos[b]["TimeLimit.truncated"]:  # what would have come counts as the critic estimates it
                    last = infos[b]["terminal_observation"]
                    rows = {k: v[None] for k, v in last.items()} if isinstance(last, dict) else last[None]
                    bootstrap[step, b] = self.gamma * evaluate_network(network, rows, masks[[b]])[1].item()
        following = np.asarray(evaluate_network(network, self._seen, masks)[1].cpu())
        seen, masks, actions, log_probs, values = map(concatenate_rows, zip(*records, strict=True))
        estimates, given = values.reshape(rewards.shape), self._normalized(rewards, ended) + bootstrap
        coefficients = self.gamma, self.gae_lambda
        advantages = generalized_advantages(given, estimates, ended, following, *coefficients).reshape(-1)
        gathered = [self.hardware.process_group.gather(one) for one in (values, values + advantages)]
        measured = self._measured(episodes)
        measured["train/explained_variance"] = float(explained_variance(*gathered))
        batch = DecisionBatch(seen, masks, actions, log_probs, advantages, values + advantages)
        local_rows = self.hardware.process_group.order_decisions(np.ones(rewards.shape, np.bool_))
        return batch, local_rows, measured

    def _normalized(self, rewards: Floats, ended: Masks) -> Floats:
        """Return [steps, envs] rewards divided by the standard deviation of discounted returns, if asked."""
        if not self.normalize_rewards:
            return rewards
        returns = np.zeros(rewards.shape)
        for step, given in enumerate(rewards):
            returns[step] = self._discounted = self.gamma * self._discounted + given
            self._discounted = np.where(ended[step], 0.0, self._discounted)
        self._return_moments.update(self.hardware.process_group.gather(returns.reshape(-1)))
        return (rewards / np.sqrt(self._return_moments.var + 1e-8)).clip(-_CLIP, _CLIP)

    def _measured(self, episodes: list[Any]) -> dict[str, float]:
        """Count a round's decisions. Returns {TensorBoard tag: value}, means over episodes that ended."""
        self.decisions += self.n_steps * self.num_envs
        sums = [len(episodes), sum(one["r"] for one in episodes), sum(one["l"] for one in episodes)]
        count, reward, length = self.hardware.process_group.sum_values(np.array(sums, np.float64))
        means = {"rollout/ep_rew_mean": reward, "rollout/ep_len_mean": length}
        found = {tag: total / count for tag, total in means.items() if count}
        if isinstance(self._env.action_space, spaces.Box):
            found["train/std"] = self._network.log_std.exp().mean().item()
        return found

    def _update(self, batch: DecisionBatch, local_rows: Ids) -> dict[str, float]:
        measured = super()._update(batch, local_rows)
        if self.normalize_observations:  # after the steps, so that only weights change probabilities
            rows = self.hardware.process_group.gather(batch.observations)
            self._network.pi_features_extractor.update(rows)
        return measured
