"""Networks, overlap and compute lines out of iteration times on several GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ringyard.fabric import Fabric
from ringyard.performance.ring import overlapped
from ringyard_agents.calibration.lines import LEAST_FIXED_SECONDS, Line, fit_line
from ringyard_agents.measurements import servers_of

__all__ = ["FabricFit", "RingFit", "fit_rings", "predict_rings", "ring_iteration_seconds"]

_MOST_EXPONENT = 10.0  # beyond it the longer of the two alone counts
_ALONE_SHARE = 0.1  # one-GPU rows weigh at least so much of a model's
_PRIOR = 0.01  # weight that holds what rows do not say near where the fit begins
_BEGIN_LATENCY, _BEGIN_BANDWIDTH = 2e-4, 2e9


@dataclass(frozen=True)
class FabricFit:
    """What `ringyard.Fabric` takes.

    Attributes:
        bytes_per_second: {servers, or GPUs of one server: B}.
        latency_seconds: of a step of the ring.
    """

    bytes_per_second: Mapping[int, float]
    latency_seconds: float


@dataclass(frozen=True)
class RingFit:
    """Constants of one fit.

    Attributes:
        lines: {(model, GPU type): compute seconds}.
        exponents: {model: overlap exponent}.
        networks: {name: between servers}.
        interconnects: {name: inside one}.
    """

    lines: Mapping[tuple[str, str], Line] = field(default_factory=dict)
    exponents: Mapping[str, float] = field(default_factory=dict)
    networks: Mapping[str, FabricFit] = field(default_factory=dict)
    interconnects: Mapping[str, FabricFit] = field(default_factory=dict)

    def with_more(self, other: "RingFit") -> "RingFit":
        """This and another fit's constants; the other's where both have some."""
        return RingFit(
            {**self.lines, **other.lines},
            {**self.exponents, **other.exponents},
            {**self.networks, **other.networks},
            {**self.interconnects, **other.interconnects},
        )


def ring_iteration_seconds(
    compute: NDArray[np.float64], ring: NDArray[np.float64], exponent: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[rows] `ring.overlapped`, for arrays."""
    longer, shorter = np.maximum(compute, ring), np.minimum(compute, ring)
    return np.asarray(longer * (1.0 + (shorter / longer) ** exponent) ** (1.0 / exponent))


class _Rows:
    """Rows of a table as arrays of indices into the constants."""

    def __init__(self, table: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> None:
        places = [servers_of(placement) for placement in table.placement]
        self.gpus = np.array([sum(place) for place in places], dtype=np.float64)
        self.servers = np.array([len(place) for place in places])
        self.batch = table.batch.fillna(0.0).to_numpy(dtype=np.float64)
        self.seconds = table.seconds.to_numpy(dtype=np.float64)
        self.keys = list(zip(table.model, table.gpu_type, strict=True))
        self.models = table.model.tolist()
        of_model = np.array([gradient_bytes.get(model, np.nan) for model in self.models])
        sent = table.transfer_bytes.to_numpy(dtype=np.float64)
        self.bytes = np.where(np.isnan(sent), of_model, sent)
        self.between = self.servers > 1
        self.ring = self.gpus > 1
        self.fabrics = [
            ("network", network) if between else ("interconnect", inside) if ring else None
            for between, ring, network, inside in zip(
                self.between, self.ring, table.network, table.interconnect, strict=True
            )
        ]
        self.count = np.where(self.between, self.servers, self.gpus).astype(int)

    def weights(self) -> NDArray[np.float64]:
        """[rows] 1, and more for the one-GPU rows of models that have few of them."""
        result = np.ones(len(self.seconds))
        models = np.array(self.models)
        for model in set(self.models):
            alone, all_of_it = (models == model) & ~self.ring, models == model
            if alone.any():
                result[alone] = max(1.0, _ALONE_SHARE * all_of_it.sum() / alone.sum())
        return result


def _knots(counts: NDArray[np.int64]) -> list[int]:
    """Counts for which a fabric gets a bandwidth of its own: those measured, from 5 on only powers of two."""
    present = sorted({int(count) for count in counts})
    return [n for n in present if n <= 4 or n & (n - 1) == 0] or present[:1]


def _between_knots(count: int, knots: Sequence[int]) -> list[tuple[int, float]]:
    """[(knot, weight)] of log bandwidth, as `Fabric.bandwidth` interpolates."""
    near = min(max(count, knots[0]), knots[-1])
    above = next(i for i, knot in enumerate(knots) if knot >= near)
    if knots[above] == near:
        return [(above, 1.0)]
    low, high = np.log(knots[above - 1]), np.log(knots[above])
    share = float((np.log(near) - low) / (high - low))
    return [(above - 1, 1.0 - share), (above, share)]


class _Problem:
    """The constants of a fit as one vector, and what they predict for its rows."""

    def __init__(self, rows: _Rows, held: RingFit) -> None:
        self.rows, self.held = rows, held
        self.lines = sorted(set(rows.keys))
        self.models = sorted(set(rows.models))
        self.fabrics = sorted({fabric for fabric in rows.fabrics if fabric is not None})
        self.knots = {
            fabric: _knots(rows.count[[one == fabric for one in rows.fabrics]]) for fabric in self.fabrics
        }
        self.free_lines = [key for key in self.lines if key not in held.lines]
        rings = {model for model, ring in zip(rows.models, rows.ring, strict=True) if ring and model}
        self.free_models = [one for one in self.models if one in rings and one not in held.exponents]
        self._index()

    def _index(self) -> None:
        rows = self.rows
        self.line_of = np.array([self.lines.index(key) for key in rows.keys])
        self.model_of = np.array([self.models.index(model) for model in rows.models])
        starts: dict[tuple[str, str], int] = {}
        total = 0
        for fabric in self.fabrics:
            starts[fabric] = total
            total += len(self.knots[fabric])
        self.bandwidths = total
        self.mixing = np.zeros((len(rows.seconds), total))
        self.fabric_of = np.zeros(len(rows.seconds), dtype=int)
        for row, (used, count) in enumerate(zip(rows.fabrics, rows.count, strict=True)):
            if used is None:
                continue
            self.fabric_of[row] = self.fabrics.index(used)
            for knot, weight in _between_knots(int(count), self.knots[used]):
                self.mixing[row, starts[used] + knot] = weight
        self.steps = 2.0 * (rows.gpus - 1.0)
        self.volume = 2.0 * rows.bytes * (rows.gpus - 1.0) / rows.gpus

    def begin(self) -> NDArray[np.float64]:
        """Logs of the free constants: lines of one-GPU rows, else of the quickest rows; usual networks."""
        rows, found = self.rows, []
        for key in self.free_lines:
            mine = np.array([one == key for one in rows.keys])
            alone = mine & ~rows.ring
            chosen = alone if len(np.unique(rows.batch[alone])) > 1 else mine
            line = fit_line(rows.batch[chosen], rows.seconds[chosen])
            found.append([np.log(max(line.fixed, LEAST_FIXED_SECONDS)), np.log(max(line.sample, 1e-9))])
        lines: NDArray[np.float64] = np.array(found).reshape(-1, 2)
        return np.concatenate(
            [
                lines.T.ravel(),
                np.zeros(len(self.free_models)),
                np.full(len(self.fabrics), np.log(_BEGIN_LATENCY)),
                np.full(self.bandwidths, np.log(_BEGIN_BANDWIDTH)),
            ]
        )

    def parts(self, logs: NDArray[np.float64]) -> tuple[Any, Any, Any, Any]:
        """({key: line}, {model: exponent}, [fabrics] latency, [knots of all fabrics] log bandwidth)."""
        count, models, fabrics = len(self.free_lines), len(self.free_models), len(self.fabrics)
        fixed, sample = np.exp(logs[:count]), np.exp(logs[count : 2 * count])
        lines = dict(self.held.lines) | {
            key: Line(max(float(f), LEAST_FIXED_SECONDS), float(s))
            for key, f, s in zip(self.free_lines, fixed, sample, strict=True)
        }
        rest = logs[2 * count :]
        exponents = dict(self.held.exponents) | {
            model: 1.0 + float(np.exp(min(log, np.log(_MOST_EXPONENT - 1.0))))
            for model, log in zip(self.free_models, rest[:models], strict=True)
        }
        return lines, exponents, np.exp(rest[models : models + fabrics]), rest[models + fabrics :]

    def predict(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] seconds."""
        lines, exponents, latency, bandwidth = self.parts(logs)
        pairs = np.array([lines[key] for key in self.lines])
        compute = pairs[self.line_of, 0] + pairs[self.line_of, 1] * self.rows.batch
        if not self.fabrics:
            return np.asarray(compute)
        exponent = np.array([exponents.get(model, 1.0) for model in self.models])[self.model_of]
        ring = self.volume / np.exp(self.mixing @ bandwidth) + self.steps * latency[self.fabric_of]
        together = ring_iteration_seconds(compute, ring, exponent)
        return np.where(self.rows.ring, together, compute)


def fit_rings(
    table: pd.DataFrame, gradient_bytes: Mapping[str, float], held: RingFit | None = None
) -> RingFit:
    """Every constant together: t = (compute^g + ring^g)^(1/g), ring = 2 m (w-1)/w / B + 2 (w-1) latency.

    Least squares of log(predicted / measured), outliers softened; one-GPU rows of a model weigh a tenth of
    its rows at least.

    Args:
        table: tidy rows (`ringyard_agents.measurements`) of models alone on their GPUs, or of
            transfers, with `network` and `interconnect`.
        gradient_bytes: {model: m}.
        held: lines and exponents that stay as they are; None: all are fitted.

    Returns:
        The constants; none of a table without rows.
    """
    if table.empty:
        return RingFit()
    transfers = {("", gpu_type): Line(0.0, 0.0) for gpu_type in table.gpu_type[table.model == ""].unique()}
    held = (held or RingFit()).with_more(RingFit(lines=transfers))
    problem = _Problem(_Rows(table, gradient_bytes), held)
    begin = problem.begin()
    root = np.sqrt(problem.rows.weights())
    log_measured = np.log(problem.rows.seconds)

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        wrong = root * (np.log(problem.predict(logs)) - log_measured)
        return np.concatenate([wrong, _PRIOR * (logs - begin)])

    found = least_squares(residuals, begin, loss="soft_l1", f_scale=0.1, xtol=1e-10, ftol=1e-10).x
    lines, exponents, latency, bandwidth = problem.parts(found)
    fabrics: dict[str, dict[str, FabricFit]] = {"network": {}, "interconnect": {}}
    position = 0
    for number, (where, name) in enumerate(problem.fabrics):
        knots = problem.knots[where, name]
        values = np.exp(bandwidth[position : position + len(knots)])
        position += len(knots)
        by_count = {knot: float(value) for knot, value in zip(knots, values, strict=True)}
        fabrics[where][name] = FabricFit(by_count, float(latency[number]))
    lines = {key: line for key, line in lines.items() if key in problem.lines and key[0]}
    exponents = {model: exponent for model, exponent in exponents.items() if model in problem.models}
    return RingFit(lines, exponents, fabrics["network"], fabrics["interconnect"])


def predict_rings(
    table: pd.DataFrame, fit: RingFit, gradient_bytes: Mapping[str, float]
) -> NDArray[np.float64]:
    """[rows] seconds by fitted constants; NaN where they do not say.

    Args:
        table: as of `fit_rings`.
        fit: the constants.
        gradient_bytes: {model: m}.
    """
    rows = _Rows(table, gradient_bytes)
    predicted = np.full(len(table), np.nan)
    for row, (key, fabric) in enumerate(zip(rows.keys, rows.fabrics, strict=True)):
        line = fit.lines.get(key) if key[0] else Line(0.0, 0.0)
        if line is None:
            continue
        compute = line.fixed + line.sample * rows.batch[row]
        if fabric is None:
            predicted[row] = compute
            continue
        known = (fit.networks if fabric[0] == "network" else fit.interconnects).get(fabric[1])
        if known is None:
            continue
        found = Fabric(known.bytes_per_second).bandwidth(rows.count[[row]])[0]
        ring = 2.0 * rows.bytes[row] * (rows.gpus[row] - 1.0) / rows.gpus[row] / found
        ring += 2.0 * (rows.gpus[row] - 1.0) * known.latency_seconds
        predicted[row] = overlapped(compute, ring, fit.exponents.get(key[0], 1.0))
    return predicted
