"""The jobs of a sweep as one table, and the best of them."""

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

from ringyard.errors import ConfigurationError
from ringyard_agents.command_line import quoted
from ringyard_agents.runs.sweep_job import JobRecord, read_job_records

AGENT = "agent.safetensors"  # as `ringyard train` calls it


def jobs_by_setting(records: Sequence[JobRecord]) -> list[list[JobRecord]]:
    """Jobs with an objective, grouped by everything but the seed; the least mean objective first."""
    names = [name for name in swept_settings(records) if name != SEED]
    groups: dict[str, list[JobRecord]] = {}
    for record in records:
        if record.status == "done" and record.objective is not None and math.isfinite(record.objective):
            settings = override_values(record)
            groups.setdefault(repr([settings.get(name) for name in names]), []).append(record)
    return sorted(groups.values(), key=lambda jobs: fmean(float(one.objective or 0.0) for one in jobs))


def best_job(records: Sequence[JobRecord]) -> JobRecord | None:
    """The best seed of the setting that is best over seeds; None: no job has an objective."""
    groups = jobs_by_setting(records)
    return min(groups[0], key=lambda one: float(one.objective or 0.0)) if groups else None


def print_best(sweep: Path, only_folder: bool) -> None:
    """Print the best job of a sweep and how to use it.

    Args:
        sweep: folder of the sweep.
        only_folder: print nothing but the folder of the job.

    Raises:
        ConfigurationError: there is no sweep, or no job of it has an objective.
    """
    records = read_job_records(sweep)
    if not records:
        raise ConfigurationError(
            f"{sweep} has no jobs of a sweep; expected a folder that `ringyard COMMAND -m` wrote"
        )
    best = best_job(records)
    if best is None:
        reasons = "; ".join(f"job {one.number}: {one.why}" for one in records if one.why)
        raise ConfigurationError(
            f"no job of {sweep} has ended with an objective{': ' * bool(reasons)}{reasons}"
        )
    for one in records:
        if one.status == "damaged":
            print(f"left out: job {one.number}: {one.why}", file=sys.stderr)
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
        print(f"its setting over {len(seeds)} seeds: mean {fmean(values):.6g}, {spread}")
    print(f"folder: {folder}")
    if (folder / AGENT).is_file():
        print(f"agent: {folder / AGENT}")
        entry = quoted(f"best:{folder}")
        print(f"compare it: ringyard compare {shlex.quote(f'schedulers=[fifo_backfill,sjf,{entry}]')}")


SEED = "seed"

#: columns that every table has; settings stand between the two parts
_FIRST, _LAST = ("job", "objective"), ("seconds", "status", "error", "folder")


def _value(text: str) -> Any:
    """A setting's value: a number, a truth value or the text."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text, text)


def override_values(record: JobRecord) -> dict[str, Any]:
    """{setting: value} of a job's overrides."""
    parts = (word.lstrip("+~").partition("=") for word in record.overrides)
    return {key: _value(value) for key, _, value in parts}


def swept_settings(records: Sequence[JobRecord]) -> list[str]:
    """The settings in which jobs differ, in the order of the command line."""
    every = [override_values(record) for record in records if record.status != "damaged"]
    names = dict.fromkeys(name for one in every for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in every}) > 1]


def describe_job(record: JobRecord, names: Sequence[str]) -> str:
    """A job for messages: its number, and its values of some settings."""
    settings = override_values(record)
    words = " ".join(f"{name}={settings[name]}" for name in names if name in settings)
    return f"{record.number} ({words})" if words else str(record.number)


def sweep_table(folder: Path, records: Sequence[JobRecord]) -> pd.DataFrame:
    """[jobs] job, objective, settings that were swept, results, seconds, status, error, folder.

    Args:
        folder: of the sweep.
        records: of the jobs.
    """
    names = swept_settings(records)
    rows = []
    for record in records:
        settings = override_values(record)
        own = folder / str(record.number)
        rows.append(
            {"job": record.number, "objective": record.objective}
            | {name: settings.get(name) for name in names}
            | _training_results(own)
            | _comparison_results(own)
            | {"seconds": record.seconds, "status": record.status, "error": record.why, "folder": str(own)}
        )
    table = pd.DataFrame(rows).replace({"status": {"running": "killed"}})
    middle = [name for name in table.columns if name not in (*_FIRST, *_LAST)]
    return table[[*_FIRST, *middle, *_LAST]]


def _training_results(job: Path) -> dict[str, Any]:
    """Decisions of the training, and the best agent's ratio to each baseline."""
    try:
        said: Any = json.loads((job / "training.json").read_text())
        best = said["best"]
        ratios = {
            f"ratio to {name}": best / value for name, value in said["baselines"].items() if best and value
        }
        return {"decisions": said["decisions"], **ratios}
    except (OSError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError):
        return {}


def _comparison_results(job: Path) -> dict[str, Any]:
    """Mean JCT of each scheduler over the workloads, seconds."""
    try:
        runs = pd.read_csv(job / "runs.csv")
        means = runs.groupby("scheduler", sort=False)["mean_jct"].mean()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {f"mean_jct of {name}": mean for name, mean in means.items()}
