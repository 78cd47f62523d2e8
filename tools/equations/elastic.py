"""Throughput by GPUs, placement and batch; what a sample of a large batch is worth."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from ringyard.performance.elastic import statistical_efficiency
from ringyard.performance.ring import overlapped, ring_seconds
from ringyard.profiles import profile
from ringyard_agents.measurements import servers_of, twins
from ringyard_agents.validation.shipped_errors import scatter
from tools.equations.result import Comparison, Part, halves, read, relative
from tools.measured_sets.readers import POLLUX
from tools.measured_sets.sets import rows_of

_ring = np.vectorize(ring_seconds, otypes=[float])
_overlapped = np.vectorize(overlapped, otypes=[float])
_efficiency = np.vectorize(statistical_efficiency, otypes=[float])


def _step_seconds(logs: Any, gradient_bytes: float, gpus: Any, nodes: Any, batch: Any) -> Any:
    """`composed`'s iteration time with constants fixed, per sample, B inside and between servers, overlap."""
    fixed, per_sample, inside, between = np.exp(logs[:4])
    exponent = 1.0 + np.exp(np.minimum(logs[4], 2.5))
    bandwidth = np.where(nodes > 1, between, inside)
    return _overlapped(fixed + per_sample * batch, _ring(gpus, gradient_bytes, bandwidth, np.inf), exponent)


def placements(data: Path) -> Comparison:
    """Pollux' step times on T4: 108 placements of up to 16 GPUs, several batches; half of them fitted."""
    parts, points = [], []
    for model, rows in rows_of("pollux_placements", data).rows.groupby("model", sort=False):
        servers = [servers_of(placement) for placement in rows.placement]
        gpus, nodes = np.array([sum(one) for one in servers]), np.array([len(one) for one in servers])
        batch, measured = rows.batch.to_numpy(), rows.seconds.to_numpy()
        fitted = halves(twins(rows).tolist()) | (gpus == 1)
        arguments = (profile(str(model)).gradient_bytes, gpus, nodes, batch)

        def residuals(
            logs: Any, arguments: Any = arguments, measured: Any = measured, fitted: Any = fitted
        ) -> Any:
            return np.log(_step_seconds(logs, *arguments) / measured)[fitted]

        begin = [np.log(0.05), np.log(0.003), np.log(1e9), np.log(0.5e9), 0.0]
        found = least_squares(residuals, begin, loss="soft_l1", f_scale=0.1).x
        predicted = _step_seconds(found, *arguments)
        errors = relative(predicted, measured)
        fixed, per_sample, inside, between = np.exp(found[:4])
        note = (
            f"{fixed * 1e3:.1f} ms + {per_sample * 1e3:.3g} ms per sample, {inside / 1e9:.2f} and"
            f" {between / 1e9:.2f} GB/s, overlap {1 + np.exp(min(found[4], 2.5)):.2f}"
        )
        parts.append(Part(str(model), errors[~fitted], int(fitted.sum()), 5, note))
        points.append((model, measured[~fitted], predicted[~fitted]))

    return Comparison(
        title="Throughput by GPUs, placement and batch",
        source="Pollux' measurements on 4 T4 per node, 50 Gb/s network",
        form=(
            "t = ((fixed + sample b)^g + t_ring^g)^(1/g) (`composed`); five constants per model, fitted to"
            " one-GPU runs and a random half of the placements"
        ),
        parts=parts,
        weakness=(
            "The ring does not know how many nodes it crosses, nor how unevenly its GPUs lie on them: single"
            " placements are far off (see worst). NeuMF, with its tiny steps, is the worst model. The fitted"
            " bandwidths are a tenth of the wire's 50 Gb/s and less: they stand for all the software of"
            " those runs and are no property of a network."
        ),
        draw=lambda axes: scatter(axes, points, "seconds per step (held-out placements)"),
        aim=0.08,
        statistic="median",
    )


def batch_efficiency(data: Path) -> Comparison:
    """Measured efficiency of larger batches; phi fitted at every other batch size."""
    table = read(data, "calibration/pollux_statistical_efficiency.csv")
    parts, curves = [], []
    for name, model in POLLUX.items():
        rows = table[(table.app == name) & (table.batch_size > table.init_bsz)].sort_values("batch_size")
        base, batch = float(rows.init_bsz.iloc[0]), rows.batch_size.to_numpy(dtype=float)
        measured = rows.measured_stat_efficiency.to_numpy()
        fitted = np.arange(len(rows)) % 2 == (len(rows) - 1) % 2  # the largest batch is fitted

        def predict(logs: Any, base: float = base, batch: Any = batch) -> Any:
            return _efficiency(np.exp(logs[0]), base, batch)

        def residuals(
            logs: Any, predict: Any = predict, measured: Any = measured, fitted: Any = fitted
        ) -> Any:
            return (predict(logs) - measured)[fitted]

        found = least_squares(residuals, [np.log(1e3 * base)], x_scale=[1.0]).x
        predicted = predict(found)
        errors = relative(predicted, measured)[~fitted]
        note = f"phi {np.exp(found[0]):.3g}; the profile says {profile(model).need('noise_scale'):.3g}"
        parts.append(Part(model, errors, int(fitted.sum()), 1, note))
        curves.append((model, batch / base, measured, predicted))

    def draw(axes: Any) -> None:
        for model, ratio, measured, predicted in curves:
            (line,) = axes.semilogx(ratio, predicted, "-", label=model)
            axes.plot(ratio, measured, ".", color=line.get_color())
        axes.set_xlabel("batch / base batch")
        axes.set_ylabel("statistical efficiency: points measured, lines predicted")

    return Comparison(
        title="Statistical efficiency of large batches",
        source="Pollux' validation runs: progress per sample at each batch size, over whole trainings",
        form="E(M) = (phi + M0) / (phi + M) (`elastic.statistical_efficiency`); one phi per model",
        parts=parts,
        weakness=(
            "One phi for a whole training: the measured noise scale of ResNet-18 grows 300 times from its"
            " first to its last epoch (126 to 38,500 samples), so that early progress with large batches is"
            " overestimated and late progress underestimated."
        ),
        draw=draw,
    )
