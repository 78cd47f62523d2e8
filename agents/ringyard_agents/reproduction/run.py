"""`ringyard reproduce`: run a paper's setting and hold the result against its claims."""

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

from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.mdp.user_config import hydra_configs
from ringyard_agents.config.compose import WORLD, plain
from ringyard_agents.evaluation.evaluate import RunResult, Task, check, run_all
from ringyard_agents.learning.agent_file import AGENT
from ringyard_agents.reproduction.claims import (
    Claim,
    Measured,
    SweepTable,
    measure_claim,
    metric_values,
    read_claims,
    read_tables,
)
from ringyard_baselines.papers.ada_srsf import transfers

__all__ = ["Reproduction", "papers", "read_ablation", "reproduce"]

#: figures shown of every scheduler
SHOWN = ("mean_jct", "p99_jct", "mean_queueing", "mean_slowdown", "mean_fairness", "makespan", "utilisation")


@dataclass(frozen=True)
class Reproduction:
    """One paper, run anew.

    Attributes:
        paper: file name of its yaml.
        title: of the paper.
        setting: what is run, in words.
        rule: of conf/placement, for schedulers that name none and bring none; None: there are none of these.
        deviations: what is assumed, not said, or different in public code.
        seeds: workloads.
        measured: claims.
        headline: the one of them that the paper is known for.
        ablation: what the mechanism itself brings, on against off; None: it cannot be switched off.
        tables: of several cases each.
        figures: {case: {scheduler: {metric: [seeds]}}} for the table of all figures.
    """

    paper: str
    title: str
    setting: str
    rule: str | None
    deviations: Sequence[str]
    seeds: int
    measured: Sequence[Measured]
    headline: Measured
    ablation: Measured | None
    tables: Sequence[SweepTable]
    figures: Mapping[str, Mapping[str, Mapping[str, NDArray[np.float64]]]]


def papers() -> list[str]:
    """Names of conf/reproduction."""
    return sorted(file.stem for file in (config_folder() / "reproduction").glob("*.yaml"))


def _read(paper: str) -> dict[str, Any]:
    if paper not in papers():
        raise ConfigurationError(f"unknown paper {paper!r}; expected one of {', '.join(papers())}")
    content: dict[str, Any] = yaml.safe_load((config_folder() / "reproduction" / f"{paper}.yaml").read_text())
    expected = ("title", "setting", "rule", "seeds", "cases", "claims", "deviations")
    missing = [key for key in expected if key not in content]
    if missing:
        raise ConfigurationError(
            f"conf/reproduction/{paper}.yaml lacks {', '.join(missing)}; expected as in the others"
        )
    return content


def _scheduler(entry: str, overrides: Sequence[str], rule: str | None) -> Any:
    """Config of an entry such as `fifo` (it takes that rule) or `fifo@share`, with overrides of its own.

    Raises:
        ConfigurationError: it places by a rule, and neither the entry nor the yaml names one.
    """
    name, _, own = entry.partition("@")
    placement = own or rule
    words = [f"scheduler={name}", *([f"placement={placement}"] if placement else [])]
    config = hydra.compose("entry", [*words, *overrides])
    OmegaConf.resolve(config)
    if placement is None and config.scheduler.get("placement") == config.placement:
        raise ConfigurationError(
            f"scheduler {entry!r} places by a rule and names none; expected {entry}@RULE, or a rule for all"
        )
    return plain(config.scheduler)


def _trained(
    case: Mapping[str, Any], folder: Path, on_result: Callable[[str], None]
) -> dict[str, Mapping[str, Any]]:
    """The case's schedulers; those with a `train` entry are trained on the case's setting.

    Args:
        case: of a yaml; `train` lists overrides of `ringyard train` beside the case's own.
        folder: for the agents.
        on_result: called with a line before each training.

    Raises:
        SchedulerError: an agent could not be trained.
    """
    entries = dict(case["schedulers"])
    for number, (label, entry) in enumerate(entries.items()):
        if "train" in entry:
            words = [*case["overrides"], *entry["train"]]
            on_result(f"training {label}: ringyard train {' '.join(words)}")
            run = folder / str(number)
            command = [sys.executable, "-m", "ringyard_agents", "train", *words, f"hydra.run.dir={run}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SchedulerError(f"training {label} failed: {done.stderr.strip()}")
            entries[label] = {
                "scheduler": "learned/agent",
                "overrides": [f"scheduler.checkpoint={run / AGENT}"],
            }
    return entries


def _overrides(entry: Mapping[str, Any]) -> list[str]:
    """Overrides of an entry: its own, and those of its `options`, {name: value}, which YAML can merge."""
    options = entry.get("options", {})
    return [*entry.get("overrides", []), *(f"scheduler.{name}={value}" for name, value in options.items())]


def _tasks(case: Mapping[str, Any], seeds: int, rule: str | None) -> list[Task]:
    """Every scheduler on every seed; clusters that are drawn are drawn anew for each.

    Args:
        case: of a yaml.
        seeds: how many.
        rule: of conf/placement, for entries that name none.
    """
    schedulers = {
        label: _scheduler(entry["scheduler"], _overrides(entry), rule)
        for label, entry in case["schedulers"].items()
    }
    tasks = []
    for seed in range(seeds):
        config = hydra.compose("compare", [*case["overrides"], f"seed={seed}"])
        world = {name: plain(config[name]) for name in WORLD}
        measured = tuple(config.measured_jobs)
        tasks += [Task(label, schedulers[label], world, seed, seed, measured) for label in schedulers]
    return tasks


def _by_scheduler(
    results: Sequence[RunResult], metrics: Sequence[str]
) -> dict[str, dict[str, NDArray[np.float64]]]:
    labels = list(dict.fromkeys(result.label for result in results))
    return {
        label: {m: metric_values([r for r in results if r.label == label], m) for m in metrics}
        for label in labels
    }


def _transfer_runs(case: Mapping[str, Any], seeds: int) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Ada-SRSF's own model, in seconds.

    Args:
        case: `mix` of `published_mix`; `settings` and each scheduler's entry are of `simulate_transfers`.
        seeds: job lists.
    """
    named = {"random": transfers.RANDOM, "first_fit": transfers.FIRST_FIT}
    figures = {}
    for label, entry in case["schedulers"].items():
        options = {"placement": 1, **case.get("settings", {}), **entry}
        options["placement"] = named.get(options["placement"], options["placement"])
        runs = [
            transfers.simulate_transfers(
                transfers.published_mix(np.random.default_rng(seed), **case["mix"]), seed=seed, **options
            )
            for seed in range(seeds)
        ]
        figures[label] = {
            "mean_jct": np.array([run.jct.mean() / 1e3 for run in runs]),
            "makespan": np.array([run.makespan / 1e3 for run in runs]),
        }
    return figures


def _headline(paper: str, text: str, claims: Sequence[Claim]) -> int:
    """Position of the claim with this text."""
    texts = [claim.text for claim in claims]
    if text not in texts:
        raise ConfigurationError(f"{paper}: headline is {text!r}; expected one of the claims {texts}")
    return texts.index(text)


def read_ablation(content: Mapping[str, Any], cases: Sequence[str]) -> Claim | None:
    """What a yaml compares to show its mechanism alone; nothing is claimed of it.

    Raises:
        ConfigurationError: a row that makes no sense.
    """
    row = content["ablation"]
    return None if row is None else read_claims([{**row, "claimed": float("nan")}], cases)[0]


def _measured(
    claim: Claim, figures: Mapping[str, Mapping[str, Mapping[str, NDArray[np.float64]]]]
) -> Measured:
    """A claim's number out of all figures."""
    values = {
        (label, metric): column
        for label, row in figures[claim.case].items()
        for metric, column in row.items()
    }
    return measure_claim(claim, values)


def reproduce(
    paper: str, seeds: int | None, workers: int | None, on_result: Callable[[str], None]
) -> Reproduction:
    """Run everything a paper's claims need.

    Args:
        paper: a name of `papers()`.
        seeds: workloads; None: as the yaml says.
        workers: processes; None: one per core.
        on_result: called with a line when a case begins.

    Raises:
        ConfigurationError: no such paper, or a yaml that makes no sense.
        SchedulerError: an agent could not be trained.
    """
    content = _read(paper)
    count = seeds or int(content["seeds"])
    cases: dict[str, Any] = content["cases"]
    claims = read_claims(content["claims"], list(cases))
    headline = _headline(paper, content["headline"], claims)
    ablation = read_ablation(content, list(cases))
    tables = read_tables(content.get("tables", []), cases)
    asked = [*claims, *([] if ablation is None else [ablation])]
    figures: dict[str, Mapping[str, Mapping[str, NDArray[np.float64]]]] = {}
    with hydra_configs():
        for name, case in cases.items():
            on_result(f"{paper}: {name}, {len(case['schedulers'])} schedulers, {count} seeds")
            wanted = {claim.metric for claim in asked if claim.case == name}
            wanted |= {table.metric for table in tables if name in table.cases}
            if case.get("model") == "transfers":
                figures[name] = _transfer_runs(case, count)
                continue
            with TemporaryDirectory() as folder:
                entries = _trained(case, Path(folder), on_result)
                tasks = _tasks({**case, "schedulers": entries}, count, content["rule"])
                check(tasks)
                results = run_all(tasks, workers, lambda result: None)
            figures[name] = _by_scheduler(results, list(dict.fromkeys([*SHOWN, *sorted(wanted)])))
    measured = [_measured(claim, figures) for claim in claims]
    return Reproduction(
        paper=paper,
        title=content["title"],
        setting=content["setting"],
        rule=content["rule"],
        deviations=content["deviations"],
        seeds=count,
        measured=measured,
        headline=measured[headline],
        ablation=None if ablation is None else _measured(ablation, figures),
        tables=tables,
        figures=figures,
    )
