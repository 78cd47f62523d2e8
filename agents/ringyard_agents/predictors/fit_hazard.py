"""`ringyard fit-hazard`: fit the hazard rates of tenants' jobs, for schedulers such as `hazard`.

Windows of a workload are played in order of least attained service. The network learns from the features and
age of each job whenever it was judged, and from its final run time. The loss is the negative log likelihood
of run times with a constant rate in each bin, given the age (left truncation). Regularisation: weight decay,
noise on the inputs, and tenants made slower or faster at random. Later jobs decide when to stop.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console
from torch import nn

from ringyard.errors import ConfigurationError
from ringyard.placement import consolidate
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import build_object, make_simulator
from ringyard_agents.predictors.hazard_file import write_hazard_network
from ringyard_agents.runs.atomic_write import require_writable
from ringyard_agents.runs.run_folder import RunFolder
from ringyard_baselines.policies.least_estimated import LeastEstimated
from ringyard_baselines.tools.survival import CLIP, LOG_RATES, PARAMETERS, SurvivalEstimate, constant_rates
from ringyard_baselines.tools.tenants import (
    BINS,
    FEATURE_NAMES,
    FEATURES,
    RUN_TIME_FEATURES,
    bins_of,
    latest_features,
    missing_features,
)

_AGAIN = 0.02  # share of later judgements that are kept: jobs have one first and many later ones
_EQUAL_RATES = -2.0  # log rate in every bin: a job that has run longer has longer to go
_BATCH = 1024
_NOISE = 0.8  # on standardised features
_MOVED = 1.0  # bins: tenants of longer jobs are alike otherwise, so that a few of them teach of others
_EARLIEST = 0.01  # bins
_DECAY = 0.01
_LOOK_EVERY = 25  # steps
_LEAST_SPREAD = 1e-3  # features that vary less are left out


class SurvivalSamples(NamedTuple):
    """Judgements of jobs, and how long these ran in the end, as arrays or tensors.

    Attributes:
        features: [judgements, FEATURES].
        ages: [judgements] seconds that the job had run.
        ends: [judgements] seconds that it ran in the end, above its age.
        weights: [judgements] that of a job's judgements sum to 1.
    """

    features: Any
    ages: Any
    ends: Any
    weights: Any

    @classmethod
    def joined(cls, parts: Sequence["SurvivalSamples"]) -> "SurvivalSamples":
        """All of them."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _lived(ages: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """[judgements, BINS] share of each bin between two ages in bins."""
    bins = torch.arange(BINS)
    return (ends[:, None] - bins).clamp(0.0, 1.0) - (ages[:, None] - bins).clamp(0.0, 1.0)


def marginal_rates(lives: SurvivalSamples) -> NDArray[np.float64]:
    """[BINS] log hazard rates of all jobs together."""
    ages, ends = bins_of(lives.ages), bins_of(lives.ends)
    lived = _lived(torch.as_tensor(ages), torch.as_tensor(ends)).numpy()
    ended = np.bincount(ends.astype(np.int64), lives.weights, BINS)
    return np.log((ended + 0.5) / (lives.weights @ lived + 1.0))


def collect_samples(
    worlds: Sequence[Mapping[str, Any]], windows: Sequence[int], seed: int
) -> SurvivalSamples:
    """Judgements of jobs in windows of a workload, played in order of least attained service.

    Args:
        worlds: configs of environments.
        windows: numbers of job tables.
        seed: of the job tables, and of the judgements that are kept.
    """
    return SurvivalSamples.joined([_watched(world, window, seed) for world in worlds for window in windows])


def _watched(world: Mapping[str, Any], window: int, seed: int) -> SurvivalSamples:
    sim = make_simulator(world, window, seed, None)
    scheduler = LeastEstimated(consolidate(), SurvivalEstimate(constant_rates(np.full(BINS, _EQUAL_RATES))))
    scheduler.reset(sim.cluster, sim.jobs, np.random.default_rng(0))
    rng = np.random.default_rng((seed, window, 1))
    seen = np.zeros(len(sim.jobs), np.bool_)
    kept = []
    while not sim.done:
        scheduler.step(sim)
        judged = latest_features(scheduler.estimate_memory)
        if len(judged.rows):
            kept.append(judged.some(~seen[judged.rows] | (rng.random(len(judged.rows)) < _AGAIN)))
            seen[judged.rows] = True
    rows, ages = (np.concatenate([getattr(one, name) for one in kept]) for name in ("rows", "ages"))
    features = np.concatenate([one.features for one in kept])
    features[:, missing_features(sim.jobs)] = 0.0
    ends = sim.state.jobs["run_seconds"][0, rows]
    ran = ends > ages
    shares = 1.0 / np.bincount(rows[ran], minlength=len(sim.jobs))[rows[ran]]
    return SurvivalSamples(features[ran], ages[ran], ends[ran], shares)


class _Network(nn.Module):
    """The network of `ringyard_baselines.tools.survival`, with gradients."""

    def __init__(self, lives: SurvivalSamples, generator: torch.Generator) -> None:
        super().__init__()
        spread = lives.features.std(axis=0)
        scale = np.where(spread > _LEAST_SPREAD, 1.0 / np.maximum(spread, _LEAST_SPREAD), 0.0)
        self.constants = {"mean": lives.features.mean(axis=0), "scale": scale}
        layers = {name: PARAMETERS[name] for name in ("first", "second", "output")}
        self.all = nn.ParameterDict(
            {
                name: nn.Parameter(torch.randn(shape, generator=generator) / shape[0] ** 0.5)
                for name, shape in layers.items()
            }
        )
        with torch.no_grad():
            for layer in self.all.values():
                layer[-1] = 0.0
            self.all["output"].zero_()[-1] = torch.as_tensor(marginal_rates(lives))

    def inputs(self, features: torch.Tensor) -> torch.Tensor:
        """[judgements, FEATURES] standardised."""
        mean, scale = (
            torch.as_tensor(self.constants[name], dtype=torch.float32) for name in ("mean", "scale")
        )
        return ((features - mean) * scale).clamp(-CLIP, CLIP)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[judgements, BINS] log rates."""
        for name in ("first", "second"):
            x = torch.tanh(x @ self.all[name][:-1] + self.all[name][-1])
        return (x @ self.all["output"][:-1] + self.all["output"][-1]).clamp(*LOG_RATES)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """{name: array} as in `PARAMETERS`."""
        learnt = {name: layer.detach().numpy().astype(np.float64) for name, layer in self.all.items()}
        return {**self.constants, **learnt}


def _tensors(lives: SurvivalSamples) -> SurvivalSamples:
    """Tensors of judgements, with ages and ends in bins."""
    columns = (lives.features, bins_of(lives.ages), bins_of(lives.ends), lives.weights)
    return SurvivalSamples(*(torch.as_tensor(column, dtype=torch.float32) for column in columns))


def _drawn(sample: SurvivalSamples, generator: torch.Generator) -> SurvivalSamples:
    """A batch drawn by weight, with a random factor on the run times of each job and its tenant."""
    rows = torch.multinomial(sample.weights, _BATCH, replacement=True, generator=generator)
    features, ages, ends, weights = (column[rows] for column in sample)
    moved = (ends + _MOVED * torch.randn(_BATCH, generator=generator)).clamp(_EARLIEST, BINS - 1e-3)
    by = moved - ends
    ages = torch.where(ages > 0.0, torch.minimum((ages + by).clamp_min(0.0), moved), 0.0)
    return SurvivalSamples(features + by[:, None] * torch.as_tensor(RUN_TIME_FEATURES), ages, moved, weights)


def _losses(network: _Network, sample: SurvivalSamples, noise: torch.Tensor | float = 0.0) -> torch.Tensor:
    """[judgements] negative log likelihood of final run times, given the ages."""
    rates = network(network.inputs(sample.features) + noise)
    ended = rates.gather(1, sample.ends.long()[:, None])[:, 0]
    return (rates.exp() * _lived(sample.ages, sample.ends)).sum(1) - ended


def _mean_loss(network: _Network, sample: SurvivalSamples) -> float:
    """Mean loss of a job."""
    with torch.no_grad():
        return float((_losses(network, sample) * sample.weights).sum() / sample.weights.sum())


def _learn(
    network: _Network, lives: SurvivalSamples, steps: int, generator: torch.Generator
) -> Iterator[int]:
    """Take gradient steps; yields the number of each after it."""
    sample = _tensors(lives)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=_DECAY)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(1, steps + 1):
        noise = _NOISE * torch.randn(_BATCH, FEATURES, generator=generator)
        loss = _losses(network, _drawn(sample, generator), noise).mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        decay.step()
        yield step


def fit_network(
    lives: SurvivalSamples, later: SurvivalSamples, seed: int = 0, steps: int = 600
) -> tuple[Mapping[str, NDArray[np.float64]], int, float, float]:
    """Find the number of steps with the least loss on later jobs, then fit to all jobs by as many steps.

    Args:
        lives: to fit to.
        later: decide when to stop; then fitted to as well, because tenants change.
        seed: of every random draw.
        steps: most steps, each on 1,024 judgements.

    Returns:
        (network {name: array} as in `PARAMETERS`, steps taken, its loss on later jobs before it was fitted to
        them as well, loss of the rates of all jobs together), losses in nats.
    """
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    network, held_out = _Network(lives, generator), _tensors(later)
    without = _mean_loss(network, held_out)
    best, least = 0, without
    for step in _learn(network, lives, steps, generator):
        if step % _LOOK_EVERY == 0 and (loss := _mean_loss(network, held_out)) < least:
            best, least = step, loss
    every = SurvivalSamples.joined([lives, later])
    network = _Network(every, generator)
    for step in _learn(network, every, steps, generator):
        if step >= best:
            break
    return network.arrays(), best, least, without


def _worlds(config: DictConfig) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(environments to fit to, environments to stop by), one of each load; the second have later windows.

    Raises:
        ConfigurationError: loads for a workload that has none to set.
    """
    world = {name: to_plain(config[name]) for name in ENVIRONMENT_GROUPS}
    workload = world["workload"]
    if config.loads is not None and "load" not in workload:
        raise ConfigurationError(
            f"loads is {to_plain(config.loads)}, but the workload has no load; set loads=null"
        )
    found: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for load in [None] if config.loads is None else to_plain(config.loads):
        for worlds, later in zip(found, (False, True), strict=True):
            drawn = dict(workload) if load is None else {**workload, "load": load}
            if "part" in workload:
                begin, end = workload["part"]
                middle = end - config.held_out * (end - begin)
                drawn["part"] = [middle, end] if later else [begin, middle]
            worlds.append({**world, "workload": drawn})
    return found


def fit_hazard(config: DictConfig) -> None:
    """Play windows, fit a network, print its loss and write hazard.safetensors.

    Raises:
        RingyardError: bad input, before anything is written.
        OSError: files cannot be written.
    """
    folder = RunFolder.of_job("fit-hazard")
    file = folder.path / "hazard.safetensors" if config.file is None else Path(config.file).expanduser()
    require_writable("file", file)
    first, second = _worlds(config)
    for world in (*first, *second):
        build_object(world["workload"])
    with folder.claim(config):
        begin = time.monotonic()
        later = max(round(config.windows * config.held_out), 1)
        lives = collect_samples(first, range(config.windows), config.seed)
        held_out = collect_samples(second, range(later), config.seed + 1)
        played = time.monotonic()
        network, steps, loss, without = fit_network(lives, held_out, config.seed)
        folder.record(config, {"seed": config.seed, "windows": config.windows})
        facts = {"source": config.source, "loss": loss, "features": list(FEATURE_NAMES)}
        write_hazard_network(file, network, facts)
        console = Console()
        said = f"{len(lives.ages):,} judgements of jobs and {len(held_out.ages):,} of later ones in"
        console.print(f"{said} {played - begin:.0f} s; fitted in {time.monotonic() - played:.0f} s")
        console.print(
            f"loss of a later job: {loss:.3f} nats (step {steps}); by the run times of all jobs"
            f" together {without:.3f}"
        )
        console.print(f"network: {file} ({file.stat().st_size:,} bytes)", soft_wrap=True)
