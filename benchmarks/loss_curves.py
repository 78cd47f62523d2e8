"""How often the loss curves of each family are trusted, and how right their remaining time is.

PYTHONPATH=. python benchmarks/loss_curves.py [--jobs 400] [--seed 1]

AITurbo and Optimus call a job predictable by `ringyard_baselines.tools.predictions.forecast`. Here it reads
logs of 100 points as these schedulers do. No constant of it was fitted to these curves. Its stated rate of
false positives is for flat curves and random walks. Plateaus and divergence look like other curves until
they begin.

Columns, by family: percent of the jobs that are trusted at any time, at half of their iterations and at their
end; percent of their life in which jobs are trusted; percent of the iterations done when they first are; how
many times too long or short the time left is then, median and 90 % quantile, and whenever they are trusted.
"""

import argparse

import numpy as np

from ringyard.learning_curves import EPOCHS, training_loss
from ringyard.profiles import catalogue
from ringyard.state.records import LossCurve
from ringyard.workloads import LossCurves
from ringyard_baselines.tools.predictions import FALSE_POSITIVE_RATE, FEWEST_POINTS, REFIT_GROWTH, forecast

#: that do not approach the target, so that no time left is right
HOPELESS = {LossCurve.PLATEAU, LossCurve.DIVERGENCE, LossCurve.FLAT, LossCurve.RANDOM_WALK}


def losses(curve, jobs, seed, noise=None):
    """[jobs, EPOCHS] losses of a family. The standard deviation of a point is `noise`, or drawn."""
    low, high = np.log(LossCurves().noise)
    drawn = np.exp(np.random.default_rng(seed).uniform(low, high, jobs))
    columns = {
        "model": np.full(jobs, len(catalogue())),
        "row": np.arange(jobs),
        "loss_curve": np.full(jobs, int(curve)),
        "loss_noise": drawn if noise is None else np.full(jobs, noise),
    }
    points = [training_loss(columns.get, np.full(jobs, epoch), seed) for epoch in range(1, EPOCHS + 1)]
    return np.stack(points, axis=1)


def forecasts(loss):
    """Forecasts of one log, as schedulers make them: each time that it has grown by REFIT_GROWTH."""
    points, made = FEWEST_POINTS, []
    while points <= len(loss):
        made.append(forecast(np.arange(1.0, points + 1), loss[:points]))
        points = int(np.ceil(points * REFIT_GROWTH))
    return made


def trusted(made, confidence=0.5):
    """Whether each of the forecasts is trusted."""
    return np.array([one.significant and one.confidence >= confidence for one in made])


def row(curve, jobs, seed):
    """The figures of one family, as a line."""
    logs = [forecasts(loss) for loss in losses(curve, jobs, seed)]
    trust = np.array([trusted(made) for made in logs])
    points = np.array([one.points for one in logs[0]])
    width = np.diff(points, append=EPOCHS)
    ever, half = trust.any(axis=1), int(np.searchsorted(points, EPOCHS / 2, side="right")) - 1
    shares = [ever.mean(), trust[:, half].mean(), trust[:, -1].mean(), (trust @ width).mean() / EPOCHS]
    line = f"{curve.name.lower():12}" + "".join(f"{100 * share:10.1f}" for share in shares)
    if not ever.any():
        return line
    first = trust.argmax(axis=1)
    line += f"{np.median(points[first][ever]):10.0f}"
    if curve in HOPELESS:
        return line
    true = np.maximum(EPOCHS - points, 1)
    factor = np.exp(np.abs(np.log([[one.left for one in made] for made in logs] / true)))
    at_first = factor[np.flatnonzero(ever), first[ever]]
    for factors in (at_first, factor[trust]):
        line += f"{np.median(factors):10.2f}{np.quantile(factors, 0.9):10.2f}"
    return line


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"stated share of flat curves and random walks that are ever trusted: {FALSE_POSITIVE_RATE:.0%}")
    names = ("ever", "half-way", "at end", "of life", "first at", "median", "90 %", "median", "90 %")
    print(f"{'':52}{'':10}{'factor at first':>20}{'factor':>20}")
    print(f"{'family':12}" + "".join(f"{name:>10}" for name in names))
    for curve in LossCurve:
        print(row(curve, arguments.jobs, arguments.seed))


if __name__ == "__main__":
    main()
