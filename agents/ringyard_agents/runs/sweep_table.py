"""The jobs of a sweep as a table, and the best job."""

import json
import math
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ringyard.errors import ConfigurationError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.command_line import quoted
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, plain_groups
from ringyard_agents.config.safe_load import check_plain, read_plain
from ringyard_agents.runs.run_folder import flatten_config
from ringyard_agents.runs.sweep_job import JobRecord, read_job_records

_CLASS = "_target_"  # key of a config that calls what it names

AGENT = "agent.safetensors"  # file that `ringyard train` writes


def jobs_by_setting(records: Sequence[JobRecord]) -> list[list[JobRecord]]:
    """Group the jobs with an objective by all settings but the seed, the lowest mean objective first."""
    names = [name for name in swept_settings(records) if name != SEED]
    groups: dict[str, list[JobRecord]] = {}
    for record in records:
        if record.status == "done" and record.objective is not None and math.isfinite(record.objective):
            settings = override_values(record.overrides)
            groups.setdefault(repr([settings.get(name) for name in names]), []).append(record)
    return sorted(groups.values(), key=lambda jobs: fmean(float(one.objective or 0.0) for one in jobs))


def best_job(records: Sequence[JobRecord]) -> JobRecord | None:
    """Return the best seed of the settings with the lowest mean objective, or None without objectives."""
    groups = jobs_by_setting(records)
    return min(groups[0], key=lambda one: float(one.objective or 0.0)) if groups else None


def jobs_by_environment(sweep: Path, records: Sequence[JobRecord]) -> list[list[JobRecord]]:
    """Group the jobs of a sweep by the environment in their config.yaml. Only within one they compare."""
    groups: dict[str, list[JobRecord]] = {}
    for record in records:
        groups.setdefault(repr(_environment(sweep / str(record.number))), []).append(record)
    return list(groups.values())


def _environment(job: Path) -> dict[str, Any]:
    """Return {dotted setting: value} of the environment of a job. Empty if the job wrote no config."""
    try:
        config = read_plain(job / "config.yaml")
        return flatten_config({group: config[group] for group in ENVIRONMENT_GROUPS})
    except (ValueError, LookupError, TypeError):
        return {}


def comparison_command(label: str, job: Path, overrides: Sequence[str]) -> str:
    """Return the command that compares the agent of a run folder, made with `overrides`, with baselines."""
    words = [f"schedulers=[fifo_backfill,sjf,{quoted(f'{label}:{job}')}]", *environment_words(job, overrides)]
    return shlex.join(["ringyard", "compare", *words])


def environment_words(job: Path, overrides: Sequence[str]) -> list[str]:
    """Return the overrides that give `ringyard compare` the environment of a run folder."""
    wanted, chosen = _environment(job), (*ENVIRONMENT_GROUPS, "experiment")
    words = [word for word in overrides if word.lstrip("+~").partition("=")[0] in chosen]
    words = [word for word in words if _is_plain(word)]
    with hydra_initialized():
        found = flatten_config(plain_groups(compose("compare", words)))
    changed = {name: value for name, value in wanted.items() if name not in found or found[name] != value}
    changed = {name: value for name, value in changed.items() if _CLASS not in name}
    removed = [f"~{name}" for name in found if name not in wanted] if wanted else []
    return [*words, *(f"++{name}={_override_value(value)}" for name, value in changed.items()), *removed]


def _is_plain(word: str) -> bool:
    """Return whether an override resolves and calls nothing. Another person may have made the sweep."""
    try:
        check_plain(OverridesParser.create().parse_override(word).value())
    except (ConfigurationError, HydraException):
        return False
    return _CLASS not in word


def _override_value(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, float) else json.dumps(value)


def print_best(sweep: str | Path, only_folder: bool) -> None:
    """Print the best job of a sweep in each environment and how to use it, or only its folder.

    The sweep is a folder, or the name of one inside runs/.
    """
    sweep = Path(sweep).expanduser()
    named = Path("runs", sweep)
    sweep = named if named.is_dir() and not sweep.is_dir() else sweep
    records = read_job_records(sweep)
    if not records:
        raise ConfigurationError(
            f"{sweep} has no jobs of a sweep; expected the folder of a `ringyard COMMAND -m`, or its name in"
            " runs/"
        )
    found = [(best, jobs) for jobs in jobs_by_environment(sweep, records) if (best := best_job(jobs))]
    if not found:
        reasons = "; ".join(f"job {one.number}: {one.failure}" for one in records if one.failure)
        raise ConfigurationError(f"no job of {sweep} has an objective{': ' * bool(reasons)}{reasons}")
    for one in records:
        if one.status == "damaged":
            print(f"left out: job {one.number}: {one.failure}", file=sys.stderr)
    if only_folder and len(found) > 1:
        bests = ", ".join(str(sweep / str(best.number)) for best, _ in found)
        raise ConfigurationError(
            f"{sweep} has jobs in {len(found)} environments, and objectives compare only within one; the best"
            f" of each are {bests}"
        )
    if len(found) > 1:
        print(f"{len(found)} environments, and objectives compare only within one: the best job of each")
    for best, jobs in found:
        folder = sweep / str(best.number)
        if only_folder:
            print(folder)
            continue
        described = describe_job(best, swept_settings(records))
        print(f"best of {len(jobs)} jobs: {described}, objective {best.objective:.6g}")
        seeds = jobs_by_setting(jobs)[0]
        if len(seeds) > 1:
            values = [float(one.objective or 0.0) for one in seeds]
            spread = f"{min(values):.6g} to {max(values):.6g}"
            print(f"objective over {len(seeds)} seeds: mean {fmean(values):.6g}, from {spread}")
        print(f"folder: {folder}")
        if (folder / AGENT).is_file():
            print(f"agent: {folder / AGENT}")
            command = comparison_command("best", folder, best.overrides)
            print(f"compare on other workloads than the objective: {command}")


SEED = "seed"

#: columns of every table, before and after those of the settings
_FIRST, _LAST = ("job", "objective"), ("seconds", "status", "error", "folder")


def _value(text: str) -> Any:
    """Parse the value of a setting as a number or boolean, else return the text."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text, text)


def override_values(overrides: Sequence[str]) -> dict[str, Any]:
    """Return {setting: value} of overrides."""
    parts = (word.lstrip("+~").partition("=") for word in overrides)
    return {key: _value(value) for key, _, value in parts}


def swept_settings(records: Sequence[JobRecord]) -> list[str]:
    """Return the settings in which jobs differ, sorted, since a study gives them in any order."""
    every = [override_values(record.overrides) for record in records if record.status != "damaged"]
    names = sorted({name for one in every for name in one})
    return [name for name in names if len({repr(one.get(name)) for one in every}) > 1]


def describe_job(record: JobRecord, names: Sequence[str]) -> str:
    """Describe a job for messages: its number and the values of some settings."""
    settings = override_values(record.overrides)
    words = " ".join(f"{name}={settings[name]}" for name in names if name in settings)
    return f"{record.number} ({words})" if words else str(record.number)


def sweep_table(folder: Path, records: Sequence[JobRecord]) -> pd.DataFrame:
    """Make the table of a sweep, one row per job, with the settings in which jobs differ and results.

    If jobs are in several environments, `environment` numbers these.
    """
    names = swept_settings(records)
    groups = jobs_by_environment(folder, [one for one in records if one.objective is not None])
    environments = {one.number: number for number, jobs in enumerate(groups) for one in jobs}
    rows = []
    for record in records:
        settings = override_values(record.overrides)
        job = folder / str(record.number)
        rows.append(
            {"job": record.number, "objective": record.objective}
            | {name: settings.get(name) for name in names}
            | ({"environment": environments.get(record.number)} if len(groups) > 1 else {})
            | _training_results(job)
            | _comparison_results(job)
            | dict(zip(_LAST, (record.seconds, record.status, record.failure, str(job)), strict=True))
        )
    table = pd.DataFrame(rows).replace({"status": {"running": "killed"}})
    middle = [name for name in table.columns if name not in (*_FIRST, *_LAST)]
    return table[[*_FIRST, *middle, *_LAST]]


def _training_results(job: Path) -> dict[str, Any]:
    """Return the decisions of a training run, and the ratio of its best agent to each baseline."""
    try:
        summary = read_plain(job / "training.json")
        best = summary["best"]
        ratios = {
            f"ratio to {name}": best / value for name, value in summary["baselines"].items() if best and value
        }
        return {"decisions": summary["decisions"], **ratios}
    except (ValueError, ArithmeticError, AttributeError, LookupError, TypeError):
        return {}


def _comparison_results(job: Path) -> dict[str, Any]:
    """Return the mean JCT of each scheduler over the workloads, in seconds."""
    try:
        runs = pd.read_csv(job / "runs.csv")
        means = runs.groupby("scheduler", sort=False)["mean_jct"].mean()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {f"mean_jct of {name}": mean for name, mean in means.items()}
