"""Does a preset's own physics decide? What schedulers lose to it, and the same jobs with that physics off.

python benchmarks/presets.py                  writes docs/presets/NAME.md of every preset (`--out`: elsewhere)
python benchmarks/presets.py sharing --seeds 20
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hydra
import numpy as np
from hydra import initialize_config_dir

from ringyard.config_folder import config_folder
from ringyard.sim.metrics import LOSSES
from ringyard_agents.configuration import WORLD, Entry, plain, scheduler_config
from ringyard_agents.measuring.compare import SEED_OFFSET
from ringyard_agents.measuring.evaluate import RunResult, Task, run_all
from ringyard_agents.measuring.selection import drawn_for
from ringyard_agents.measuring.statistics import caution
from ringyard_agents.measuring.tables import markdown

SEEDS = 5
LONGEST = 2  # jobs whose share of all completion times is printed


@dataclass(frozen=True)
class Physics:
    """What a preset's question is about, and how that is switched off.

    Attributes:
        title: of the page.
        off: what is switched off, in words.
        overrides: that switch it off.
        schedulers: entries of the tables.
    """

    title: str
    off: str
    overrides: tuple[str, ...]
    schedulers: tuple[str, ...]


PHYSICS = {
    "contention": Physics(
        "Contention",
        "links between servers are as fast as inside, nobody shares them and a further server costs nothing",
        (
            "performance.inter_server_bytes_per_second=${performance.intra_server_bytes_per_second}",
            "performance.alpha=0.0",
            "performance.xi_1=1e-9",
            "performance.overhead_seconds_per_server=0.0",
        ),
        (
            "fifo@spread", "fifo@pack", "fifo@consolidate", "smallest_first", "smallest_work@pack",
            "smallest_work@consolidate", "sjf_bco", "sjf_bco_ls", "sjf_bco_ff", "sjf_bco_rand", "ada_srsf",
            "srtf@consolidate",
        ),
    ),
    "sharing": Physics(
        "Sharing",
        "jobs on one GPU do not slow one another",
        (
            "performance.interference._target_=ringyard.performance.no_interference",
            "~performance.interference.normalised",
        ),
        (
            "fifo@consolidate", "fifo@share", "fifo@share_any", "sjf@consolidate", "sjf_bsbf",
            "interference_aware", "srtf@consolidate", "tiresias@consolidate",
        ),
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
        (
            "fifo@pack", "fifo@consolidate", "sjf@consolidate", "srtf@consolidate",
            "synergy_tune@consolidate", "coda@consolidate",
        ),
    ),
    "elastic": Physics(
        "Elastic",
        "no job is elastic",
        ("workload.extensions.0.share=0.0",),
        (
            "fifo@pack", "fifo@consolidate", "sjf@consolidate", "srtf@consolidate", "elastic_dp", "afs_l",
            "optimus", "pollux",
        ),
    ),
    "full": Physics(
        "Full",
        "all GPUs are V100",
        ("cluster.groups.1.gpu_type=v100", "cluster.groups.2.gpu_type=v100"),
        (
            "fifo@pack", "fifo@consolidate", "fifo@fastest", "sjf@consolidate", "sjf@share",
            "srtf@consolidate", "ada_srsf", "gavel",
        ),
    ),
}  # fmt: skip


def measured(
    preset: str, overrides: tuple[str, ...], entries: tuple[str, ...], seeds: int
) -> list[RunResult]:
    """Every scheduler on every workload of a preset; the workloads are those of `ringyard compare`."""
    config = hydra.compose("compare", [f"experiment={preset}", *overrides])
    world = {part: plain(config[part]) for part in WORLD}
    schedulers = {entry: plain(scheduler_config(Entry.read(entry))) for entry in entries}
    tasks = [
        Task(entry, scheduler, drawn_for(world, SEED_OFFSET, number), number, SEED_OFFSET)
        for number in range(seeds)
        for entry, scheduler in schedulers.items()
    ]
    return run_all(tasks, None, lambda result: None)


def rows(results: list[RunResult]) -> list[dict[str, str]]:
    """A row of texts per scheduler, best mean JCT first; times in seconds."""

    def mean(label: str, value: Callable[[RunResult], float]) -> float:
        return float(np.mean([value(result) for result in results if result.label == label]))

    def metric(label: str, name: str) -> float:
        return mean(label, lambda result: getattr(result.metrics, name))

    labels = list(dict.fromkeys(result.label for result in results))
    lost = {label: {name: metric(label, f"lost_to_{name}") for name in LOSSES} for label in labels}
    shown = [name for name in LOSSES if any(abs(lost[label][name]) >= 0.05 for label in labels)]
    bound = mean(labels[0], lambda result: result.bounds.mean_jct)
    table = []
    for label in sorted(labels, key=lambda one: metric(one, "mean_jct")):
        row = {
            "scheduler": f"`{label}`",
            "mean JCT": f"{metric(label, 'mean_jct'):,.0f}",
            "/ bound": f"{metric(label, 'mean_jct') / bound:.2f}",
            "makespan": f"{metric(label, 'makespan'):,.0f}",
            "slowdown": f"{metric(label, 'mean_slowdown'):.1f}",
            "p99": f"{metric(label, 'p99_jct'):,.0f}",
            "queueing": f"{metric(label, 'mean_queueing'):,.0f}",
        }
        row |= {name.replace("_", " "): f"{lost[label][name]:,.1f}" for name in shown}
        row["work"] = f"{metric(label, 'mean_work'):,.0f}"
        longest = mean(
            label, lambda result: np.sort(result.times.jct)[-LONGEST:].sum() / result.times.jct.sum()
        )
        row[f"longest {LONGEST} jobs"] = f"{longest:.0%}"
        table.append(row)
    return table


def page(preset: str, seeds: int) -> str:
    """The evidence of one preset."""
    physics = PHYSICS[preset]
    on = rows(measured(preset, (), physics.schedulers, seeds))
    off = rows(measured(preset, physics.overrides, physics.schedulers, seeds))
    places = {row["scheduler"]: place for place, row in enumerate(off, 1)}
    moved = [
        f"{row['scheduler']} {place} -> {places[row['scheduler']]}"
        for place, row in enumerate(on, 1)
        if place != places[row["scheduler"]]
    ]
    few = caution(seeds)
    return "\n".join(
        [
            f"# {physics.title}: what its physics decides",
            "",
            f"`python benchmarks/presets.py {preset} --seeds {seeds}`: means over {seeds} workloads, the"
            " same for all; seconds of a mean job. Below 0: gained."
            " How to read it: [../presets.md](../presets.md).",
            *(["", f"{few}."] if few else []),
            "",
            "## As it is",
            "",
            markdown(on),
            f"## Physics off: {physics.off}",
            "",
            f"`{' '.join(physics.overrides)}`",
            "",
            markdown(off),
            f"Places that change, on -> off: {', '.join(moved) or 'none'}.",
            "",
        ]
    )


def main() -> None:
    """Write a page per preset."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("presets", nargs="*", metavar="PRESET", help=f"some of {', '.join(PHYSICS)}; all")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "presets")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.presets if name not in PHYSICS]
    if unknown or arguments.seeds < 1:
        parser.error(f"expected some of {', '.join(PHYSICS)} and --seeds of 1 or more; got {unknown}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        for name in arguments.presets or PHYSICS:
            text = page(name, arguments.seeds)
            (arguments.out / f"{name}.md").write_text(text)
            print(text, flush=True)


if __name__ == "__main__":
    main()
