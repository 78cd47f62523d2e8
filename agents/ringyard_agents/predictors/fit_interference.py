"""`ringyard fit`: train the interference networks IASP and IAPP, and print their errors on unseen jobs."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table
from torch import nn

from ringyard.errors import ConfigurationError
from ringyard.gpu_types import REFERENCE_GPU
from ringyard.performance import sensitivity_pressure
from ringyard.profiles import model_id, profile
from ringyard.state.gpu_effects import sharing_factors
from ringyard.workloads.cells import numbers
from ringyard_agents.measurements import Source, read_cells
from ringyard_baselines.papers.interference_aware.networks import PARAMETERS, REFERENCES, InterferenceNetworks

#: columns of Gavel's measured pairs
_PAIR_COLUMNS = ("source", "gpu", "model_a", "bs_a", "model_b", "bs_b", "norm_a", "norm_b", "feasible")
#: spread of ln(excess) about sensitivity x pressure: Gavel's held-out pairs deviate by 6.3 % in speed
SCATTER = 0.15

_HELD_OUT = 0.2  # share of jobs that the networks are not trained on

#: fields of `JobPairs` with a row for each pair
_OF_PAIRS = ("own", "other", "computing", "similarity", "performance")


@dataclass(frozen=True)
class JobPairs:
    """Pairs of jobs that share a GPU, and the speed of the first beside the second."""

    #: [jobs, 2 x references] speeds beside the reference jobs, and of these beside the job
    profiles: NDArray[np.float64]
    own: NDArray[np.int64]  #: [pairs] row of the job in `profiles`
    other: NDArray[np.int64]  #: [pairs] row of its neighbour
    computing: NDArray[np.float64]  #: [pairs] share of the job's iteration time in which it computes
    #: [pairs] compute speed beside the neighbour, relative to the isolated speed
    similarity: NDArray[np.float64]
    performance: NDArray[np.float64]  #: [pairs] the same for whole iterations
    source: str  #: source of the pairs, for tables

    def rows(self, chosen: NDArray[np.bool_]) -> "JobPairs":
        """Return the pairs for which `chosen` [pairs] is true."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _OF_PAIRS})


def _pairs(
    excess: NDArray[np.float64], references: NDArray[np.int64], rng: np.random.Generator, source: str
) -> JobPairs:
    """Return every pair with a known `excess` [jobs, jobs], extra time of the first as a share, NaN: unknown.

    Computing shares are drawn, since profiles do not depend on them. `references` are rows of jobs.
    """
    profiles = np.concatenate([1 / (1 + excess[:, references]), 1 / (1 + excess[references].T)], axis=1)
    whole = np.isfinite(profiles).all(axis=1)
    own, other = np.nonzero(np.isfinite(excess) & whole[:, None] & whole[None, :])
    computing = rng.uniform(0.2, 1.0, len(own))
    extra = excess[own, other]
    alone, whole_task = 1 / (1 + extra), 1 / (1 + computing * extra)
    return JobPairs(np.nan_to_num(profiles), own, other, computing, alone, whole_task, source)


def simulated_pairs(rng: np.random.Generator, jobs: int = 300) -> JobPairs:
    """Draw pairs with sensitivities and pressures around the catalogue's, and scatter of their product."""
    table = sensitivity_pressure().sharing_on([REFERENCE_GPU])
    known = [sharing_factors(table, model_id(name), profile(name).batch_size) for name in REFERENCES]
    sensitivity, pressure = np.maximum(np.array(known).T, 1e-3)
    count = len(known)
    drawn = [np.exp(rng.normal(np.log(one).mean(), 1.0, jobs - count)) for one in (sensitivity, pressure)]
    own, other = np.append(sensitivity, drawn[0]), np.append(pressure, drawn[1])
    excess = own[:, None] * other[None, :] * np.exp(rng.normal(0.0, SCATTER, (jobs, jobs)))
    return _pairs(np.minimum(excess, 9.0), np.arange(count), rng, f"{jobs} simulated jobs")


def measured_pairs(folder: str | Path, rng: np.random.Generator) -> JobPairs:
    """Read Gavel's pairs (calibration/gavel_colocation_pairs.csv.gz), with four references on each GPU."""
    file = Path(folder).expanduser() / "calibration" / "gavel_colocation_pairs.csv.gz"
    if not file.is_file():
        found = f"there are no measured pairs at {file}"
        raise ConfigurationError(f"{found}; give --data the folder that holds calibration/")
    cells = read_cells(file)
    table = cells.frame.copy()
    missing = set(_PAIR_COLUMNS).difference(table.columns)
    if missing:
        raise ConfigurationError(f"{file}: there is no column {min(missing)}; it has {[*table.columns]}")
    source = Source(str(file), {}, cells.numbers.tolist())
    for name in ("norm_a", "norm_b", "feasible"):
        table[name] = numbers(table[name])
        wrong = ~(table[name] > 0) & (cells.frame["feasible"] != "0")
        source.refuse(name, cells.frame[name], wrong, "a number above 0")
    table = table[(table.source == "oracle_throughputs_single_gpu") & (table.feasible == 1)]
    parts, offset = [], 0
    for _, rows in table.groupby("gpu", sort=True):
        own = (rows.model_a + " " + rows.bs_a.astype(str)).to_numpy()
        other = (rows.model_b + " " + rows.bs_b.astype(str)).to_numpy()
        names, both = np.unique(np.concatenate([own, other]).astype(str), return_inverse=True)
        a, b = np.split(both, 2)
        excess = np.full((len(names), len(names)), np.nan)
        for one, two, fast_one, fast_two in zip(a, b, rows.norm_a, rows.norm_b, strict=True):
            excess[one, two] = max(1.0 / fast_one - 1.0, 0.0)
            excess[two, one] = max(1.0 / fast_two - 1.0, 0.0)
        known = np.isfinite(excess).sum(axis=1)
        order = np.argsort(-known, kind="stable")[: 2 * len(REFERENCES) : 2]
        part = _pairs(excess, order, rng, "")
        parts.append(replace(part, own=part.own + offset, other=part.other + offset))
        offset += len(names)
    fields = ("profiles", *_OF_PAIRS)
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in fields}
    return JobPairs(**columns, source="Gavel's measured pairs (V100, P100, K80)")


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
    pairs: JobPairs, seed: int = 0, epochs: int = 30, batch_size: int = 512
) -> InterferenceNetworks:
    """Fit the networks by least squares in speed."""
    generator = torch.Generator().manual_seed(seed)
    network = _Networks(generator)
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3)
    steps = epochs * -(-len(pairs.own) // batch_size)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(steps, 1))
    measured = (pairs.profiles, pairs.computing, pairs.similarity, pairs.performance)
    columns = (torch.as_tensor(column, dtype=torch.float32) for column in measured)
    profiles, computing, similarity, performance = columns
    own_rows, other_rows = torch.as_tensor(pairs.own), torch.as_tensor(pairs.other)
    for _ in range(epochs):
        for rows in torch.randperm(len(own_rows), generator=generator).split(batch_size):  # type: ignore[no-untyped-call]
            own, other = profiles[own_rows[rows]], profiles[other_rows[rows]]
            loss = ((network.similarity(own, other) - similarity[rows]) ** 2).mean()
            loss = loss + ((network.performance(own, other, computing[rows]) - performance[rows]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            decay.step()
    weights = {name: network.layers[name.replace(".", "_")].detach().numpy() for name in PARAMETERS}
    return InterferenceNetworks({name: array.astype(np.float64) for name, array in weights.items()})


def _errors(networks: InterferenceNetworks, pairs: JobPairs, mean: float) -> tuple[float, float, float]:
    """Return mean absolute errors in speed of IASP, IAPP, and of predicting `mean` in place of IASP."""
    own, other = pairs.profiles[pairs.own], pairs.profiles[pairs.other]
    iasp = np.abs(networks.similarity(own, other) - pairs.similarity).mean()
    iapp = np.abs(networks.performance(own, other, pairs.computing) - pairs.performance).mean()
    return float(iasp), float(iapp), float(np.abs(mean - pairs.similarity).mean())


def fit_interference(data: str | None, out: str | None, seed: int) -> None:
    """Train the networks on measured (None: simulated) pairs, print errors and write the weights to `out`."""
    rng = np.random.default_rng(seed)
    pairs = simulated_pairs(rng) if data is None else measured_pairs(data, rng)
    held_out = rng.random(len(pairs.profiles)) < _HELD_OUT
    without = held_out[pairs.own] | held_out[pairs.other]
    known, unseen = pairs.rows(~without), pairs.rows(without)
    networks = train_networks(known, seed, epochs=30 if data is None else 400)
    numbers_of = [Column(name, justify="right") for name in ("count", "IASP", "IAPP", "always the mean")]
    title = f"{pairs.source}; mean absolute error of predicted speed, relative to isolated speed"
    table = Table("pairs", *numbers_of, title=title)
    for title, part in (("of training jobs", known), ("with a held-out job", unseen)):
        iasp, iapp, guess = _errors(networks, part, float(known.similarity.mean()))
        table.add_row(title, f"{len(part.own):,}", f"{iasp:.3f}", f"{iapp:.3f}", f"{guess:.3f}")
    console = Console()
    console.print(table)
    if out is not None:
        file = Path(out).expanduser()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            arrays: dict[str, Any] = {n: a.astype(np.float32) for n, a in networks.weights.items()}
            np.savez(stream, **arrays)
        console.print(f"weights: {file} ({file.stat().st_size:,} bytes)", soft_wrap=True)
