"""One table of every world: the best published scheduler, the allocator, agents and the bound.

    PYTHONPATH=. python benchmarks/every_world.py
    PYTHONPATH=. python benchmarks/every_world.py --only sharing,pai --workloads 8

Each row is one `ringyard compare` (its command is printed), on workloads that nothing was chosen by or
learnt from, every scheduler with the placement rule and options that `ringyard tune` found on others. Traces
are read from the folder of the command; worlds without theirs are left out. Runs are kept in
runs/every_world_*, so that it goes on where it stopped.
"""

import argparse
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from hydra import compose

from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import SchedulerEntry
from ringyard_agents.evaluation.selection import ComparisonRequest
from ringyard_agents.evaluation.statistics import ratio_interval
from tools.zoo.competitors import competitors


class World(NamedTuple):
    """A row: what it is called, what makes it, where options were found, who is the best there.

    Where nobody is named, all published schedulers run that know and may no more than the rule.
    """

    title: str
    overrides: tuple[str, ...]
    best: str
    published: tuple[str, ...]
    agent: str = "zoo:joint"
    rule: str = "allocator"
    file: str | None = None


def trace(name, file, *more):
    """Words that make a world of the later jobs of a trace."""
    return (f"workload={name}", f"workload.path={file}", "workload.part=[0.6,1]", *more)


PHILLY, PAI, VENUS = "philly_jobs.csv.gz", "pai_gpu_tasks_sample.csv.gz", "venus_gpu_jobs.csv.gz"
LATER_PHILLY = trace("philly", PHILLY, "workload.load=5", "workload.window_jobs=256")
LATER_PAI, LATER_VENUS = trace("pai", PAI), trace("helios", VENUS)
SMALL = ("cluster.num_servers=4", "workload.max_gpus=16")  # of 4 GPUs each
LARGE = ("cluster.num_servers=64", "workload.window_jobs=512")
UNKNOWN = ((), "zoo:unknown", "allocator_attained")
TOLD = ("srsf", "srtf")

WORLDS = {
    "contention": World(
        "Contention", ("experiment=contention",), "contention", ("srsf", "smallest_work", "sjf")
    ),
    "sharing": World(
        "Sharing", ("experiment=sharing",), "sharing", ("srsf", "srtf", "synergy_tune"), "zoo:sharing"
    ),
    "cpu_gpu": World("CpuGpu", ("experiment=cpu_gpu",), "cpu_gpu", ("synergy_tune",)),
    "elastic": World("Elastic", ("experiment=elastic",), "elastic", ("pollux",), "zoo:elastic"),
    "full": World("Full", ("experiment=full",), "full", ("srsf", "pollux"), "zoo:full"),
    "quickstart": World("the quickstart", ("experiment=quickstart",), "quickstart", (*TOLD, "synergy_tune")),
    "venus": World("Helios Venus, load 10", LATER_VENUS, "helios", TOLD, file=VENUS),
    "philly": World("Philly, load 5", LATER_PHILLY, "philly_long", TOLD, file=PHILLY),
    "pai": World("PAI, load 10", LATER_PAI, "pai", TOLD, file=PAI),
    "venus_16": World("Venus on 16 GPUs", (*LATER_VENUS, *SMALL), "helios", TOLD, file=VENUS),
    "venus_256": World("Venus on 256 GPUs", (*LATER_VENUS, *LARGE), "helios", TOLD, file=VENUS),
    "venus_300": World(
        "Venus, restarts of 300 s", (*LATER_VENUS, "restart.seconds=300"), "helios", TOLD, file=VENUS
    ),
    "philly_0": World(
        "Philly, restarts cost nothing",
        (*LATER_PHILLY, "restart.seconds=0"),
        "philly_long",
        TOLD,
        file=PHILLY,
    ),
    "philly_300": World(
        "Philly, restarts of 300 s", (*LATER_PHILLY, "restart.seconds=300"), "philly_long", TOLD, file=PHILLY
    ),
    "pai_300": World("PAI, restarts of 300 s", (*LATER_PAI, "restart.seconds=300"), "pai", TOLD, file=PAI),
    "sharing_unknown": World("Sharing", ("experiment=sharing",), "sharing", *UNKNOWN),
    "cpu_gpu_unknown": World("CpuGpu", ("experiment=cpu_gpu",), "cpu_gpu", *UNKNOWN),
    "elastic_unknown": World("Elastic", ("experiment=elastic",), "elastic", *UNKNOWN),
    "full_unknown": World("Full", ("experiment=full",), "full", *UNKNOWN),
    "contention_unknown": World("Contention", ("experiment=contention",), "contention", *UNKNOWN),
    "quickstart_unknown": World("the quickstart", ("experiment=quickstart",), "quickstart", *UNKNOWN),
    "venus_unknown": World("Helios Venus, load 10", LATER_VENUS, "helios", *UNKNOWN, VENUS),
    "philly_unknown": World("Philly, load 5", LATER_PHILLY, "philly_long", *UNKNOWN, PHILLY),
    "pai_unknown": World("PAI, load 10", LATER_PAI, "pai", *UNKNOWN, PAI),
}


def folder(name, workloads):
    """Under runs/."""
    return f"every_world_{name}_{workloads}"


def published(world):
    """Those that a world names, or all rivals of its rule, as `schedulers=` takes them."""
    if world.published:
        return world.published
    with hydra_initialized():
        found = competitors(
            SchedulerEntry.read(world.rule),
            ComparisonRequest.read(compose("compare", [*world.overrides, f"tuning={world.best}"])),
        )
    return [
        f"{{{one.label}: {{scheduler: {one.scheduler}, options: {shown(one.options)}}}}}" for one in found
    ]


def shown(value):
    """A value as the command line takes it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(one)}' for key, one in value.items())}}}"
    return str(value)


def command(name, world, workloads):
    """The words of `ringyard compare`, and {column: label of a scheduler there}."""
    labels = {"rule": world.rule, "agent": world.agent}
    listed = ",".join([*published(world), world.rule, world.agent])
    words = [
        *world.overrides,
        f"schedulers=[{listed}]",
        f"tuning={world.best}",
        f"seeds={workloads}",
        f"name={folder(name, workloads)}",
    ]
    return words, labels


def measured(name, world, workloads):
    """[workloads, schedulers] mean JCT, the bound's column among them, and the labels of columns."""
    words, labels = command(name, world, workloads)
    print("ringyard compare", shlex.join(words), flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "ringyard_agents", "compare", *words, "plots=false", "tensorboard=false"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    runs = pd.read_csv(Path("runs", folder(name, workloads), "runs.csv"))
    jct = runs.pivot(index="workload", columns="scheduler", values="mean_jct")
    jct["bound"] = runs.groupby("workload")["bound_mean_jct"].first()
    return jct, labels


def share(values, reference):
    """The difference of means as a table shows it."""
    found = ratio_interval(values.to_numpy(), reference.to_numpy())
    return f"{100 * (found.value - 1):+.1f} % [{100 * (found.low - 1):+.1f}, {100 * (found.high - 1):+.1f}]"


def row(world, jct, labels):
    """What the table says of a world."""
    known = set(labels.values()) | {"bound"}
    best = min((one for one in jct if one not in known), key=lambda one: jct[one].mean())
    mean = {column: f"{jct[label].mean():,.0f}" for column, label in labels.items()}
    return [
        world.title,
        len(jct),
        f"{jct['bound'].mean():,.0f}",
        f"{jct[best].mean():,.0f} `{best}`",
        f"{mean['rule']} `{world.rule}`",
        f"{mean['agent']} `{world.agent}`",
        share(jct[world.agent], jct[best]),
        share(jct[world.agent], jct[world.rule]),
    ]


HEAD = (
    "world",
    "workloads",
    "bound (s)",
    "best published (s)",
    "rule (s)",
    "agent (s)",
    "agent / best published",
    "agent / rule",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", help=f"some of {', '.join(WORLDS)}")
    parser.add_argument("--workloads", type=int, default=40)
    asked = parser.parse_args()
    if asked.workloads < 1:
        parser.error(f"--workloads is {asked.workloads}; expected at least 1")
    chosen = list(WORLDS) if asked.only is None else list(dict.fromkeys(asked.only.split(",")))
    unknown = [name for name in chosen if name not in WORLDS]
    if unknown:
        parser.error(f"--only has {', '.join(unknown)}; expected some of {', '.join(WORLDS)}")
    rows = []
    for name in chosen:
        world = WORLDS[name]
        if world.file and not Path(world.file).is_file():
            print(f"{world.title}: left out, there is no {world.file} here (see `ringyard traces`)")
            continue
        rows.append(row(world, *measured(name, world, asked.workloads)))
    print(f"\n| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 1)}")
    for cells in rows:
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
