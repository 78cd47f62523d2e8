"""Evolution strategies on the weights of a score network."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call, vmap

from ringyard.checks import Positive, PositiveInt, checked
from ringyard_agents.learning.process_group import to_device
from ringyard_agents.learning.score_learner import NoiseStd, ScoreLearner
from ringyard_agents.learning.score_networks import Floats, Ids, PolicyInput, ScoreNetwork


def _split_by_parameter(network: ScoreNetwork, vectors: torch.Tensor) -> dict[str, torch.Tensor]:
    """Split vectors [..., all weights of a network] into {name of a parameter: [..., its shape]}."""
    parameters = dict(network.named_parameters())
    parts = torch.split(vectors, [one.numel() for one in parameters.values()], -1)
    shapes = {name: (*vectors.shape[:-1], *parameter.shape) for name, parameter in parameters.items()}
    return {name: part.reshape(shapes[name]) for name, part in zip(parameters, parts, strict=True)}


class PerturbedNetworks:
    """A `ScoreFunction` that adds [clusters, weights] perturbations to a network's, evaluated in one call."""

    def __init__(self, network: ScoreNetwork, perturbations: torch.Tensor) -> None:
        centre = {name: parameter.detach() for name, parameter in network.named_parameters()}
        parts = _split_by_parameter(network, perturbations)
        self._weights = {name: centre[name] + part for name, part in parts.items()}
        self._device = perturbations.device
        self._scores = vmap(lambda weights, *inputs: functional_call(network, weights, inputs))

    def __call__(self, inputs: PolicyInput, clusters: Ids, rows: NDArray[np.int32]) -> Floats:
        """Return scores, see `ScoreFunction`."""
        weights = {name: values[clusters] for name, values in self._weights.items()}
        jobs, present, cluster = (to_device(self._device, part) for part in inputs)
        with torch.no_grad():
            scores = self._scores(weights, jobs, present.float(), cluster)
        return scores.cpu().numpy()


def _centered_ranks(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [groups, members] ranks of returns, from -0.5 (worst of its group) to 0.5. Ties share a rank."""
    below = (returns[:, None, :] < returns[:, :, None]).sum(axis=2)
    equal = (returns[:, None, :] == returns[:, :, None]).sum(axis=2)
    return np.asarray((below + (equal - 1) / 2) / (returns.shape[1] - 1) - 0.5)


@checked("agent")
@dataclass(kw_only=True)
class EvolutionStrategies(ScoreLearner):
    """Learner of job scores by evolution strategies.

    Antithetic Gaussian perturbations of all weights are ranked by the returns of their episodes. Each cluster
    uses its own perturbation, the same in every environment. Returns are ranked among the clusters that run
    the same workload, and ranks are averaged over environments.

    Source: Salimans et al. 2017, Algorithm 1, with antithetic sampling, rank transformation and Adam.
    """

    workloads_per_round: PositiveInt = 2
    group_size: Annotated[int, "[2, 4096]"] = 16
    learning_rate: Positive = 3e-2
    ema_decay: Annotated[float, "[0, 1)"] = 0.8
    noise_std: NoiseStd = 0.1  #: standard deviation of the perturbations of the weights
    learns_types = True

    def _round(self) -> dict[str, float]:
        num_pairs = self.workloads_per_round * self.group_size // 2
        size = sum(one.numel() for one in self._network.parameters())
        half = self._rng(len(self._runners)).standard_normal((num_pairs, size), np.float32)
        noise = np.stack((half, -half), axis=1).reshape(2 * num_pairs, size)[self._local_clusters]
        perturbations = torch.as_tensor(noise, device=self.hardware.device)
        networks = PerturbedNetworks(self._network, self.noise_std * perturbations)
        episodes = {
            label: self._penalized(label, runner.run_episodes(self._draw_workloads(i), networks))
            for i, (label, runner) in enumerate(self._runners.items())
        }
        ranks = [_centered_ranks(one.returns.reshape(-1, self.group_size)) for one in episodes.values()]
        fitness = torch.as_tensor(np.mean(ranks, axis=0).reshape(-1), dtype=torch.float32)
        weighted = self.hardware.process_group.sum_tensor(fitness.to(perturbations.device) @ perturbations)
        ascent = _split_by_parameter(self._network, weighted / (2 * num_pairs * self.noise_std))
        for name, parameter in self._network.named_parameters():
            parameter.grad = -ascent[name]
        self._optimizer.step()
        return self._count(episodes)
