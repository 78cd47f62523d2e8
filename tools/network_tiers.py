"""`python -m tools.network_tiers`: large jobs with plans, placed by tier and by `pack`, on racks.

It writes docs/research/network_tiers.json, and the table of docs/research/network_tiers.md from it. A leaf
has a fifth of the servers of one of Lingjun, as plans reach up to 64 GPUs.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ringyard import Cluster, JobTable, Simulator
from ringyard.performance import plans
from ringyard.placement import PlacementRule, by_tier, pack
from ringyard_agents.command_line import Arguments
from ringyard_baselines.classic.start_only import fifo
from ringyard_baselines.scheduler import run

_FOLDER = Path(__file__).parents[1] / "docs" / "research"
_RESULTS, _PAGE = _FOLDER / "network_tiers.json", _FOLDER / "network_tiers.md"
_BEGIN, _END = "<!-- table -->\n", "<!-- end -->\n"
_LEAF, _LEAVES, _GPUS = 4, 5, 8  # servers of a leaf, leaves, GPUs of a server
_OVERSUBSCRIPTIONS = (1.0, 2.0, 4.0, 8.0, 16.0)  # leaf to spine. Assumption: Lingjun's is not in its data
_SIZES = (16, 24, 32, 48, 64)  # GPUs of a job
_MODELS = ("t5", "llama7")
_JOBS, _SECONDS = 100, 20_000.0
_LOADS = (0.5, 0.8)
RULES = {"by_tier": by_tier, "pack": pack}  # the second does not see racks
ARNOLD = 10.6  #: per cent, end to end, on more than 9,600 GPUs (abstract of Arnold, 2025)


def draw(seed: int, load: float, performance: Any) -> JobTable:
    """Draw jobs with at least two data-parallel ranks and two pipeline stages, by a Poisson process."""
    rng, table = np.random.default_rng(seed), performance.plans
    chosen: list[tuple[int, int, int]] = []
    while len(chosen) < _JOBS:
        gpus, name = int(rng.choice(_SIZES)), str(rng.choice(_MODELS))
        model = [one.name for one in table.models].index(name)
        plan = int(rng.integers(1, len(table.models[model].plans) + 1))
        column = table.column[gpus, -(-gpus // _GPUS), 0]
        stage = table.stage_gpus[table.row(model, plan), column]
        if np.isfinite(stage) and stage < gpus:
            tensor = int(table.models[model].plans[plan - 1].split("p")[0].removeprefix("t"))
            if stage > tensor:
                chosen.append((gpus, model, plan))
    gpus, models, numbers = np.array(chosen).T
    duration = rng.lognormal(np.log(_SECONDS), 0.5, _JOBS)
    gap = (gpus * duration).mean() / (load * _LEAF * _LEAVES * _GPUS)
    jobs = JobTable.from_columns(np.cumsum(rng.exponential(gap, _JOBS)), gpus, duration)
    return replace(jobs, plan_model=models, plan=numbers)


def seconds(rule: PlacementRule, oversubscription: float, jobs: JobTable, performance: Any) -> list[float]:
    """Return the mean run time and the mean JCT under FIFO by a placement rule."""
    cluster = Cluster.homogeneous(
        _LEAF * _LEAVES, _GPUS, servers_per_rack=_LEAF, uplink_oversubscription=oversubscription
    )
    sim = Simulator(cluster, jobs, performance)
    run(sim, fifo(rule), np.random.default_rng(0))
    record = sim.state.jobs[0, :-1]
    runs = record["end_seconds"] - record["first_start_seconds"]
    return [float(runs.mean()), float((record["end_seconds"] - jobs.submit_seconds).mean())]


def measure(workloads: int) -> list[dict[str, Any]]:
    """Return a row for each load and oversubscription: {rule: [workloads, 2] `seconds`}."""
    performance = plans(servers=_LEAF * _LEAVES, gpus_per_server=_GPUS)
    rows: list[dict[str, Any]] = []
    for load in _LOADS:
        drawn = [draw(seed, load, performance) for seed in range(workloads)]
        for of in _OVERSUBSCRIPTIONS:
            of_rules = {
                name: [seconds(rule(), of, jobs, performance) for jobs in drawn]
                for name, rule in RULES.items()
            }
            rows.append({"load": load, "oversubscription": of, **of_rules})
    return rows


def gain(blind: Any, aware: Any) -> tuple[float, float, float]:
    """Return the speedup in per cent of the mean over workloads, and its 95 % bootstrap interval."""
    blind, aware = np.asarray(blind), np.asarray(aware)
    picks = np.random.default_rng(0).integers(len(blind), size=(2000, len(blind)))
    low, high = np.percentile(blind[picks].mean(axis=1) / aware[picks].mean(axis=1), [2.5, 97.5])
    return tuple(100.0 * (one - 1.0) for one in (blind.mean() / aware.mean(), low, high))


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the page."""
    lines = [
        "| load | oversubscription | speed of iterations | Arnold | agrees | mean JCT, as a speed |",
        "|---:|---:|---:|---:|---|---:|",
    ]
    for row in results:
        aware, blind = np.array(row["by_tier"]), np.array(row["pack"])
        (speed, low, high), jct = gain(blind[:, 0], aware[:, 0]), gain(blind[:, 1], aware[:, 1])
        agrees = "yes" if low <= ARNOLD <= high else "no, lower" if high < ARNOLD else "no, higher"
        lines.append(
            f"| {row['load']:g} | {row['oversubscription']:g} | {speed:+.1f} % [{low:+.1f}, {high:+.1f}] "
            f"| +{ARNOLD} % | {agrees} | {jct[0]:+.1f} % [{jct[1]:+.1f}, {jct[2]:+.1f}] |"
        )
    return "\n".join(lines) + "\n"


def render(page: str, results: Sequence[Mapping[str, Any]]) -> str:
    """Return the page with the table of the results."""
    before, _, rest = page.partition(_BEGIN)
    return before + _BEGIN + "\n" + table(results) + "\n" + _END + rest.partition(_END)[2]


if __name__ == "__main__":
    parser = Arguments(prog="python -m tools.network_tiers", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--workloads", type=int, default=0, help="measure on so many; 0: print what is stored"
    )
    if count := parser.parse_args().workloads:
        _RESULTS.write_text(json.dumps(measure(count), indent=1) + "\n")
    found = json.loads(_RESULTS.read_text())
    if _PAGE.exists():
        _PAGE.write_text(render(_PAGE.read_text(), found))
    print(table(found))
