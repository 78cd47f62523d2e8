"""One table of every environment: the best published scheduler, the allocator, agents and the bound.

    PYTHONPATH=. python benchmarks/every_environment.py
    PYTHONPATH=. python benchmarks/every_environment.py --only sharing,pai --workloads 8

Each row is one `ringyard compare` (its command is printed), on workloads that nothing was chosen by or
learnt from, every scheduler with the placement rule and options that `ringyard tune` found on others. Traces
are read from the folder of the command; environments without theirs are left out. Runs are kept in
runs/every_environment_*, so that it goes on where it stopped.
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


class Environment(NamedTuple):
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
    """Words that make an environment of the later jobs of a trace."""
    return (f"workload={name}", f"workload.path={file}", "workload.part=[0.6,1]", *more)


PHILLY, PAI, VENUS = "philly_jobs.csv.gz", "pai_gpu_tasks_sample.csv.gz", "venus_gpu_jobs.csv.gz"
LATER_PHILLY = trace("philly", PHILLY, "workload.load=5", "workload.window_jobs=256")
LATER_PAI, LATER_VENUS = trace("pai", PAI), trace("helios", VENUS)
SMALL = ("cluster.num_servers=4", "workload.max_gpus=16")  # of 4 GPUs each
LARGE = ("cluster.num_servers=64", "workload.window_jobs=512")
UNKNOWN = ((), "zoo:unknown", "allocator_attained")
TOLD = ("srsf", "srtf")

ENVIRONMENTS = {
    "contention": Environment(
        "Contention", ("experiment=contention",), "contention", ("srsf", "smallest_work", "sjf")
    ),
    "sharing": Environment(
        "Sharing", ("experiment=sharing",), "sharing", ("srsf", "srtf", "synergy_tune"), "zoo:sharing"
    ),
    "cpu_gpu": Environment("CpuGpu", ("experiment=cpu_gpu",), "cpu_gpu", ("synergy_tune",)),
    "elastic": Environment("Elastic", ("experiment=elastic",), "elastic", ("pollux",), "zoo:elastic"),
    "full": Environment("Full", ("experiment=full",), "full", ("srsf", "pollux"), "zoo:full"),
    "quickstart": Environment(
        "the quickstart", ("experiment=quickstart",), "quickstart", (*TOLD, "synergy_tune")
    ),
    "venus": Environment("Helios Venus, load 10", LATER_VENUS, "helios", TOLD, file=VENUS),
    "philly": Environment("Philly, load 5", LATER_PHILLY, "philly_long", TOLD, file=PHILLY),
    "pai": Environment("PAI, load 10", LATER_PAI, "pai", TOLD, file=PAI),
    "venus_16": Environment("Venus on 16 GPUs", (*LATER_VENUS, *SMALL), "helios", TOLD, file=VENUS),
    "venus_256": Environment("Venus on 256 GPUs", (*LATER_VENUS, *LARGE), "helios", TOLD, file=VENUS),
    "venus_300": Environment(
        "Venus, restarts of 300 s", (*LATER_VENUS, "restart.seconds=300"), "helios", TOLD, file=VENUS
    ),
    "philly_0": Environment(
        "Philly, restarts cost nothing",
        (*LATER_PHILLY, "restart.seconds=0"),
        "philly_long",
        TOLD,
        file=PHILLY,
    ),
    "philly_300": Environment(
        "Philly, restarts of 300 s", (*LATER_PHILLY, "restart.seconds=300"), "philly_long", TOLD, file=PHILLY
    ),
    "pai_300": Environment(
        "PAI, restarts of 300 s", (*LATER_PAI, "restart.seconds=300"), "pai", TOLD, file=PAI
    ),
    "sharing_unknown": Environment("Sharing", ("experiment=sharing",), "sharing", *UNKNOWN),
    "cpu_gpu_unknown": Environment("CpuGpu", ("experiment=cpu_gpu",), "cpu_gpu", *UNKNOWN),
    "elastic_unknown": Environment("Elastic", ("experiment=elastic",), "elastic", *UNKNOWN),
    "full_unknown": Environment("Full", ("experiment=full",), "full", *UNKNOWN),
    "contention_unknown": Environment("Contention", ("experiment=contention",), "contention", *UNKNOWN),
    "quickstart_unknown": Environment("the quickstart", ("experiment=quickstart",), "quickstart", *UNKNOWN),
    "venus_unknown": Environment("Helios Venus, load 10", LATER_VENUS, "helios", *UNKNOWN, VENUS),
    "philly_unknown": Environment("Philly, load 5", LATER_PHILLY, "philly_long", *UNKNOWN, PHILLY),
    "pai_unknown": Environment("PAI, load 10", LATER_PAI, "pai", *UNKNOWN, PAI),
}


def folder(name, workloads):
    """Under runs/."""
    return f"every_environment_{name}_{workloads}"


def published(environment):
    """Schedulers that an environment names, or all that its allocator is compared with, for `schedulers=`."""
    if environment.published:
        return environment.published
    with hydra_initialized():
        found = competitors(
            SchedulerEntry.read(environment.rule),
            ComparisonRequest.read(
                compose("compare", [*environment.overrides, f"tuning={environment.best}"])
            ),
        )
    return [
        f"{{{one.label}: {{scheduler: {one.scheduler}, options: {shown(one.options)}}}}}" for one in found
    ]


def shown(value):
    """A value as the command line takes it."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(one)}' for key, one in value.items())}}}"
    return str(value)


def command(name, environment, workloads):
    """The words of `ringyard compare`, and {column: label of a scheduler there}."""
    labels = {"rule": environment.rule, "agent": environment.agent}
    listed = ",".join([*published(environment), environment.rule, environment.agent])
    words = [
        *environment.overrides,
        f"schedulers=[{listed}]",
        f"tuning={environment.best}",
        f"seeds={workloads}",
        f"name={folder(name, workloads)}",
    ]
    return words, labels


def measured(name, environment, workloads):
    """[workloads, schedulers] mean JCT, the bound's column among them, and the labels of columns."""
    words, labels = command(name, environment, workloads)
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


def row(environment, jct, labels):
    """What the table says of an environment."""
    known = set(labels.values()) | {"bound"}
    best = min((one for one in jct if one not in known), key=lambda one: jct[one].mean())
    mean = {column: f"{jct[label].mean():,.0f}" for column, label in labels.items()}
    return [
        environment.title,
        len(jct),
        f"{jct['bound'].mean():,.0f}",
        f"{jct[best].mean():,.0f} `{best}`",
        f"{mean['rule']} `{environment.rule}`",
        f"{mean['agent']} `{environment.agent}`",
        share(jct[environment.agent], jct[best]),
        share(jct[environment.agent], jct[environment.rule]),
    ]


HEAD = (
    "environment",
    "workloads",
    "bound (s)",
    "best published (s)",
    "allocator (s)",
    "agent (s)",
    "agent vs best published",
    "agent vs allocator",
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", help=f"some of {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--workloads", type=int, default=40)
    asked = parser.parse_args()
    if asked.workloads < 1:
        parser.error(f"--workloads is {asked.workloads}; expected at least 1")
    chosen = list(ENVIRONMENTS) if asked.only is None else list(dict.fromkeys(asked.only.split(",")))
    unknown = [name for name in chosen if name not in ENVIRONMENTS]
    if unknown:
        parser.error(f"--only has {', '.join(unknown)}; expected some of {', '.join(ENVIRONMENTS)}")
    rows = []
    for name in chosen:
        environment = ENVIRONMENTS[name]
        if environment.file and not Path(environment.file).is_file():
            print(
                f"{environment.title}: left out, there is no {environment.file} here (see `ringyard traces`)"
            )
            continue
        rows.append(row(environment, *measured(name, environment, asked.workloads)))
    print(f"\n| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 1)}")
    for cells in rows:
        print(f"| {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
