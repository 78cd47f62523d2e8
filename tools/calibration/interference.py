"""Trains the interference networks IASP and IAPP on measured pairs, and prints their errors."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from torch import nn

from ringyard.errors import ConfigurationError
from ringyard_agents.measurements import measurement_kinds
from ringyard_baselines.papers.interference_aware import networks as interference
from ringyard_baselines.papers.interference_aware.networks import PARAMETERS, REFERENCES, ProfiledJob

#: titles of `error_rows`
ERROR_COLUMNS = ("model left out", "GPU", "pairs", "IASP", "IAPP", "guess the mean")


class JobPairs(NamedTuple):
    """Pairs of jobs that shared a GPU, both with a profile, and the speed of the first beside the second.

    Reference jobs are in no pair: their measured speeds are what the networks are given.
    """

    own: NDArray[np.float64]  #: [pairs, 2 x references] profile of the job (`job_profiles`)
    other: NDArray[np.float64]  #: [pairs, 2 x references] profile of its neighbour
    #: [pairs] share of the job's iteration in which it computes. Pairs were measured on one GPU, where it
    #: is 1: smaller shares are drawn, and lower what the neighbour costs.
    computing: NDArray[np.float64]
    #: [pairs] compute speed beside the neighbour, relative to the isolated speed
    similarity: NDArray[np.float64]
    performance: NDArray[np.float64]  #: [pairs] the same for whole iterations
    models: NDArray[Any]  #: [pairs, 2] names of both models
    gpu_types: NDArray[Any]  #: [pairs] GPU type

    def rows(self, chosen: NDArray[np.bool_]) -> "JobPairs":
        """Return the pairs for which `chosen` [pairs] is true."""
        return JobPairs(*(column[chosen] for column in self))


def measured_pairs(
    rows: pd.DataFrame, rng: np.random.Generator, where: str
) -> tuple[JobPairs, Mapping[ProfiledJob, NDArray[np.float64]]]:
    """Return the pairs of a tidy table of measurements, and the profile of every job.

    Args:
        rows: tidy table (`ringyard_agents.measurements`): jobs alone on one GPU, and beside one another.
        rng: generator of the shares of computing.
        where: name of the table, for errors.

    Raises:
        ConfigurationError: no two jobs with a profile shared a GPU.
    """
    kinds = measurement_kinds(rows)
    alone = rows[kinds == "one GPU"].groupby(["gpu_type", "model", "batch"]).seconds.mean()
    beside = rows[(kinds == "sharing a GPU") & (rows.placement == "1")]
    own, other = (
        map(ProfiledJob, beside.gpu_type, beside[model], beside[batch])
        for model, batch in (("model", "batch"), ("neighbour", "neighbour_batch"))
    )
    #: {(job, neighbour): extra iteration time as a share} for jobs measured alone
    excess = {
        (mine, theirs): max(seconds / alone[mine] - 1.0, 0.0)
        for mine, theirs, seconds in zip(own, other, beside.seconds, strict=True)
        if mine in alone.index
    }
    profiles: dict[ProfiledJob, NDArray[np.float64]] = {}
    for job in {mine for mine, _ in excess}:
        references = [ProfiledJob(job.gpu_type, *reference) for reference in REFERENCES]
        suffered = np.array([excess.get((job, one), np.nan) for one in references])
        inflicted = np.array([excess.get((one, job), np.nan) for one in references])
        if np.isfinite([suffered, inflicted]).all() and job not in references:
            profiles[job] = interference.job_profiles(suffered, inflicted)
    known = sorted(pair for pair in excess if pair[0] in profiles and pair[1] in profiles)
    if not known:
        wanted = ", ".join(f"{model} with {samples:g} samples" for model, samples in REFERENCES)
        raise ConfigurationError(
            f"{where}: no two jobs shared a GPU that were also measured alone and beside each of {wanted};"
            " expected rows with a neighbour (docs/validation.md names the columns)"
        )
    extra = np.array([excess[pair] for pair in known])
    computing = rng.uniform(0.2, 1.0, len(known))
    pairs = JobPairs(
        own=np.array([profiles[mine] for mine, _ in known]),
        other=np.array([profiles[theirs] for _, theirs in known]),
        computing=computing,
        similarity=1.0 / (1.0 + extra),
        performance=1.0 / (1.0 + computing * extra),
        models=np.array([(mine.model, theirs.model) for mine, theirs in known]),
        gpu_types=np.array([mine.gpu_type for mine, _ in known]),
    )
    return pairs, profiles


class _Networks(nn.Module):
    """The networks of `ringyard_baselines.papers.interference_aware.networks` in PyTorch."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.ParameterDict()
        for name, shape in PARAMETERS.items():
            weights = torch.randn(shape, generator=generator) / shape[0] ** 0.5
            self.layers[name.replace(".", "_")] = nn.Parameter(weights)

    def _affine(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.layers[name][:-1] + self.layers[name][-1]

    def similarity(self, own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        u, v = torch.tanh(own @ self.layers["iasp_own"]), torch.tanh(other @ self.layers["iasp_other"])
        hidden = torch.relu(self._affine(torch.cat([u, v, u * v], 1), "iasp_hidden"))
        return torch.sigmoid(-self._affine(hidden, "iasp_output")[:, 0])

    def performance(self, own: torch.Tensor, other: torch.Tensor, computing: torch.Tensor) -> torch.Tensor:
        x = torch.cat([own, other, computing[:, None]], 1)
        x = torch.relu(self._affine(torch.relu(self._affine(x, "iapp_first")), "iapp_second"))
        return torch.sigmoid(-self._affine(x, "iapp_output")[:, 0])


def train_networks(
    pairs: JobPairs, seed: int = 0, epochs: int = 200, batch_size: int = 128
) -> interference.InterferenceNetworks:
    """Fit the networks by least squares in speed."""
    torch.set_num_threads(1)  # the matrices are small
    generator = torch.Generator().manual_seed(seed)
    network = _Networks(generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    steps = epochs * -(-len(pairs.own) // batch_size)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    own, other, computing, similarity, performance = (
        torch.as_tensor(column, dtype=torch.float32)
        for column in (pairs.own, pairs.other, pairs.computing, pairs.similarity, pairs.performance)
    )
    for _ in range(epochs):
        for rows in torch.randperm(len(own), generator=generator).split(batch_size):  # type: ignore[no-untyped-call]
            loss = ((network.similarity(own[rows], other[rows]) - similarity[rows]) ** 2).mean()
            predicted = network.performance(own[rows], other[rows], computing[rows])
            loss = loss + ((predicted - performance[rows]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            decay.step()
    layers = zip(PARAMETERS, network.layers.values(), strict=True)
    weights = {name: layer.detach().numpy().astype(np.float64) for name, layer in layers}
    return interference.InterferenceNetworks(weights, {})


def left_out_errors(pairs: JobPairs, seed: int = 0) -> pd.DataFrame:
    """Return the errors on pairs of each model, of networks that have seen no pair of this model.

    Args:
        pairs: all pairs.
        seed: seed of the training.

    Returns:
        A row for each pair of a left-out model, as the job or the neighbour: `model`, `gpu_type`, and the
        absolute errors of speed, relative to the isolated speed, by `IASP`, by `IAPP`, and of predicting
        the mean of the pairs that were seen in place of IASP, `mean`.
    """
    tables = []
    for model in np.unique(pairs.models).tolist():
        left_out = (pairs.models == model).any(axis=1)
        seen, unseen = pairs.rows(~left_out), pairs.rows(left_out)
        if not len(seen.own):
            continue
        networks = train_networks(seen, seed)
        predicted = networks.performance(unseen.own, unseen.other, unseen.computing)
        errors = {
            "model": model,
            "gpu_type": unseen.gpu_types,
            "IASP": np.abs(networks.similarity(unseen.own, unseen.other) - unseen.similarity),
            "IAPP": np.abs(predicted - unseen.performance),
            "mean": np.abs(seen.similarity.mean() - unseen.similarity),
        }
        tables.append(pd.DataFrame(errors))
    return pd.concat(tables, ignore_index=True)


def error_rows(errors: pd.DataFrame) -> list[list[str]]:
    """Return the rows of a table of `left_out_errors` with the columns `ERROR_COLUMNS`."""
    groups = {key: one for key, one in errors.groupby(["model", "gpu_type"])} | {("all", "all"): errors}
    return [
        [*map(str, key), f"{len(one):,}", *(f"{one[name].mean():.3f}" for name in ("IASP", "IAPP", "mean"))]
        for key, one in groups.items()
    ]


def fit_interference(rows: pd.DataFrame, where: str, out: str | None, seed: int) -> pd.DataFrame:
    """Train the networks, print their errors by left-out model, and write what they learnt to `out`.

    Args:
        rows: tidy table of measurements.
        where: name of the table, for errors.
        out: file `.npz`. None: nothing is written.
        seed: seed of the training.

    Returns:
        `left_out_errors`.

    Raises:
        ConfigurationError: the table has too few pairs.
    """
    pairs, profiles = measured_pairs(rows, np.random.default_rng(seed), where)
    errors = left_out_errors(pairs, seed)
    table = Table(title="Mean absolute error of the predicted speed (1: as fast as alone)")
    for title in ERROR_COLUMNS:
        table.add_column(title, justify="left" if title in ERROR_COLUMNS[:2] else "right")
    for row in error_rows(errors):
        table.add_row(*row)
    console = Console()
    console.print(table)
    if out is not None:
        file = Path(out).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        replace(train_networks(pairs, seed), profiles=profiles).save(file)
        console.print(f"weights: {file} ({file.stat().st_size:,} bytes)", soft_wrap=True)
    return errors
