"""Two jobs on one GPU."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from tools.equations.result import Comparison, Part, halves, read, relative

_PRIOR = 0.02  # weight that holds a model without fitted pairs near the others


def _fit(own: Any, other: Any, speed: Any, count: int, fitted: Any) -> Any:
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
        predicted = _fit(own_id, other_id, speed, len(names), fitted)
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
            " one batch. Measurements with more than two jobs on a GPU do not exist in public: that excesses"
            " add up is an assumption. On a host poor in CPU (Gavel's simulation_throughputs) pairs"
            " also contend"
            " for cores, and the form is worse (R2 0.68 of the whole table)."
        ),
        draw=draw,
    )
