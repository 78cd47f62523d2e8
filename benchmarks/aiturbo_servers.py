"""How right the speed models of AITurbo and Optimus are, and why AITurbo seldom adds a parameter server.

PYTHONPATH=. python benchmarks/aiturbo_servers.py [--workloads 5]

First, how far the follow-on's calibration runs are from their fitted form (`step_deviation` of the
simulator), and the error of both schedulers' step times on numbers of workers and servers that they did not
profile, with and without that deviation.

A job changes by the unit that lowers its cost-to-finish most: remaining time x R, its service rate (10 for a
GPU, 5 for each pod). So a server more has to shorten steps by more than R grows. Printed for the models and
sizes of the 60-job list: both of these, and the change with the least cost of a step, by the simulator and
by the follow-on's calibration runs; then how much run times differ, what AITurbo changes, and how far
Tiresias is from what no schedule can beat.
"""

import argparse
from collections import Counter

import numpy as np

from ringyard import Simulator
from ringyard.bounds import simulation_bounds
from ringyard.mdp.experiments import experiment
from ringyard.performance import composite
from ringyard.placement import consolidate
from ringyard.profiles import model_id
from ringyard.sim.speeds import isolated_iteration_seconds
from ringyard.workloads.papers import AITURBO_MODELS
from ringyard_baselines.papers.aiturbo import POD_CORES, AITurbo
from ringyard_baselines.papers.optimus import Optimus
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run
from ringyard_baselines.tools.step_model import StepModels
from tools.equations.parameter_server_errors import calibration_design, refit
from tools.measured_sets.aiturbo import CALIBRATION, POINTS

SIZES = ((1, 2), (2, 1), (2, 2))  # (workers, servers) that the list's jobs ask for
CHANGES = {
    "nothing": (0, 0),
    "server more": (0, 1),
    "server less": (0, -1),
    "worker more": (1, 0),
    "worker less": (-1, 0),
}


def service_rate(workers, servers):
    """R."""
    return 10 * workers + POD_CORES * (workers + servers)


def comparison(seconds, size):
    """(how many times faster a step is with a server more, the change of least cost) by {size: seconds}."""
    costs = {}
    for name, (workers, servers) in CHANGES.items():
        other = (size[0] + workers, size[1] + servers)
        if other in seconds:
            costs[name] = seconds[other] * service_rate(*other)
    more = (size[0], size[1] + 1)
    faster = seconds[size] / seconds[more] if more in seconds else None
    return faster, min(costs, key=costs.get)


def simulated_seconds(view, job):
    """{(workers, servers): seconds of a step}."""
    grid = [(workers, servers) for workers in (1, 2, 3) for servers in (1, 2, 3)]
    workers, servers = np.array(grid).T
    found = isolated_iteration_seconds(view, np.full(len(grid), job), workers, parameter_servers=servers)
    return dict(zip(grid, found.tolist(), strict=True))


def calibrated_seconds(model):
    """{(workers, servers): seconds of a step} of the runs with one GPU for each worker."""
    _, seconds = CALIBRATION[model.removeprefix("aiturbo_")]
    return {(int(w), int(p)): one for (w, p, gpus), one in zip(POINTS, seconds, strict=True) if w == gpus}


class Watched(AITurbo):
    """AITurbo that counts its changes of size."""

    def decide(self, view):
        before = self._sizes[:, 0].copy()
        decided = super().decide(view)
        for step in (self._sizes[:, 0] - before)[before[:, 0] > 0, :2].tolist():
            self.counted[next(name for name, change in CHANGES.items() if change == tuple(step))] += 1
        return decided


def show_models(setting):
    """The table of models and sizes."""
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(0))
    view = Simulator(setting.cluster, jobs, setting.performance, setting.restart).view()
    print("with a server more: a step so many times faster, R so many times larger; the change of least cost")
    print(f"{'model':20} {'w, p':5} {'faster':>7} {'R':>6}  {'simulator':12} {'calibration runs':12}")
    for model in AITURBO_MODELS:
        seconds = simulated_seconds(view, int(np.argmax(jobs.model_ids == model_id(model))))
        runs = calibrated_seconds(model)
        for size in SIZES:
            faster, best = comparison(seconds, size)
            rate = service_rate(size[0], size[1] + 1) / service_rate(*size)
            measured, there = comparison(runs, size)
            by_runs = "" if measured is None else f"{there}, {measured:.3f}"
            print(f"{model:20} {size[0]}, {size[1]}  {faster:7.3f} {rate:6.3f}  {best:12} {by_runs}")


def calibration_deviation():
    """(Root mean square of ln(form / run), number of runs) with a GPU for each worker, but for GoogLeNet."""
    names = [name.removeprefix("aiturbo_") for name in AITURBO_MODELS if name != "aiturbo_googlenet"]
    own = POINTS[:, 0] == POINTS[:, 2]
    logs = [
        np.log(calibration_design(batch, POINTS[own]) @ refit(name) / np.array(seconds)[own])
        for name in names
        for batch, seconds in [CALIBRATION[name]]
    ]
    return float(np.sqrt(np.mean(np.square(logs)))), np.size(logs)


def fit_errors(view, job, points):
    """[sizes] relative errors of a fitted speed model on up to 4 workers and 10 servers, but for `points`."""
    fitted = set(zip(*np.array(points(view, job)).tolist(), strict=True))
    sizes = [(w, p) for w in range(1, 5) for p in range(1, 11) if (w, p) not in fitted]
    workers, servers = np.array(sizes).T
    true = isolated_iteration_seconds(view, np.full(len(sizes), job), workers, parameter_servers=servers)
    models = StepModels(points)
    return np.abs([models.seconds(view, job, *size) for size in sizes] / true - 1.0)


def show_fits(setting):
    """The table of errors of speed models, on sizes that they were not fitted to."""
    measured, runs = calibration_deviation()
    print(f"calibration runs from their form: {measured:.3f} (root mean square of ln, {runs} runs)")
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(0))
    for deviation in (0.0, round(measured, 2)):
        performance = composite(1e9, 40e9, step_deviation=deviation)
        view = Simulator(setting.cluster, jobs, performance, setting.restart).view()
        for scheduler in (AITurbo(consolidate()), Optimus(consolidate())):
            errors = []
            for model in AITURBO_MODELS:
                job = int(np.argmax(jobs.model_ids == model_id(model)))
                errors.append(fit_errors(view, job, scheduler._points))
            middle, high = np.quantile(errors, [0.5, 0.9])
            worst = AITURBO_MODELS[int(np.argmax(np.median(errors, axis=1)))]
            print(
                f"step_deviation {deviation}, {scheduler.name:8} error on sizes not fitted:"
                f" median {middle:.1%}, 90 % quantile {high:.1%}, largest of a model's medians"
                f" {np.median(errors, axis=1).max():.1%} ({worst})"
            )


def show_runs(setting, num_workloads):
    """AITurbo's changes and Tiresias' distance from the bound."""
    counted, spreads, ratios = Counter(), [], []
    for seed in range(num_workloads):
        jobs = setting.workload.sample(setting.cluster, np.random.default_rng(seed))
        arguments = (setting.cluster, jobs, setting.performance, setting.restart)
        watched = Watched(consolidate(), round_seconds=1200.0, predictor="loss_curve")
        watched.counted = counted
        run(Simulator(*arguments, watched.round_seconds), watched, np.random.default_rng(seed))
        sim = Simulator(*arguments)
        run(sim, tiresias(consolidate()), np.random.default_rng(seed))
        alone = sim.view().column("isolated_seconds")
        spreads.append(alone.std() / alone.mean())
        ratios.append(sim.metrics().mean_jct / simulation_bounds(sim).mean_jct)
    del counted["nothing"]
    print(f"{num_workloads} runs, changes of size:", ", ".join(f"{n} {name}" for name, n in counted.items()))
    print(f"coefficient of variation of run times alone: {min(spreads):.2f} to {max(spreads):.2f}")
    print(f"Tiresias' mean completion time over the bound: {np.mean(ratios):.2f}, at most {max(ratios):.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", type=int, default=5)
    workloads = parser.parse_args().workloads
    setting = experiment("aiturbo")
    show_fits(setting)
    show_models(setting)
    show_runs(setting, workloads)


if __name__ == "__main__":
    main()
