"""Fits the hazard rates of tenants' jobs, for schedulers such as `hazard`.

Windows of a workload are simulated with least attained service first. A sample is a job at a decision at
which its features were written: the features, its age, and the run time that it had in the end. The loss is
the negative log likelihood of run times with a constant rate in each bin, given the age (left truncation).
Regularisation: weight decay, noise on the inputs, and a random factor on the run times of a job and its
tenants. The loss on later jobs decides when to stop.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ringyard.jobs import JobTable
from ringyard.placement import consolidate
from ringyard_agents.evaluation.evaluate import make_simulator
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.predictors.hazard_file import KIND
from ringyard_baselines.policies.least_estimated import LeastEstimated
from ringyard_baselines.tools import survival as tenants
from ringyard_baselines.tools.survival import (
    BINS,
    CLIP,
    FEATURE_NAMES,
    FEATURES,
    LOG_RATES,
    PARAMETERS,
    SurvivalEstimate,
)

_LATER_SAMPLES = 0.02  # share kept of a job's samples after the first, which are many
_EQUAL_RATES = -2.0  # log rate in every bin, with which the shortest attained service runs first
_BATCH = 1024
_NOISE = 0.5  # on standardised features
_SHIFT = 1.0  # bins, standard deviation: tenants with longer jobs are assumed to be similar otherwise
_MIN_END = 0.01  # bins
_WEIGHT_DECAY = 0.01
_EVALUATE_EVERY = 25  # steps
_MIN_DEVIATION = 1e-3  # features that vary less are left out
#: [FEATURES] whether the feature is a run time in bins
_RUN_TIME_FEATURES = np.array([name.startswith(("quick mean", "mean")) for name in FEATURE_NAMES])


class JobSamples(NamedTuple):
    """Samples of jobs, as arrays or tensors."""

    features: Any  #: [samples, FEATURES] of `FEATURE_NAMES`
    ages: Any  #: [samples] seconds that the job had run
    ends: Any  #: [samples] seconds that the job ran in the end, above its age
    weights: Any  #: [samples] weights, which sum to 1 over the samples of a job

    @classmethod
    def joined(cls, parts: Sequence["JobSamples"]) -> "JobSamples":
        """Concatenate samples."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def constant_rates(log_rates: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the parameters {name: array} of a network that gives all jobs the same log rates [BINS]."""
    network = {name: np.zeros(shape) for name, shape in PARAMETERS.items()}
    network["output"][-1] = log_rates
    return network


def missing_features(jobs: JobTable) -> NDArray[np.bool_]:
    """Return which features [FEATURES] are of virtual clusters or users although the jobs name none."""
    without = [(getattr(jobs, name) == "").all() for name in ("vc", "user")]
    return np.array([*np.repeat(without, FEATURES // 2), False])


def _exposure(ages: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return the share of each bin that lies between two ages in bins [samples, BINS]."""
    bins = torch.arange(BINS)
    return (ends[:, None] - bins).clamp(0.0, 1.0) - (ages[:, None] - bins).clamp(0.0, 1.0)


def marginal_rates(samples: JobSamples) -> NDArray[np.float64]:
    """Return log hazard rates of all jobs together [BINS]."""
    ages, ends = tenants.bins_of(samples.ages), tenants.bins_of(samples.ends)
    exposure = _exposure(torch.as_tensor(ages), torch.as_tensor(ends)).numpy()
    ended = np.bincount(ends.astype(np.int64), samples.weights, BINS)
    return np.log((ended + 0.5) / (samples.weights @ exposure + 1.0))


def write_hazard_network(
    file: Path, network: Mapping[str, NDArray[np.float64]], facts: Mapping[str, Any]
) -> None:
    """Write {name: array} of `ringyard_baselines.tools.survival.PARAMETERS`, with JSON facts of the fit."""
    arrays = {name: np.asarray(array, dtype=np.float32) for name, array in network.items()}
    Checkpoint(arrays, {"kind": KIND, **facts}).write(file)


def collect_samples(
    environments: Sequence[Mapping[str, Any]], windows: Sequence[int], seed: int
) -> JobSamples:
    """Simulate windows of a workload with least attained service first, and return samples of the jobs."""
    return JobSamples.joined([_simulate(one, window, seed) for one in environments for window in windows])


def _simulate(environment: Mapping[str, Any], window: int, seed: int) -> JobSamples:
    sim = make_simulator(environment, window, seed, None)
    scheduler = LeastEstimated(consolidate(), SurvivalEstimate(constant_rates(np.full(BINS, _EQUAL_RATES))))
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    rng = np.random.default_rng((seed, window, 1))
    sampled = np.zeros(len(sim.jobs), np.bool_)
    parts = []
    while not sim.done:
        scheduler.step(sim)
        rows, ages, features = tenants.latest_features(scheduler.estimate_memory)
        chosen = ~sampled[rows] | (rng.random(len(rows)) < _LATER_SAMPLES)
        parts.append([rows[chosen], ages[chosen], features[chosen]])
        sampled[rows] = True
    rows, ages, features = (np.concatenate(column) for column in zip(*parts, strict=True))
    features[:, missing_features(sim.jobs)] = 0.0
    ends = sim.state.jobs["run_seconds"][0, rows]
    ran = ends > ages
    shares = 1.0 / np.bincount(rows[ran], minlength=len(sim.jobs))[rows[ran]]
    return JobSamples(features[ran], ages[ran], ends[ran], shares)


class _Network(nn.Module):
    """The network of `ringyard_baselines.tools.survival` in PyTorch."""

    def __init__(self, samples: JobSamples, generator: torch.Generator) -> None:
        super().__init__()
        deviation = samples.features.std(axis=0)
        scale = np.where(deviation > _MIN_DEVIATION, 1.0 / np.maximum(deviation, _MIN_DEVIATION), 0.0)
        self.constants = {"mean": samples.features.mean(axis=0), "scale": scale}
        self.layers = nn.ParameterDict()
        for name in ("first", "second", "output"):
            shape = PARAMETERS[name]
            self.layers[name] = nn.Parameter(torch.randn(shape, generator=generator) / shape[0] ** 0.5)
        with torch.no_grad():
            for layer in self.layers.values():
                layer[-1] = 0.0
            self.layers["output"].zero_()[-1] = torch.as_tensor(marginal_rates(samples))

    def inputs(self, features: torch.Tensor) -> torch.Tensor:
        """Return standardised and clipped `features` [samples, FEATURES]."""
        mean, scale = (torch.as_tensor(one, dtype=torch.float32) for one in self.constants.values())
        return ((features - mean) * scale).clamp(-CLIP, CLIP)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return log hazard rates [samples, BINS]."""
        for name in ("first", "second"):
            x = torch.tanh(x @ self.layers[name][:-1] + self.layers[name][-1])
        return (x @ self.layers["output"][:-1] + self.layers["output"][-1]).clamp(*LOG_RATES)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the parameters {name: array} of `PARAMETERS`."""
        learnt = {name: layer.detach().numpy().astype(np.float64) for name, layer in self.layers.items()}
        return {**self.constants, **learnt}


def _tensors(samples: JobSamples) -> JobSamples:
    """Return samples as tensors, with ages and ends in bins."""
    binned = samples._replace(ages=tenants.bins_of(samples.ages), ends=tenants.bins_of(samples.ends))
    return JobSamples(*(torch.as_tensor(column, dtype=torch.float32) for column in binned))


def _draw_batch(sample: JobSamples, generator: torch.Generator) -> JobSamples:
    """Draw a batch by weight, with a random factor on the run times of each job and its tenants."""
    rows = torch.multinomial(sample.weights, _BATCH, replacement=True, generator=generator)
    features, ages, ends, weights = (column[rows] for column in sample)
    shifted = (ends + _SHIFT * torch.randn(_BATCH, generator=generator)).clamp(_MIN_END, BINS - 1e-3)
    shift = shifted - ends
    ages = torch.where(ages > 0.0, torch.minimum((ages + shift).clamp_min(0.0), shifted), 0.0)
    return JobSamples(features + shift[:, None] * torch.as_tensor(_RUN_TIME_FEATURES), ages, shifted, weights)


def _losses(network: _Network, sample: JobSamples, noise: torch.Tensor | float = 0.0) -> torch.Tensor:
    """Return negative log likelihoods of final run times, given the ages [samples]."""
    rates = network(network.inputs(sample.features) + noise)
    ended = rates.gather(1, sample.ends.long()[:, None])[:, 0]
    return (rates.exp() * _exposure(sample.ages, sample.ends)).sum(1) - ended


def _mean_loss(network: _Network, sample: JobSamples) -> float:
    """Return the mean loss over jobs."""
    with torch.no_grad():
        return float((_losses(network, sample) * sample.weights).sum() / sample.weights.sum())


def _train(network: _Network, samples: JobSamples, steps: int, generator: torch.Generator) -> Iterator[int]:
    """Take gradient steps, and yield the number of each after it."""
    sample = _tensors(samples)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=_WEIGHT_DECAY)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    noises = _NOISE * torch.as_tensor(network.constants["scale"] > 0.0)  # none on features that are left out
    for step in range(1, steps + 1):
        noise = noises * torch.randn(_BATCH, FEATURES, generator=generator)
        loss = _losses(network, _draw_batch(sample, generator), noise).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        decay.step()
        yield step


def fit_network(
    samples: JobSamples, later: JobSamples, seed: int = 0, steps: int = 1500
) -> tuple[Mapping[str, NDArray[np.float64]], int, float, float]:
    """Find the number of steps with the least loss on later jobs, then fit to all jobs in as many steps.

    The final fit uses the later jobs too, because tenants change. A step takes 1,024 samples.

    Returns:
        Network {name: array} of `PARAMETERS`, steps taken, loss on later jobs before the final fit, and loss
        of the hazard rates of all jobs together. Losses are in nats.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    network, held_out = _Network(samples, generator), _tensors(later)
    marginal = _mean_loss(network, held_out)
    best, least = 0, marginal
    for step in _train(network, samples, steps, generator):
        if step % _EVALUATE_EVERY == 0 and (loss := _mean_loss(network, held_out)) < least:
            best, least = step, loss
    every = JobSamples.joined([samples, later])
    network = _Network(every, generator)
    for step in _train(network, every, steps, generator):
        if step >= best:
            break
    return network.arrays(), best, least, marginal
