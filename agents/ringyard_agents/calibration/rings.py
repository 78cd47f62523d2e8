"""Joint fit of networks, overlap and compute seconds to iteration times on several GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from ringyard.fabric import Fabric
from ringyard.performance.ring import overlapped_seconds
from ringyard_agents.calibration.fits import LEAST_FIXED_SECONDS, ComputeLine, Sharing, fit_line
from ringyard_agents.measurements import gpus_per_server

_MAX_EXPONENT = 10.0  # beyond it only the longer of the two times counts
_ISOLATED_SHARE = 0.1  # least share of one-GPU rows in the weights of a model
_PRIOR = 0.01  # weight of the initial values, for constants that the rows do not determine
_BEGIN_LATENCY, _BEGIN_BANDWIDTH = 2e-4, 2e9
_NO_LINE = ComputeLine(float("nan"), float("nan"))


@dataclass(frozen=True)
class FittedConstants:
    """Fitted constants."""

    #: {(model, GPU type): compute seconds}
    lines: Mapping[tuple[str, str], ComputeLine] = field(default_factory=dict)
    exponents: Mapping[str, float] = field(default_factory=dict)  #: {model: overlap exponent}
    networks: Mapping[str, Fabric] = field(default_factory=dict)  #: {name: network between servers}
    interconnects: Mapping[str, Fabric] = field(default_factory=dict)  #: {name: interconnect inside a server}
    sharing: Mapping[str, Sharing] = field(default_factory=dict)  #: {GPU type: sensitivities and pressures}

    def compute_seconds(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Predict isolated seconds on one GPU [rows], NaN where no line is known and 0 for transfers."""
        keys = zip(table.model, table.gpu_type, strict=True)
        lines = [self.lines.get(key, _NO_LINE) if key[0] else ComputeLine(0.0, 0.0) for key in keys]
        batches = table.batch.fillna(0.0)
        return np.array([line.seconds(batch) for line, batch in zip(lines, batches, strict=True)])


class _Rows:
    """Rows of a table as arrays."""

    def __init__(self, table: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> None:
        places = [gpus_per_server(placement) for placement in table.placement]
        self.gpus = np.array([sum(place) for place in places], dtype=np.float64)
        servers = np.array([len(place) for place in places])
        self.batch = table.batch.fillna(0.0).to_numpy(dtype=np.float64)
        self.seconds = table.seconds.to_numpy(dtype=np.float64)
        self.models = table.model.tolist()
        self.keys = list(zip(table.model, table.gpu_type, strict=True))
        of_model = table.model.map(dict(gradient_bytes)).astype(np.float64)
        self.bytes = table.transfer_bytes.fillna(of_model).to_numpy(dtype=np.float64)
        between, self.ring = servers > 1, self.gpus > 1
        columns = zip(between, self.ring, table.network, table.interconnect, strict=True)
        self.fabrics = [
            ("network", network) if crosses else ("interconnect", inside) if ring else None
            for crosses, ring, network, inside in columns
        ]
        self.count = np.where(between, servers, self.gpus).astype(int)
        self.steps = 2.0 * (self.gpus - 1.0)
        self.volume = 2.0 * self.bytes * (self.gpus - 1.0) / self.gpus

    def weights(self) -> NDArray[np.float64]:
        """Return 1 for each row [rows], and more for one-GPU rows of models that have few of them."""
        alone = pd.Series(~self.ring)
        of_model = alone.groupby(np.array(self.models))
        wanted = _ISOLATED_SHARE * of_model.transform("size") / of_model.transform("sum").clip(1)
        return np.where(alone, wanted.clip(1.0), 1.0)


def _knots(counts: NDArray[np.int64]) -> list[int]:
    """Return the measured counts that get their own bandwidth: up to 4 all, then powers of two."""
    present = np.unique(counts).tolist()
    return [n for n in present if n <= 4 or n & (n - 1) == 0] or present[:1]


class _Problem:
    """The constants of a fit as one vector of logs (`parts` takes it apart), and what they predict."""

    def __init__(self, rows: _Rows, held: FittedConstants) -> None:
        self.rows, self.held = rows, held
        self.lines = sorted(set(rows.keys))
        self.models = sorted(set(rows.models))
        self.fabrics = sorted({fabric for fabric in rows.fabrics if fabric is not None})
        on = {fabric: np.array([one == fabric for one in rows.fabrics]) for fabric in self.fabrics}
        self.knots = {fabric: _knots(rows.count[on[fabric]]) for fabric in self.fabrics}
        self.free_lines = [key for key in self.lines if key not in held.lines]
        rings = {model for model, ring in zip(rows.models, rows.ring, strict=True) if ring and model}
        self.free_models = [one for one in self.models if one in rings and one not in held.exponents]
        self.line_of = np.array([self.lines.index(key) for key in rows.keys])
        self.model_of = np.array([self.models.index(model) for model in rows.models])
        self.fabric_of = np.zeros(len(rows.seconds), dtype=int)
        mixing = []
        for number, fabric in enumerate(self.fabrics):
            self.fabric_of[on[fabric]] = number
            logs, near = np.log(self.knots[fabric]), np.log(rows.count)
            # [rows, knots] weights of log bandwidths, between two knots as `Fabric.bandwidth` interpolates
            weights = [np.interp(near, logs, unit) for unit in np.eye(len(logs))]
            mixing.append(np.stack(weights, axis=1) * on[fabric][:, None])
        self.mixing = np.concatenate(mixing, axis=1) if mixing else np.zeros((len(rows.seconds), 0))

    def initial_values(self) -> NDArray[np.float64]:
        """Return initial values: lines of one-GPU rows, else of all rows, and usual networks."""
        rows, found = self.rows, []
        for key in self.free_lines:
            mine = np.array([one == key for one in rows.keys])
            alone = mine & ~rows.ring
            chosen = alone if len(np.unique(rows.batch[alone])) > 1 else mine
            line = fit_line(rows.batch[chosen], rows.seconds[chosen])
            found.append([np.log(max(line.fixed, LEAST_FIXED_SECONDS)), np.log(max(line.sample, 1e-9))])
        lines: NDArray[np.float64] = np.array(found).reshape(-1, 2)
        latencies = np.full(len(self.fabrics), np.log(_BEGIN_LATENCY))
        bandwidths = np.full(self.mixing.shape[1], np.log(_BEGIN_BANDWIDTH))
        return np.concatenate([lines.T.ravel(), np.zeros(len(self.free_models)), latencies, bandwidths])

    def parts(self, logs: NDArray[np.float64]) -> tuple[Any, Any, Any, Any]:
        """Return {key: line}, {model: exponent}, latencies [fabrics] and log bandwidths [knots of all]."""
        sizes = [len(self.free_lines)] * 2 + [len(self.free_models), len(self.fabrics)]
        fixed, sample, exponent, latency, bandwidth = np.split(logs, np.cumsum(sizes))
        seconds = np.maximum(np.exp(fixed), LEAST_FIXED_SECONDS).tolist(), np.exp(sample).tolist()
        lines = dict(zip(self.free_lines, map(ComputeLine, *seconds), strict=True))
        above_one = np.exp(np.minimum(exponent, np.log(_MAX_EXPONENT - 1.0)))
        exponents = dict(zip(self.free_models, (1.0 + above_one).tolist(), strict=True))
        return {**self.held.lines, **lines}, {**self.held.exponents, **exponents}, np.exp(latency), bandwidth

    def predict(self, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predict seconds [rows]."""
        rows = self.rows
        lines, exponents, latency, bandwidth = self.parts(logs)
        pairs = np.array([lines[key] for key in self.lines])
        compute = pairs[self.line_of, 0] + pairs[self.line_of, 1] * rows.batch
        if not self.fabrics:
            return np.asarray(compute)
        exponent = np.array([exponents.get(model, 1.0) for model in self.models])[self.model_of]
        ring = rows.volume / np.exp(self.mixing @ bandwidth) + rows.steps * latency[self.fabric_of]
        longer, shorter = np.maximum(compute, ring), np.minimum(compute, ring)
        together = longer * (1.0 + (shorter / longer) ** exponent) ** (1.0 / exponent)  # `overlapped`
        return np.where(rows.ring, together, compute)

    def found(self, logs: NDArray[np.float64]) -> FittedConstants:
        """Return the constants of the rows' models and fabrics."""
        lines, exponents, latency, bandwidth = self.parts(logs)
        fabrics: dict[str, dict[str, Fabric]] = {"network": {}, "interconnect": {}}
        ends = np.cumsum([len(self.knots[one]) for one in self.fabrics])
        figures = np.split(np.exp(bandwidth), ends[:-1])
        for (where, name), values, seconds in zip(self.fabrics, figures, latency.tolist(), strict=False):
            knots = self.knots[where, name]
            fabrics[where][name] = Fabric(dict(zip(knots, values.tolist(), strict=True)), seconds)
        own_lines = {key: line for key, line in lines.items() if key in self.lines and key[0]}
        own_exponents = {model: exponent for model, exponent in exponents.items() if model in self.models}
        return FittedConstants(own_lines, own_exponents, fabrics["network"], fabrics["interconnect"])


def fit_rings(
    table: pd.DataFrame, gradient_bytes: Mapping[str, float], held: FittedConstants
) -> FittedConstants:
    """Fit t = (compute^g + ring^g)^(1/g), ring = 2 m (w-1)/w / B + 2 (w-1) latency, to all rows together.

    Minimises squares of log(predicted / measured) with softened outliers. One-GPU rows of a model weigh at
    least a tenth of its rows. Rows are of models alone on their GPUs, or of transfers, with `network` and
    `interconnect`. Lines and exponents `held` are not fitted.
    """
    if table.empty:
        return FittedConstants()
    transfers = {("", kind): ComputeLine(0.0, 0.0) for kind in table.gpu_type[table.model == ""].unique()}
    known = FittedConstants({**held.lines, **transfers}, exponents=held.exponents)
    problem = _Problem(_Rows(table, gradient_bytes), known)
    initial_values = problem.initial_values()
    root = np.sqrt(problem.rows.weights())
    log_measured = np.log(problem.rows.seconds)

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        wrong = root * (np.log(problem.predict(logs)) - log_measured)
        return np.concatenate([wrong, _PRIOR * (logs - initial_values)])

    found = least_squares(residuals, initial_values, loss="soft_l1", f_scale=0.1, xtol=1e-10, ftol=1e-10)
    return problem.found(found.x)


def predict_rings(
    table: pd.DataFrame, fit: FittedConstants, gradient_bytes: Mapping[str, float]
) -> NDArray[np.float64]:
    """Predict seconds [rows] of the rows of `fit_rings`, NaN where a constant is missing."""
    rows, predicted = _Rows(table, gradient_bytes), fit.compute_seconds(table)
    for row in np.flatnonzero(rows.ring & ~np.isnan(predicted)):
        where, name = rows.fabrics[row] or ("", "")
        fabric = (fit.networks if where == "network" else fit.interconnects).get(name)
        if fabric is None:
            predicted[row] = np.nan
            continue
        ring = rows.volume[row] / fabric.bandwidth(rows.count[[row]])[0]
        ring += rows.steps[row] * fabric.latency_seconds
        predicted[row] = overlapped_seconds(predicted[row], ring, fit.exponents.get(rows.models[row], 1.0))
    return predicted
