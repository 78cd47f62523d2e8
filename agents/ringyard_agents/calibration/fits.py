"""Least-squares fits of single constants: compute seconds, GPU types, restarts, cores, sharing of a GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize_scalar, nnls

from ringyard.errors import ConfigurationError
from ringyard.performance.host_resources import input_seconds, useful_cores

LEAST_FIXED_SECONDS = 1e-5  #: least fixed seconds of a profile, so that ratios between GPU types exist

#: {(model, samples per GPU): (sensitivity, pressure)} on one GPU type
Sharing = Mapping[tuple[str, float], tuple[float, float]]

_PRIOR = 0.02  # weight of the prior, which matters for job types with few pairs
_BEGIN = -0.3  # log of the prior sensitivity and pressure
_FLAT = 1.02  # a curve that changes less than this is not limited by cores

_useful = np.vectorize(useful_cores, otypes=[float])
_input = np.vectorize(input_seconds, otypes=[float])


class ComputeLine(NamedTuple):
    """Seconds of one iteration's forward and backward pass on one GPU: `fixed + sample x samples`."""

    fixed: float
    sample: float

    def seconds(self, batch: Any) -> Any:
        """Return the seconds of `batch` samples per GPU [...]."""
        return self.fixed + self.sample * batch


def fit_line(batch: NDArray[np.float64], seconds: NDArray[np.float64]) -> ComputeLine:
    """Fit seconds to samples per GPU by *relative* errors, >= 0. With one batch, all is per sample."""
    if len(np.unique(batch)) == 1:
        mean = float(np.exp(np.log(seconds).mean()))
        return ComputeLine(LEAST_FIXED_SECONDS, max(mean - LEAST_FIXED_SECONDS, 0.0) / float(batch[0]))
    fixed, sample = nnls(np.stack([1.0 / seconds, batch / seconds], axis=1), np.ones(len(seconds)))[0]
    return ComputeLine(max(float(fixed), LEAST_FIXED_SECONDS), float(sample))


def fit_factor(values: NDArray[np.float64]) -> float:
    """Return the factor a that minimises the sum of (a x values - 1)^2."""
    return float(values.sum() / (values**2).sum())


def fit_restart_growth(gpus: Sequence[float], seconds: Sequence[float], first: float) -> float:
    """Fit the seconds that each doubling of the GPUs adds to `first`, by relative errors."""
    measured, doublings = np.array(seconds, dtype=np.float64), np.log2(np.array(gpus, dtype=np.float64))
    return float(((measured - first) * doublings / measured**2).sum() / (doublings**2 / measured**2).sum())


def fit_sharing(pairs: pd.DataFrame) -> Sharing:
    """Fit speed beside another / speed alone = 1 / (1 + sensitivity x pressure of the other).

    `pairs` has `model`, `batch`, `neighbour`, `neighbour_batch` and `speed` on one GPU type. Squares of
    log(predicted / measured speed) are minimised with softened outliers. A weak prior pulls every log towards
    a common start and fixes how a factor is shared between sensitivity and pressure.
    """
    own = list(zip(pairs.model, pairs.batch, strict=True))
    other = list(zip(pairs.neighbour, pairs.neighbour_batch, strict=True))
    kinds = sorted({*own, *other})
    count, number = len(kinds), {kind: position for position, kind in enumerate(kinds)}
    own_id, other_id = np.array([number[kind] for kind in own]), np.array([number[kind] for kind in other])
    log_speed = np.log(pairs.speed.to_numpy(dtype=np.float64))

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        excess = np.exp(logs[:count][own_id] + logs[count:][other_id])
        return np.concatenate([-np.log1p(excess) - log_speed, _PRIOR * (logs - _BEGIN)])

    initial_values = np.full(2 * count, _BEGIN)
    found = least_squares(residuals, initial_values, loss="soft_l1", f_scale=0.1, xtol=1e-10, ftol=1e-10)
    sensitivity, pressure = np.exp(found.x).reshape(2, -1).tolist()
    return dict(zip(kinds, zip(sensitivity, pressure, strict=True), strict=True))


@dataclass(frozen=True)
class CoreCurve:
    """Training speed of one worker by CPU cores."""

    #: samples that one core prepares without serial work. inf: cores are no limit.
    samples_per_core_second: float
    loading_serial_share: float  #: s of `ringyard.performance.host_resources.useful_cores`
    sample_seconds: float  #: seconds of one sample with enough cores

    def seconds(self, cores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predict the seconds of one sample [rows] by cores per worker."""
        useful = _useful(cores, self.loading_serial_share)
        return np.maximum(_input(1.0, useful, self.samples_per_core_second, 1.0), self.sample_seconds)

    def error(self, cores: NDArray[np.float64], seconds: NDArray[np.float64]) -> float:
        """Return the sum of the squared relative errors of throughput."""
        return float(((seconds / self.seconds(cores) - 1.0) ** 2).sum())


def _curve(cores: NDArray[np.float64], seconds: NDArray[np.float64], share: float) -> CoreCurve:
    """Fit one curve by trying how many of the rows are limited by cores."""
    useful = _useful(cores, share)
    order = np.argsort(useful, kind="stable")
    prepared = (useful * seconds)[order]  # rate x these = predicted / measured throughput
    computed = seconds[order]
    found = [
        CoreCurve(fit_factor(prepared[:split]), share, 1.0 / fit_factor(computed[split:]))
        for split in range(1, len(order))
    ]
    return min(found, key=lambda curve: curve.error(cores, seconds))


def core_curves(rows: pd.DataFrame, serial_share: float | None = None) -> Mapping[str, CoreCurve]:
    """Fit t = max(1 / (c / (1 + s c) x rate), t_gpu) for each model, with one s for all of them.

    Takes the rows of each model that have the most main memory, if they have at least two numbers of cores.
    A `serial_share` s of None is the one that fits all models best. A model with equal measurements has no
    limit.
    """
    most = rows.groupby("model").ram_bytes.transform("max")
    rows = rows[most.isna() | (rows.ram_bytes == most)]
    tables = {
        str(name): (one.cores.to_numpy(dtype=float), (one.seconds / one.batch).to_numpy(dtype=float))
        for name, one in rows.groupby("model")
        if one.cores.nunique() > 1
    }
    bent = {name: table for name, table in tables.items() if table[1].max() >= _FLAT * table[1].min()}

    def error(log_share: float) -> float:
        share = float(np.exp(log_share))
        return sum(_curve(*table, share).error(*table) for table in bent.values())

    if serial_share is None and bent:
        tried = np.log(np.geomspace(1e-3, 1.0, 31))
        near = int(np.argmin([error(one) for one in tried]))
        ends = tried[max(near - 1, 0)], tried[min(near + 1, len(tried) - 1)]
        serial_share = float(np.exp(minimize_scalar(error, bounds=ends, method="bounded").x))
    flat = {name: CoreCurve(float("inf"), 0.0, float(t.mean())) for name, (_, t) in tables.items()}
    return flat | {name: _curve(*table, serial_share or 0.0) for name, table in bent.items()}


@dataclass(frozen=True)
class ComputeTime:
    """Compute seconds of one model on one GPU type, with their source."""

    line: ComputeLine  #: seconds by number of samples
    source: str  #: the measurement, or how it was derived
    batch: float | None = None  #: samples per GPU if only one batch was measured


@dataclass(frozen=True)
class GpuFactor:
    """Ratio of seconds per sample on two GPU types."""

    kind: str  #: kind of the models. "": every kind.
    factor: float  #: geometric mean over models
    models: tuple[str, ...]  #: models that were measured on both types
    error: float  #: mean relative leave-one-out error, NaN with one model


def fit_gpu_factor(ratios: Mapping[str, float], kind: str = "") -> GpuFactor:
    """Fit the factor between two GPU types to {model: ratio}; all models are of the `kind`."""
    models = sorted(ratios)
    logs = np.log([ratios[model] for model in models])
    error = float("nan")
    if len(logs) > 1:
        others = (logs.sum() - logs) / (len(logs) - 1)
        error = float(np.abs(np.exp(others - logs) - 1.0).mean())
    return GpuFactor(kind, float(np.exp(logs.mean())), tuple(models), error)


def derive_compute_times(
    measured: Mapping[str, ComputeTime],
    kind: str,
    chains: Mapping[str, Mapping[str, Any]],
    factors: Mapping[str, Mapping[str, GpuFactor]],
    types: Sequence[str],
) -> Mapping[str, ComputeTime]:
    """Derive the compute times of GPU `types` that were not measured; measured ones are unchanged.

    Seconds per sample are multiplied by `factors` {GPU type: {kind: factor}} to the type that `chains` names
    under "from". Fixed seconds, which are mostly the host's, are kept, unless a model has fixed seconds only.
    """

    def chain(gpu_type: str) -> list[str]:
        """Return a GPU type, the type that its factor refers to, and so on to the root."""
        way = [gpu_type]
        while way[-1] in chains:
            way.append(chains[way[-1]]["from"])
        return way

    def derived(gpu_type: str) -> ComputeTime:
        """Derive from the measured type with the fewest factors in between, the first among equals."""
        ways: dict[str, list[tuple[str, float]]] = {}  # {measured type: [(type, exponent of its factor)]}
        here = chain(gpu_type)
        for known in measured:
            there = chain(known)
            common = next((step for step in here if step in there), None)
            if common is not None:
                down, up = there[: there.index(common)], here[: here.index(common)]
                ways[known] = [*((step, -1.0) for step in down), *((step, 1.0) for step in reversed(up))]
        if not ways:
            raise ConfigurationError(f"calibration: no factor leads from {', '.join(measured)} to {gpu_type}")
        start = min(ways, key=lambda known: len(ways[known]))
        total, texts = 1.0, []
        for step, exponent in ways[start]:
            factor = factors[step].get(kind) or factors[step][""]
            total *= factor.factor**exponent
            of = f"{len(factor.models)} {factor.kind or 'other'} models".replace("other ", "")
            wrong = "" if np.isnan(factor.error) else f", leave one out {factor.error:.0%}"
            texts.append(f"{step}/{chains[step]['from']} {factor.factor:.3g} ({of}{wrong})")
        fixed, sample = measured[start].line
        source = f"x {total:.3g}; {'; '.join(texts)}"
        if sample > 0:
            return ComputeTime(ComputeLine(fixed, sample * total), f"derived: {start}, per sample {source}")
        return ComputeTime(ComputeLine(fixed * total, 0.0), f"derived: {start} {source}")

    return {gpu_type: measured.get(gpu_type) or derived(gpu_type) for gpu_type in types}
