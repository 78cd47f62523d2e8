"""Evolution strategies on the weights of a score network."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch.func import functional_call, vmap

from ringyard.checks import Positive, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning import learner as learners
from ringyard_agents.learning import score_networks
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.episodes import Constraint, EpisodeBatch, EpisodeRunner
from ringyard_agents.learning.imitation import ImitateAllocator
from ringyard_agents.learning.process_group import Hardware, to_device
from ringyard_agents.learning.score_networks import Floats, Ids, Masks, ScoreNetwork, ScorePolicy

_AVERAGE = "average."


def _split_by_parameter(network: ScoreNetwork, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
    """Split vectors [..., all weights of a network] into {name of a parameter: [..., its shape]}."""
    parameters = dict(network.named_parameters())
    parts = torch.split(vectors, [one.numel() for one in parameters.values()], -1)
    shapes = {name: (*vectors.shape[:-1], *parameter.shape) for name, parameter in parameters.items()}
    return {name: part.reshape(shapes[name]) for name, part in zip(parameters, parts, strict=True)}


class PerturbedNetworks:
    """Policies with [clusters, weights] perturbations of a network's weights, evaluated in one call."""

    def __init__(self, network: ScoreNetwork, perturbations: torch.Tensor) -> None:
        centre = {name: parameter.detach() for name, parameter in network.named_parameters()}
        parts = _split_by_parameter(network, perturbations)
        self._all = self._weights = {name: centre[name] + part for name, part in parts.items()}
        self._clusters: Ids = np.arange(len(perturbations))  # of `_weights`
        self._device = perturbations.device

        def scores(weights: dict[str, torch.Tensor], *inputs: torch.Tensor) -> Any:
            return functional_call(network, weights, inputs, tie_weights=False)

        self._scores = scores if type(network) is ScoreNetwork else vmap(scores)

    def __call__(self, observations: Any, masks: Masks, clusters: Ids) -> Floats:
        """Return actions of some clusters, see `EpisodeRunner.continue_episodes`."""
        inputs = score_networks.read_observations(observations, masks)
        if not np.array_equal(clusters, self._clusters):
            self._weights = {name: values[clusters] for name, values in self._all.items()}
            self._clusters = clusters
        jobs, present, cluster = (to_device(self._device, part) for part in inputs)
        with torch.no_grad():
            scores = self._scores(self._weights, jobs, present.float(), cluster)
        return score_networks.scores_to_action(scores.cpu().numpy(), inputs, masks.shape[1])


@checked("agent")
@dataclass(kw_only=True)
class EvolutionStrategies:
    """Learner of job scores by evolution strategies.

    It learns in rounds. In each round, groups of clusters run the same workload of every environment.
    Antithetic Gaussian perturbations of all weights are ranked by the returns of their episodes. Each cluster
    uses its own perturbation, the same in every environment. Returns are ranked among the clusters that run
    the same workload, and ranks are averaged over environments. The random draws of a round depend only on
    the seed and on its number, so that no random state is saved.

    Source: Salimans et al. 2017, Algorithm 1, with antithetic sampling, rank transformation and Adam.
    """

    #: function of (F, C, type_scores=T) that makes a network for F features of a job and C of the cluster,
    #: with scores for T GPU types
    network: Callable[..., ScoreNetwork]
    workloads_per_round: PositiveInt = 2  #: workloads of each environment in a round, of all processes
    #: clusters that run each workload and are compared. Even, for antithetic pairs.
    group_size: Annotated[int, "[2, 4096]"] = 16
    #: initial learning rate of Adam. It decays linearly to 0 at the last decision.
    learning_rate: Positive = 3e-2
    #: decay of the exponential moving average of the weights over rounds. The policy uses the average. 0:
    #: no averaging.
    ema_decay: Annotated[float, "[0, 1)"] = 0.8
    noise_std: Annotated[float, "(0, 10]"] = 0.1  #: standard deviation of the perturbations of the weights
    teacher: ImitateAllocator | None = None  #: imitated before learning. None: all scores are 0 at first.
    #: bound on another metric. None: there is none.
    constraint: Constraint | None = field(default=None, init=False)
    hardware: Hardware = field(default_factory=Hardware, init=False, repr=False)  #: device and processes
    flat, masked, decisions, _rounds = False, False, 0, 0

    def __post_init__(self) -> None:
        if self.group_size % 2:
            error = f"agent.group_size is {self.group_size}; expected an even number, for antithetic pairs"
            raise ConfigurationError(error)

    @property
    def policy(self) -> ScorePolicy:
        """The current policy, which uses the averaged weights."""
        return ScorePolicy(self._average)

    def setup(self, environments: learners.EnvConfigs, seed: int, saved: Checkpoint | None = None) -> None:
        """Make network and clusters of the `environments`, from `seed` or as `saved`. See `Learner.setup`."""
        torch.set_num_threads(1)
        local = self._local_clusters
        sizes = {_input_sizes(label, config) for label, config in environments.items()}
        if len(sizes) > 1:
            raise ConfigurationError(
                "environments differ in (features of a job, features of the cluster, number of"
                f" action.type_scores): {', '.join(map(str, sorted(sizes)))}; expected the same in all"
            )
        ((features, cluster, types),) = sizes
        if self.teacher is not None:
            self.teacher.check(environments)
        num_clusters = local.stop - local.start
        self._runners = {name: EpisodeRunner(one, num_clusters) for name, one in environments.items()}
        self._seed, self.decisions, self._rounds = seed, 0, 0
        torch.manual_seed(seed)
        self._network = self.network(features, cluster, type_scores=types).to(self.hardware.device)
        self._optimizer = torch.optim.Adam(self._network.parameters(), self.learning_rate)
        self._average = deepcopy(self._network)
        if saved is None:
            return
        learners.restore_network(self._network, saved, optimizer=self._optimizer)
        arrays = saved.arrays.items()
        average = {name.removeprefix(_AVERAGE): array for name, array in arrays if name.startswith(_AVERAGE)}
        learners.restore_network(self._average, Checkpoint(average, {}))
        self.decisions, self._rounds = saved.metadata["decisions"], saved.metadata["rounds"]

    def state(self) -> Checkpoint:
        """Copy the weights, their average, the optimizer's state and the counters."""
        arrays = learners.weight_arrays(self._average.state_dict())
        average = {_AVERAGE + name: array for name, array in arrays.items()}
        counters = {"decisions": self.decisions, "rounds": self._rounds}
        network = learners.network_state(self._network, optimizer=self._optimizer)
        return network.merge(Checkpoint(average, counters))

    def load_weights(self, weights: Checkpoint) -> None:
        """Start from these weights, which also become their average. See `Learner.load_weights`."""
        learners.restore_network(self._network, weights)
        learners.restore_network(self._average, weights)

    def weights(self) -> Checkpoint:
        """Copy the weights of the policy's network, and its numbers of features."""
        network = self._average
        features = [network.job_features, network.cluster_features]
        metadata = {"features": features, "type_scores": network.type_scores}
        return Checkpoint(learners.weight_arrays(network.state_dict()), metadata)

    def load(self, saved: Checkpoint) -> ScorePolicy:
        """Make the policy of saved `weights`."""
        job_features, cluster_features = saved.metadata["features"]
        type_scores = saved.metadata.get("type_scores", 0)  # agents of earlier versions have none
        network = self.network(job_features, cluster_features, type_scores=type_scores)
        learners.restore_network(network, saved)
        return ScorePolicy(network)

    def learn(self, total_decisions: int, callback: learners.Callback) -> None:
        """Imitate the teacher, then learn up to `total_decisions`, with `callback` between rounds."""
        scalars: dict[str, float] = {}
        if self._rounds == 0 and self.teacher is not None:
            configs = {label: runner.config for label, runner in self._runners.items()}
            scalars = self.teacher.fit(self._network, configs, self._seed)
            self._average.load_state_dict(self._network.state_dict())
        callback(scalars)
        while self.decisions < total_decisions:
            for group in self._optimizer.param_groups:
                group["lr"] = self.learning_rate * (1.0 - self.decisions / total_decisions)
            scalars = self._round()
            self._rounds += 1
            for mean, newest in zip(self._average.parameters(), self._network.parameters(), strict=True):
                mean.data.lerp_(newest.data, 1.0 - self.ema_decay)
            callback(scalars | {"train/learning_rate": group["lr"]})

    def _round(self) -> dict[str, float]:
        num_pairs = self.workloads_per_round * self.group_size // 2
        size = sum(one.numel() for one in self._network.parameters())
        half = self._rng(len(self._runners)).standard_normal((num_pairs, size), np.float32)
        noise = np.stack((half, -half), axis=1).reshape(2 * num_pairs, size)[self._local_clusters]
        perturbations = torch.as_tensor(noise, device=self.hardware.device)
        networks = PerturbedNetworks(self._network, self.noise_std * perturbations)
        episodes = dict[str, EpisodeBatch]()
        for i, (label, runner) in enumerate(self._runners.items()):
            played = runner.run_episodes(self._draw_workloads(i, runner.config), networks)
            if self.constraint is not None:
                sums = np.array([np.abs(played.returns).sum(), runner.batch.num_clusters])
                total, count = self.hardware.process_group.sum_values(sums)
                played = self.constraint.penalize(label, played, runner.batch, total / count)
            episodes[label] = played
        returns = [one.returns.reshape(-1, self.group_size) for one in episodes.values()]
        # from -0.5 (worst of its group) to 0.5; ties share a rank
        ranks = [(rankdata(one, axis=1) - 1) / (self.group_size - 1) - 0.5 for one in returns]
        fitness = torch.as_tensor(np.mean(ranks, axis=0).reshape(-1), dtype=torch.float32)
        weighted = self.hardware.process_group.sum_tensor(fitness.to(perturbations.device) @ perturbations)
        ascent = _split_by_parameter(self._network, weighted / (2 * num_pairs * self.noise_std))
        for name, parameter in self._network.named_parameters():
            parameter.grad = -ascent[name]
        self._optimizer.step()
        return self._count(episodes)

    def _rng(self, *stream: int) -> np.random.Generator:
        """Return the generator of one of this round's streams of random numbers."""
        return np.random.default_rng((self._seed, self._rounds, *stream))

    @property
    def _local_clusters(self) -> slice:
        """The clusters of this process among those of all processes."""
        process_group, groups = self.hardware.process_group, self.workloads_per_round
        return process_group.local_slice("agent.workloads_per_round", groups, self.group_size)

    def _draw_workloads(self, environment: int, config: EnvConfig) -> NDArray[np.int64]:
        """Draw [local clusters] job tables of an environment (by index), the same within a group."""
        drawn = self._rng(environment).integers(config.num_workloads, size=self.workloads_per_round)
        return np.repeat(drawn, self.group_size)[self._local_clusters]

    def _count(self, episodes: Mapping[str, EpisodeBatch]) -> dict[str, float]:
        """Count the decisions of a round. Returns {TensorBoard tag: mean return or length of episodes}."""
        sums = [(one.returns.sum(), one.valid.sum(), one.valid.shape[1]) for one in episodes.values()]
        flat = self.hardware.process_group.sum_values(np.array(sums, np.float64).T.reshape(-1))
        returns, decisions, clusters = flat.reshape(3, -1)
        self.decisions += int(decisions.sum())
        scalars = {"rollout/ep_rew_mean": float(np.mean(returns / clusters))}
        scalars["rollout/ep_len_mean"] = float(np.mean(decisions / clusters))
        if len(episodes) > 1:
            means = zip(episodes, (returns / clusters).tolist(), strict=True)
            scalars |= {f"rollout/{label}/ep_rew_mean": mean for label, mean in means}
        return scalars


def _input_sizes(label: str, config: EnvConfig) -> tuple[int, int, int]:
    """Return (features of a job, features of the cluster, scored GPU types) in an environment."""
    actions, lengths = config.actions, config.observation.lengths(config.cluster, config.actions)
    if not isinstance(actions, Scores) or not {"jobs", "cluster"} <= set(lengths):
        raise ConfigurationError(
            f"{label}: this agent scores jobs and needs action=scores and an observation with the blocks jobs"
            f" and cluster (observation=live_jobs); got {type(actions).__name__} and {', '.join(lengths)}"
        )
    return (lengths["jobs"] // actions.num_jobs, lengths["cluster"], len(actions.type_scores))
