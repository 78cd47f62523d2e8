"""The jobs of a sweep as a table, and the best job."""

import math
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from ringyard.errors import ConfigurationError
from ringyard_agents.command_line import quoted
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.runs.sweep_job import JobRecord, read_job_records

AGENT = "agent.safetensors"  # file that `ringyard train` writes


def jobs_by_setting(records: Sequence[JobRecord]) -> list[list[JobRecord]]:
    """Group the jobs with an objective by all settings but the seed, the lowest mean objective first."""
    names = [name for name in swept_settings(records) if name != SEED]
    groups: dict[str, list[JobRecord]] = {}
    for record in records:
        if record.status == "done" and record.objective is not None and math.isfinite(record.objective):
            settings = override_values(record)
            groups.setdefault(repr([settings.get(name) for name in names]), []).append(record)
    return sorted(groups.values(), key=lambda jobs: fmean(float(one.objective or 0.0) for one in jobs))


def best_job(records: Sequence[JobRecord]) -> JobRecord | None:
    """Return the best seed of the settings with the lowest mean objective, or None without objectives."""
    groups = jobs_by_setting(records)
    return min(groups[0], key=lambda one: float(one.objective or 0.0)) if groups else None


def print_best(sweep: Path, only_folder: bool) -> None:
    """Print the best job of a sweep and how to use it.

    Args:
        sweep: folder of the sweep.
        only_folder: print only the folder of the job.

    Raises:
        ConfigurationError: the folder has no sweep, or no job has an objective.
    """
    records = read_job_records(sweep)
    if not records:
        raise ConfigurationError(
            f"{sweep} has no jobs of a sweep; expected the folder of a `ringyard COMMAND -m`, or its name in"
            " runs/"
        )
    best = best_job(records)
    if best is None:
        reasons = "; ".join(f"job {one.number}: {one.failure}" for one in records if one.failure)
        raise ConfigurationError(f"no job of {sweep} has an objective{': ' * bool(reasons)}{reasons}")
    for one in records:
        if one.status == "damaged":
            print(f"left out: job {one.number}: {one.failure}", file=sys.stderr)
    folder = sweep / str(best.number)
    if only_folder:
        print(folder)
        return
    settings = describe_job(best, swept_settings(records))
    print(f"best of {len(records)} jobs: {settings}, objective {best.objective:.6g}")
    seeds = jobs_by_setting(records)[0]
    if len(seeds) > 1:
        values = [float(one.objective or 0.0) for one in seeds]
        spread = f"{min(values):.6g} to {max(values):.6g}"
        print(f"objective over {len(seeds)} seeds: mean {fmean(values):.6g}, from {spread}")
    print(f"folder: {folder}")
    if (folder / AGENT).is_file():
        print(f"agent: {folder / AGENT}")
        entry = quoted(f"best:{folder}")
        print(f"compare with: ringyard compare {shlex.quote(f'schedulers=[fifo_backfill,sjf,{entry}]')}")


SEED = "seed"

#: columns of every table, before and after those of the settings
_FIRST, _LAST = ("job", "objective"), ("seconds", "status", "error", "folder")


def _value(text: str) -> Any:
    """Parse the value of a setting as a number or boolean, else return the text."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text, text)


def override_values(record: JobRecord) -> dict[str, Any]:
    """Return {setting: value} of the overrides of a job."""
    parts = (word.lstrip("+~").partition("=") for word in record.overrides)
    return {key: _value(value) for key, _, value in parts}


def swept_settings(records: Sequence[JobRecord]) -> list[str]:
    """Return the settings in which jobs differ, in the order of the command line."""
    every = [override_values(record) for record in records if record.status != "damaged"]
    names = dict.fromkeys(name for one in every for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in every}) > 1]


def describe_job(record: JobRecord, names: Sequence[str]) -> str:
    """Describe a job for messages: its number and values of settings.

    Args:
        record: record of the job.
        names: settings to show.
    """
    settings = override_values(record)
    words = " ".join(f"{name}={settings[name]}" for name in names if name in settings)
    return f"{record.number} ({words})" if words else str(record.number)


def sweep_table(folder: Path, records: Sequence[JobRecord]) -> pd.DataFrame:
    """Make the table of a sweep.

    Args:
        folder: folder of the sweep.
        records: records of the jobs.

    Returns:
        One row per job: job, objective, settings in which jobs differ, results, seconds, status, error,
        folder.
    """
    names = swept_settings(records)
    rows = []
    for record in records:
        settings = override_values(record)
        job = folder / str(record.number)
        rows.append(
            {"job": record.number, "objective": record.objective}
            | {name: settings.get(name) for name in names}
            | _training_results(job)
            | _comparison_results(job)
            | {
                "seconds": record.seconds,
                "status": record.status,
                "error": record.failure,
                "folder": str(job),
            }
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
