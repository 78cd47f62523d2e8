"""`ringyard reproduce`: run a paper's experiment and compare the result with its claims."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hydra
import numpy as np
import yaml
from numpy.typing import NDArray
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from ringyard.checks import suggest
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import EvaluationTask, check_tasks, run_tasks
from ringyard_agents.evaluation.statistics import small_sample_warning
from ringyard_agents.learning.agent_file import AGENT_FILE
from ringyard_agents.report.tables import print_line, print_note
from ringyard_agents.reproduction.claims import (
    CaseMetrics,
    MeasuredClaim,
    claim_rows,
    measure_claim,
    metric_values,
    read_claims,
)
from ringyard_baselines.papers.ada_srsf.transfer_events import FIRST_FIT, RANDOM
from ringyard_baselines.papers.ada_srsf.transfers import published_mix, simulate_transfers

#: metrics shown for every scheduler
_SHOWN = ("mean_jct", "p99_jct", "mean_queueing", "mean_slowdown", "mean_fairness", "makespan", "utilisation")


@dataclass(frozen=True)
class Reproduction:
    """A reproduced paper."""

    paper: str  #: name of its yaml
    content: Mapping[str, Any]  #: content of the yaml
    seeds: int  #: number of workloads
    measured: Sequence[MeasuredClaim]  #: claims with measured values
    metrics: CaseMetrics  #: measured values: `_SHOWN` and every metric that the yaml names for a case


def read_paper(paper: str) -> dict[str, Any]:
    """Read a paper's yaml, in conf/reproduction or in such a folder of RINGYARD_CONF."""
    files = config_files("reproduction")
    if paper not in files:
        found = f"unknown paper {paper!r}" if paper else "no paper"
        raise ConfigurationError(f"{found}; expected {suggest(paper, files)}")
    content: dict[str, Any] = yaml.safe_load(files[paper].read_text())
    expected = ("title", "setup", "rule", "seeds", "cases", "claims", "deviations")
    missing = [key for key in expected if key not in content]
    if missing:
        raise ConfigurationError(f"{files[paper]} lacks the keys {', '.join(missing)}")
    return content


def _scheduler(entry: Mapping[str, Any], rule: str | None) -> Any:
    """Compose the config of an entry.

    It has `scheduler`, such as `fifo` or `fifo@share`, its `overrides`, and its `options` {name: value},
    which YAML can merge. `rule` is the default placement rule.
    """
    name, _, own = entry["scheduler"].partition("@")
    placement = own or rule
    words = [f"scheduler={name}", *([f"placement={placement}"] if placement else [])]
    words += entry.get("overrides", [])
    words += [f"scheduler.{option}={value}" for option, value in entry.get("options", {}).items()]
    config = hydra.compose("entry", words)
    OmegaConf.resolve(config)
    if placement is None and config.scheduler.get("placement") == config.placement:
        raise ConfigurationError(
            f"scheduler {name!r} needs a placement rule; expected {name}@RULE, or the key rule in the yaml"
        )
    return to_plain(config.scheduler)


def _trained(
    case: Mapping[str, Any], folder: Path, on_result: Callable[[str], None]
) -> dict[str, Mapping[str, Any]]:
    """Train the agents of a case on its experiment, and return the entries of all its schedulers.

    `train` of a scheduler lists overrides of `ringyard train` beside the case's.
    """
    entries = dict(case["schedulers"])
    for number, (label, entry) in enumerate(entries.items()):
        if "train" in entry:
            words = [*case["overrides"], *entry["train"]]
            on_result(f"training {label}: {shlex.join(['ringyard', 'train', *words])}")
            run = folder / str(number)
            command = [sys.executable, "-m", "ringyard_agents", "train", *words, f"hydra.run.dir={run}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SchedulerError(f"training {label} failed: {done.stderr.strip()}")
            entries[label] = {
                "scheduler": "learned/agent",
                "overrides": [f"scheduler.checkpoint={run / AGENT_FILE}"],
            }
    return entries


def scheduler_tasks(case: Mapping[str, Any], seeds: int, rule: str | None) -> list[EvaluationTask]:
    """Return a task for every scheduler and seed. Random clusters differ between seeds."""
    schedulers = {label: _scheduler(entry, rule) for label, entry in case["schedulers"].items()}
    config = hydra.compose("compare", case["overrides"])
    environment = {name: to_plain(config[name]) for name in ENVIRONMENT_GROUPS}
    cluster, measured = environment["cluster"], tuple(config.measured_jobs)
    return [
        EvaluationTask(
            label,
            scheduler,
            environment | {"cluster": cluster | ({"seed": seed} if "seed" in cluster else {})},
            seed,
            seed,
            measured,
        )
        for seed in range(seeds)
        for label, scheduler in schedulers.items()
    ]


def _transfer_runs(case: Mapping[str, Any], seeds: int) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Run Ada-SRSF's own model on a case's `mix`: {scheduler: {metric: seconds [seeds]}}."""
    named = {"random": RANDOM, "first_fit": FIRST_FIT}
    figures = {}
    for label, entry in case["schedulers"].items():
        options = {"placement": 1, **case.get("settings", {}), **entry}
        options["placement"] = named.get(options["placement"], options["placement"])
        runs = [
            simulate_transfers(
                published_mix(np.random.default_rng(seed), **case["mix"]), seed=seed, **options
            )
            for seed in range(seeds)
        ]
        figures[label] = {
            "mean_jct": np.array([run.jct.mean() / 1e3 for run in runs]),
            "makespan": np.array([run.makespan / 1e3 for run in runs]),
        }
    return figures


def _metrics(content: Mapping[str, Any], name: str) -> list[str]:
    """Return `_SHOWN` and the metrics that claims, the ablation and tables name for a case."""
    first = next(iter(content["cases"]))
    rows = [*content["claims"], *([content["ablation"]] if content.get("ablation") else [])]
    wanted = {row["metric"] for row in rows if row.get("case", first) == name}
    wanted |= {row["metric"] for row in content.get("tables", []) if name in row["cases"]}
    return list(dict.fromkeys([*_SHOWN, *sorted(wanted)]))


def reproduce(
    paper: str, seeds: int | None, workers: int | None, on_result: Callable[[str], None]
) -> Reproduction:
    """Run everything that a paper's claims need (None: its yaml's number of seeds, one process per core)."""
    content = read_paper(paper)
    count = seeds or int(content["seeds"])
    cases: dict[str, Any] = content["cases"]
    claims = read_claims(content["claims"], list(cases))
    figures: dict[str, Mapping[str, Mapping[str, NDArray[np.float64]]]] = {}
    with hydra_initialized():
        for name, case in cases.items():
            on_result(f"{paper}: {name}, {len(case['schedulers'])} schedulers, {count} seeds")
            if case.get("model") == "transfers":
                figures[name] = _transfer_runs(case, count)
                continue
            with TemporaryDirectory() as folder:
                entries = _trained(case, Path(folder), on_result)
                tasks = scheduler_tasks({**case, "schedulers": entries}, count, content["rule"])
                check_tasks(tasks)
                results = run_tasks(tasks, workers, lambda result: None)
            runs = {label: [run for run in results if run.label == label] for label in entries}
            metrics = _metrics(content, name)
            figures[name] = {
                label: {metric: metric_values(mine, metric) for metric in metrics}
                for label, mine in runs.items()
            }
    return Reproduction(paper, content, count, [measure_claim(one, figures) for one in claims], figures)


def reproduce_paper(paper: str, seeds: int | None, workers: int | None) -> Reproduction:
    """Run a paper's experiment, and print its claims and the measured values; see `reproduce`."""
    console = Console()
    one = reproduce(paper, seeds, workers, lambda line: print_line(console, line))
    table = Table(title=f"{one.content['title']}; {one.seeds} seeds", title_justify="left")
    for title in ("claim", "claimed", "measured [95% CI]", "reproduced"):
        table.add_column(title)
    for row in claim_rows(one.measured):
        table.add_row(*row)
    console.print(table)
    warning = small_sample_warning(one.seeds)
    if warning is not None:
        print_note(console, warning)
    return one
