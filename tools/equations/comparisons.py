"""One comparison for each equation of the performance models, on held-out published measurements."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ringyard.fabric import Fabric
from ringyard.performance.host_resources import input_seconds, useful_cores
from ringyard.performance.model import statistical_efficiency
from ringyard.performance.ring import overlapped_seconds, ring_seconds
from ringyard.profiles import profile
from ringyard_agents.measurements import gpus_per_server, situations
from ringyard_agents.runs.figures import plot_predictions
from tools.equations.execution_plans import execution_plans, plans_by_gpu_type, plans_of_new_models
from tools.equations.parameter_server_errors import parameter_server_steps, restarts
from tools.equations.result import Comparison, Part, halves, read, relative
from tools.measured_sets.readers import POLLUX
from tools.measured_sets.sets import rows_of

_ring = np.vectorize(ring_seconds, otypes=[float])
_CORES = np.array([1, 2, 3, 4, 5, 6, 9, 12, 24])
_FITTED = np.array([True, False, True, False, True, False, True, False, True])
_input = np.vectorize(input_seconds, otypes=[float])
_useful = np.vectorize(useful_cores, otypes=[float])
_PRIOR = 0.02  # weight that holds a model without fitted pairs near the others
_overlapped = np.vectorize(overlapped_seconds, otypes=[float])
_efficiency = np.vectorize(statistical_efficiency, otypes=[float])


def _draw_curves(axes: Any, curves: Any, label: str) -> None:
    """Plot measured points and predicted lines: [(name, x, measured, predicted)]."""
    for name, x, measured, predicted in curves:
        (line,) = axes.plot(x, predicted, "-", label=name)
        axes.plot(x, measured, ".", color=line.get_color())
    axes.set_ylabel(f"{label}: points measured, lines predicted")


def rings(data: Path) -> Comparison:
    """27 iteration times on 8, 16 and 32 GPUs, three models, three networks."""
    table = read(data, "calibration/hkbu_scaling_and_busbw.csv")
    table = table[(table.method == "BSP-A2A") & (table.gpus >= 8)]
    parts, points = [], []
    for network, rows in table.groupby("network"):
        gpus, size = rows.gpus.to_numpy(), rows.grad_bytes.to_numpy(dtype=float)
        alone, measured = rows.iter_1gpu_s.to_numpy(), rows.iter_s.to_numpy()
        fitted = halves(range(len(rows)))

        def predict(bandwidth: float, gpus: Any = gpus, size: Any = size, alone: Any = alone) -> Any:
            return alone + _ring(gpus, size, bandwidth, np.inf)

        def residuals(log_bandwidth: Any, predict: Any = predict, wanted: Any = (measured, fitted)) -> Any:
            return ((predict(np.exp(log_bandwidth[0])) - wanted[0]) / wanted[0])[wanted[1]]

        bandwidth = float(np.exp(least_squares(residuals, [np.log(2e9)]).x[0]))
        predicted = predict(bandwidth)
        errors = relative(predicted, measured)
        note = f"{bandwidth / 1e9:.2f} GB/s; worst of all 9 points {errors.max():.1%}"
        parts.append(Part(str(network), errors[~fitted], int(fitted.sum()), 1, note))
        points.append((str(network), measured, predicted))

    return Comparison(
        title="Ring iteration times",
        source="HKBU ddl-benchmarks, all-reduce of ResNet-50, BERT-base and BERT-large, 4 GPUs per server",
        form="t = t(1 GPU, measured) + 2 m (w-1)/w / B (`ring.ring_seconds`); one B per network",
        parts=parts,
        aim=0.05,
        weakness="Worst on 100GbE with TCP, where the bandwidth seems to fall with the number of GPUs.",
        draw=lambda axes: plot_predictions(axes, points, "seconds per iteration"),
    )


def inside_a_server(data: Path) -> Comparison:
    """NCCL all-reduce on 2, 4 and 8 V100 of one server."""
    table = read(data, "aceso/collectives_v100_intranode.csv")
    table = table[table.collective == "all_reduce"]
    table = pd.DataFrame(table.groupby(["gpus", "size_MiB"], as_index=False)["time_ms"].median())
    table = table[table.size_MiB >= 16]
    gpus, size = table.gpus.to_numpy(), table.size_MiB.to_numpy(dtype=float) * 2**20
    measured = table.time_ms.to_numpy() / 1e3
    fitted = halves(range(len(table)))

    def predict(constants: Any) -> Any:
        pair, eight = np.exp(constants).tolist()
        return _ring(gpus, size, Fabric({2: pair, 8: eight}).bandwidth(gpus), np.inf)

    found = least_squares(lambda c: np.log(predict(c) / measured)[fitted], np.log([40e9, 100e9])).x
    predicted = predict(found)
    errors = relative(predicted, measured)
    points = [(f"{n} GPUs", measured[gpus == n], predicted[gpus == n]) for n in (2, 4, 8)]
    note = f"{np.exp(found[0]) / 1e9:.1f} GB/s for 2 GPUs, {np.exp(found[1]) / 1e9:.1f} for 8"
    parts = []
    for n in (2, 4, 8):
        here = gpus == n
        constants = 2 if n == 2 else 0  # counted once: they are the same for all sizes
        parts.append(Part(f"{n} GPUs", errors[~fitted & here], int((fitted & here).sum()), constants, note))
    return Comparison(
        title="All-reduce inside a server",
        source="Aceso's NCCL profiles, 8 V100 with NVLink, messages of 16 MiB and more",
        form="2 m (w-1)/w / B(w), log B linear in log w (`fabric.Fabric`); two constants",
        parts=parts,
        weakness="Start-up latency is not in the model: transfers below 16 MiB take longer.",
        draw=lambda axes: plot_predictions(axes, points, "seconds"),
    )


def _curves(logs: Any) -> Any:
    """[models, core counts] throughputs, of log [serial share, rates per core, largest throughputs]."""
    rates, largest = np.exp(logs[1:]).reshape(2, -1, 1)
    return 1.0 / np.maximum(_input(1.0, _useful(_CORES, np.exp(logs[0])), rates, 1.0), 1.0 / largest)


def core_curves(data: Path) -> Comparison:
    """Synergy's throughput at 1 to 24 cores per GPU, fitted at every other core count."""
    table = read(data, "calibration/cpu_sensitivity_synergy.csv")
    measured = table[[str(cores) for cores in _CORES]].to_numpy(dtype=float)
    curved = measured.min(axis=1) < measured.max(axis=1)
    names, flat = table.model[curved].tolist(), table.model[~curved].tolist()
    measured = measured[curved]

    def residuals(logs: Any) -> Any:
        return ((_curves(logs) - measured) / measured)[:, _FITTED].ravel()

    found = least_squares(residuals, np.log([0.03, *measured[:, 0], *measured[:, -1]])).x
    predicted = _curves(found)
    rates, largest = np.exp(found[1:]).reshape(2, -1)
    parts = []
    for i, name in enumerate(names):
        errors = relative(predicted[i], measured[i])[~_FITTED]
        note = f"{rates[i]:.3f} per core, {largest[i]:.2f} at most"
        constants = 2 + (i == 0)  # the serial share is counted once
        parts.append(Part(name, errors, int(_FITTED.sum()), constants, note))
    curves = [(name, _CORES, *pair) for name, *pair in zip(names, measured, predicted, strict=True)]

    def draw(axes: Any) -> None:
        _draw_curves(axes, curves, "throughput (3 cores = 1)")
        axes.set_xlabel("CPU cores per GPU")

    return Comparison(
        title="CPU cores",
        source="Synergy's V100 profiles, memory to spare (numbers transcribed from its source code)",
        form=(
            "t = max(t_gpu, b / (useful c x rate)), useful c = c / (1 + s c)"
            " (`host_resources.input_seconds`, `host_resources.useful_cores`); one s for all,"
            f" {np.exp(found[0]):.3f}; fitted at 1, 3, 5, 9, 24 cores, held out 2, 4, 6, 12"
        ),
        parts=parts,
        aim=0.05,
        weakness=(
            f"{', '.join(flat)} are flat at 1.0 in the source and are left out. Single steps"
            " of the measured curves stay unexplained (m5 jumps at 6 cores)."
        ),
        draw=draw,
    )


def _pair_speeds(own: Any, other: Any, speed: Any, count: int, fitted: Any) -> Any:
    """[points] speeds by the rank-one form, constants from the fitted points."""

    def predict(logs: Any) -> Any:
        sensitivity, pressure = np.exp(logs[:count]), np.exp(logs[count:])
        return 1.0 / (1.0 + sensitivity[own] * pressure[other])

    def residuals(logs: Any) -> Any:
        return np.concatenate([(predict(logs) - speed)[fitted], _PRIOR * logs])

    return predict(least_squares(residuals, np.full(2 * count, -0.3)).x)


def pairs_on_a_gpu(data: Path) -> Comparison:
    """Measured pairs of 26 job types on V100, P100 and K80; half of the pairs fitted."""
    table = read(data, "calibration/gavel_colocation_pairs.csv.gz")
    table = table[(table.source == "oracle_throughputs_single_gpu") & (table.feasible == 1)]
    parts, points = [], []
    for gpu, rows in table.groupby("gpu", sort=False):
        own = (rows.model_a + " " + rows.bs_a.astype(str)).to_numpy()
        other = (rows.model_b + " " + rows.bs_b.astype(str)).to_numpy()
        names = sorted(set(own) | set(other))
        index = {name: position for position, name in enumerate(names)}
        own_id, other_id = np.array([index[n] for n in own]), np.array([index[n] for n in other])
        speed = rows.norm_a.to_numpy()
        fitted = halves([tuple(sorted(pair)) for pair in zip(own, other, strict=True)])
        predicted = _pair_speeds(own_id, other_id, speed, len(names), fitted)
        errors = relative(predicted, speed)[~fitted]
        guess = relative(np.full(len(speed), speed[fitted].mean()), speed)[~fitted].mean()
        note = f"{len(names)} job types; the mean speed for every pair would be wrong by {guess:.1%}"
        parts.append(Part(str(gpu).upper(), errors, int(fitted.sum()), 2 * len(names), note))
        points.append((str(gpu).upper(), speed[~fitted], predicted[~fitted]))

    def draw(axes: Any) -> None:
        for name, measured, predicted in points:
            axes.plot(measured, predicted, ".", label=name, alpha=0.5)
        axes.plot([0, 1.1], [0, 1.1], "k-", linewidth=0.8)
        axes.set_xlabel("measured speed beside the other / alone (held-out pairs)")
        axes.set_ylabel("predicted")

    return Comparison(
        title="Two jobs on one GPU",
        source="Gavel's oracle_throughputs (a host with CPU to spare), every feasible pair of 26 job types",
        form=(
            "speed = 1 / (1 + sensitivity x pressure) (`interference.sensitivity_pressure`); fitted"
            " to a random"
            " half of the pairs"
        ),
        parts=parts,
        aim=0.08,
        weakness=(
            "Constants depend on the batch size and the GPU type; the profiles carry V100's at"
            " one batch. That excesses of more than two jobs add up is an assumption. With few cores pairs"
            " contend for them too."
        ),
        draw=draw,
    )


def _step_seconds(logs: Any, gradient_bytes: float, gpus: Any, nodes: Any, batch: Any) -> Any:
    """Iteration time of `composite` from constants: fixed, per sample, B inside and between, overlap."""
    fixed, per_sample, inside, between = np.exp(logs[:4])
    exponent = 1.0 + np.exp(np.minimum(logs[4], 2.5))
    bandwidth = np.where(nodes > 1, between, inside)
    return _overlapped(fixed + per_sample * batch, _ring(gpus, gradient_bytes, bandwidth, np.inf), exponent)


def placements(data: Path) -> Comparison:
    """Pollux' step times on T4: 108 placements of up to 16 GPUs, several batches; half of them fitted."""
    parts, points = [], []
    for model, rows in rows_of("pollux_placements", data).rows.groupby("model", sort=False):
        servers = [gpus_per_server(placement) for placement in rows.placement]
        gpus, nodes = np.array([sum(one) for one in servers]), np.array([len(one) for one in servers])
        batch, measured = rows.batch.to_numpy(), rows.seconds.to_numpy()
        fitted = halves(situations(rows).tolist()) | (gpus == 1)
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
            "t = ((fixed + sample b)^g + t_ring^g)^(1/g) (`composite`); five constants per model, fitted to"
            " one-GPU runs and a random half of the placements"
        ),
        parts=parts,
        weakness=(
            "The ring does not know how many nodes it crosses, nor how unevenly: single placements are far"
            " off. The fitted bandwidths are no property of a network."
        ),
        draw=lambda axes: plot_predictions(axes, points, "seconds per step (held-out placements)"),
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
        note = (
            f"phi {np.exp(found[0]):.3g}; the profile says {profile(model).require_value('noise_scale'):.3g}"
        )
        parts.append(Part(model, errors, int(fitted.sum()), 1, note))
        curves.append((model, batch / base, measured, predicted))

    def draw(axes: Any) -> None:
        _draw_curves(axes, curves, "statistical efficiency")
        axes.set_xscale("log")
        axes.set_xlabel("batch / base batch")

    return Comparison(
        title="Statistical efficiency of large batches",
        source="Pollux' validation runs: progress per sample at each batch size, over whole trainings",
        form="E(M) = (phi + M0) / (phi + M) (`elastic.statistical_efficiency`); one phi per model",
        parts=parts,
        weakness=(
            "The measured noise scale grows during training, so early progress with large batches is"
            " overestimated, late progress underestimated."
        ),
        draw=draw,
    )


#: {name: what is compared}, called with the folder of published files
COMPARISONS: Mapping[str, Callable[[Path], Comparison]] = {
    "rings": rings,
    "inside_a_server": inside_a_server,
    "sharing": pairs_on_a_gpu,
    "cpu": core_curves,
    "throughput": placements,
    "efficiency": batch_efficiency,
    "parameter_servers": parameter_server_steps,
    "restarts": restarts,
    "plans": execution_plans,
    "plans_left_out": plans_of_new_models,
    "plans_by_gpu_type": plans_by_gpu_type,
}
