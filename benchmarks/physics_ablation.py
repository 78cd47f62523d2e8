"""What schedulers lose to the physics that an environment is about, and the same jobs with that physics off.

python benchmarks/physics_ablation.py    writes docs/five_environments/NAME.md (`--out`: elsewhere)
python benchmarks/physics_ablation.py sharing --seeds 40
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
import numpy as np

from ringyard.mdp.user_config import hydra_initialized
from ringyard.sim.metrics import LOSS_NAMES
from ringyard_agents.config.compose import (
    ENVIRONMENT_GROUPS,
    SchedulerEntry,
    scheduler_config,
    scheduler_names,
    to_plain,
)
from ringyard_agents.evaluation.evaluate import EvaluationTask, RunResult, run_tasks
from ringyard_agents.evaluation.selection import (
    COMPARISON_SEED_OFFSET,
    supported_schedulers,
    workload_environment,
)
from ringyard_agents.evaluation.statistics import small_sample_warning
from ringyard_agents.evaluation.tuned_configs import format_options, read_tuned, with_tuned_options
from ringyard_agents.report.tables import markdown

SEEDS = 20
LONGEST = 2  # jobs whose share of all completion times is printed
MOVED = 5  # places by which who moves is named


@dataclass(frozen=True)
class Physics:
    """What an environment's question is about, and how that is switched off.

    Attributes:
        title: of the page.
        off: what is switched off, in words.
        overrides: that switch it off.
        ignores: entry of the tables, beside all schedulers at their best, that pays no heed to it.
        heeds: scheduler that does, and is otherwise much like it.
        left_out: schedulers that take longest to run.
    """

    title: str
    off: str
    overrides: tuple[str, ...]
    ignores: str
    heeds: str
    left_out: tuple[str, ...]


PHYSICS = {
    "contention": Physics(
        "Contention",
        "links between servers are as fast as inside, unshared, and a further server costs nothing",
        (
            "performance.inter_server_bytes_per_second=${performance.intra_server_bytes_per_second}",
            "performance.alpha=0.0",
            "performance.xi_1=1e-9",
            "performance.overhead_seconds_per_server=0.0",
        ),
        "fifo_backfill@spread",
        "fifo_backfill",
        ("ones", "gavel", "aiturbo"),
    ),
    "sharing": Physics(
        "Sharing",
        "jobs on one GPU do not slow one another",
        (
            "performance.interference._target_=ringyard.performance.no_interference",
            "~performance.interference.normalised",
        ),
        "fifo_backfill@share_any",
        "fifo_backfill",
        ("ones", "gavel", "optimus", "aiturbo", "pollux", "ada_srsf"),
    ),
    "cpu_gpu": Physics(
        "CpuGpu",
        "each worker asks for 32 cores and 125 GB, and servers have enough of everything for all",
        (
            "++workload.extensions.0.weights={1: 0, 2: 0, 3: 0, 32: 1}",
            "++workload.extensions.2.weights={20000000000: 0, 62500000000: 0, 125000000000: 1}",
            "cluster.cores_per_server=1000",
            "cluster.memory_bandwidth_bytes_per_second=1e15",
            "cluster.ram_bytes_per_server=1000000000000000",
            "cluster.storage_bytes_per_second=1e15",
        ),
        "srtf",
        "synergy_tune",
        ("ones", "gavel", "optimus", "aiturbo", "pollux", "interference_aware", "ada_srsf"),
    ),
    "elastic": Physics(
        "Elastic",
        "no job is elastic",
        ("workload.extensions.0.share=0.0",),
        "srtf",
        "pollux",
        ("ones", "gavel", "aiturbo", "drf"),
    ),
    "full": Physics(
        "Full",
        "all GPUs are V100",
        ("cluster.groups.1.gpu_type=v100", "cluster.groups.2.gpu_type=v100"),
        "sjf@consolidate",
        "sjf",
        ("ones", "pollux", "aiturbo", "interference_aware", "sjf_bsbf", "coda", "ada_srsf", "drf"),
    ),
}  # fmt: skip


def configs_of(environment: str, overrides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Configs of an environment."""
    config = hydra.compose("compare", [f"experiment={environment}", *overrides])
    return {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}


def entries(environment: str) -> dict[str, SchedulerEntry]:
    """{label: entry}: every scheduler that can serve the jobs, at its best, and who ignores the question."""
    physics = PHYSICS[environment]
    given = {name: SchedulerEntry(name, name) for name in scheduler_names() if name not in physics.left_out}
    found = with_tuned_options(given, read_tuned(environment))
    if physics.ignores not in given:
        found.setdefault(physics.ignores, SchedulerEntry(physics.ignores, physics.ignores))
    configs = {label: to_plain(scheduler_config(entry)) for label, entry in found.items()}
    return {
        label: found[label]
        for label in supported_schedulers(configs, configs_of(environment), COMPARISON_SEED_OFFSET)[0]
    }


def measured(
    environment: str,
    overrides: tuple[str, ...],
    running: Mapping[str, SchedulerEntry],
    seeds: int,
    workers: int | None,
) -> list[RunResult]:
    """Every scheduler on every workload of an environment; the workloads are those of `ringyard compare`."""
    given = configs_of(environment, overrides)
    schedulers = {label: to_plain(scheduler_config(entry)) for label, entry in running.items()}
    tasks = [
        EvaluationTask(
            label,
            scheduler,
            workload_environment(given, COMPARISON_SEED_OFFSET, number),
            number,
            COMPARISON_SEED_OFFSET,
        )
        for number in range(seeds)
        for label, scheduler in schedulers.items()
    ]
    return run_tasks(tasks, workers, lambda result: None)


def rows(results: list[RunResult]) -> list[dict[str, str]]:
    """A row of texts per scheduler, best mean JCT first; times in seconds."""

    def mean(label: str, value: Callable[[RunResult], float]) -> float:
        return float(np.mean([value(result) for result in results if result.label == label]))

    def metric(label: str, name: str) -> float:
        return mean(label, lambda result: getattr(result.metrics, name))

    labels = list(dict.fromkeys(result.label for result in results))
    lost = {label: {name: metric(label, f"lost_to_{name}") for name in LOSS_NAMES} for label in labels}
    shown = [name for name in LOSS_NAMES if any(abs(lost[label][name]) >= 0.05 for label in labels)]
    bound = mean(labels[0], lambda result: result.bounds.mean_jct)
    table = []
    for label in sorted(labels, key=lambda one: metric(one, "mean_jct")):
        row = {
            "scheduler": f"`{label}`",
            "mean JCT": f"{metric(label, 'mean_jct'):,.0f}",
            "gap to bound": f"{metric(label, 'mean_jct') / bound:.2f}",
            "makespan": f"{metric(label, 'makespan'):,.0f}",
            "slowdown": f"{metric(label, 'mean_slowdown'):.1f}",
            "mean rho": f"{metric(label, 'mean_fairness'):.2f}",
            "worst rho": f"{metric(label, 'worst_fairness'):.1f}",
            "p99": f"{metric(label, 'p99_jct'):,.0f}",
            "queueing": f"{metric(label, 'mean_queueing'):,.0f}",
        }
        row |= {f"lost to {name.replace('_', ' ')}": f"{lost[label][name]:,.1f}" for name in shown}
        row["work"] = f"{metric(label, 'mean_work'):,.0f}"
        longest = mean(
            label, lambda result: np.sort(result.times.jct)[-LONGEST:].sum() / result.times.jct.sum()
        )
        row[f"longest {LONGEST} jobs"] = f"{longest:.0%}"
        table.append(row)
    return table


def answer(
    physics: Physics, running: Mapping[str, SchedulerEntry], on: list[RunResult], off: list[RunResult]
) -> str:
    """What it costs to ignore the question, with the physics and without."""
    labels = {entry.name: label for label, entry in running.items() if label != physics.ignores}
    ignores, heeds = labels.get(physics.ignores, physics.ignores), labels[physics.heeds]

    def beside(results: list[RunResult]) -> str:
        """The first's mean JCT beside the second's."""
        first, second = (
            np.mean([one.metrics.mean_jct for one in results if one.label == label])
            for label in (ignores, heeds)
        )
        change = round(100 * (first / second - 1))
        return f"{abs(change)} % {'above' if change > 0 else 'below'}" if change else "equal to"

    return (
        f"`{ignores}` ignores what this environment is about, `{heeds}` heeds it. The mean JCT of the"
        f" first is {beside(on)} that of the second; with this physics off, {beside(off)} it."
    )


def page(environment: str, seeds: int, workers: int | None) -> str:
    """The evidence of one environment."""
    physics, running = PHYSICS[environment], entries(environment)
    on = measured(environment, (), running, seeds, workers)
    off = measured(environment, physics.overrides, running, seeds, workers)
    table_on, table_off = rows(on), rows(off)
    places = {row["scheduler"]: place for place, row in enumerate(table_off, 1)}
    moved = [
        f"{row['scheduler']} {place} -> {places[row['scheduler']]}"
        for place, row in enumerate(table_on, 1)
        if abs(place - places[row["scheduler"]]) >= MOVED
    ]
    options = [f"`{label}`: {format_options(entry)}" for label, entry in running.items() if entry.options]
    foil = f"; `{physics.ignores}` is there for comparison" if "@" in physics.ignores else ""
    few = small_sample_warning(seeds)
    return "\n".join(
        [
            f"# {physics.title}: what its physics decides",
            "",
            answer(physics, running, on, off),
            "",
            f"`python benchmarks/physics_ablation.py {environment} --seeds {seeds}`: means over {seeds}"
            " workloads, the same for all, in seconds of a mean job. *mean JCT* (completion time) is"
            " *queueing*, all that is lost"
            " ([what to](../metrics.md); below 0: gained) and *work*. Every scheduler has the rule and the"
            f" options that suit it with the physics on ([conf/tuned](../../conf/tuned/{environment}.yaml))"
            f"{foil}. More of them, with intervals, and how to read this:"
            " [five_environments.md](../five_environments.md).",
            *(["", f"{few}."] if few else []),
            "",
            "## As it is",
            "",
            markdown(table_on),
            f"Options other than the usual ones: {'; '.join(options) or 'none'}.",
            "",
            f"Left out to save time: {', '.join(physics.left_out)}.",
            "",
            f"## Physics off: {physics.off}",
            "",
            f"`{' '.join(physics.overrides)}`",
            "",
            markdown(table_off),
            f"Schedulers that move by {MOVED} places or more, on -> off: {', '.join(moved) or 'none'}.",
            "",
        ]
    )


def main() -> None:
    """Write a page per environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "environments", nargs="*", metavar="EXPERIMENT", help=f"some of {', '.join(PHYSICS)}; all"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="workloads (%(default)s)")
    parser.add_argument("--workers", type=int, help="processes; default: one per core")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "five_environments"
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.environments if name not in PHYSICS]
    if unknown or arguments.seeds < 1:
        parser.error(f"expected some of {', '.join(PHYSICS)} and --seeds of 1 or more; got {unknown}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with hydra_initialized():
        for name in arguments.environments or PHYSICS:
            text = page(name, arguments.seeds, arguments.workers)
            (arguments.out / f"{name}.md").write_text(text)
            print(text, flush=True)


if __name__ == "__main__":
    main()
