"""The jobs of a sweep as one table: what was swept, what each returned, what more its command says of it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ringyard_agents.runs.job_record import JobRecord

__all__ = ["SEED", "said", "settings_of", "sweep_table", "swept"]

SEED = "seed"

#: columns that every table has; settings stand between the two parts
_FIRST, _LAST = ("job", "objective"), ("seconds", "status", "error", "folder")


def _value(text: str) -> Any:
    """A setting's value: a number, a truth value or the text."""
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):  # no date is the thirteenth month's
        return text
    try:
        return value if isinstance(value, bool | int | float) else float(text)  # YAML has no 1e-3
    except ValueError:
        return text


def settings_of(record: JobRecord) -> dict[str, Any]:
    """{setting: value} of a job's overrides.

    Args:
        record: of the job.
    """
    parts = (word.lstrip("+~").partition("=") for word in record.overrides)
    return {key: _value(value) for key, _, value in parts}


def swept(records: Sequence[JobRecord]) -> list[str]:
    """The settings in which jobs differ, in the order of the command line.

    Args:
        records: of the jobs.
    """
    every = [settings_of(record) for record in records if record.status != "damaged"]
    names = dict.fromkeys(name for one in every for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in every}) > 1]


def said(record: JobRecord, names: Sequence[str]) -> str:
    """A job as messages say it: its number and what was swept.

    Args:
        record: of the job.
        names: of the settings.
    """
    settings = settings_of(record)
    words = " ".join(f"{name}={settings[name]}" for name in names if name in settings)
    return f"{record.number} ({words})" if words else str(record.number)


def sweep_table(folder: Path, records: Sequence[JobRecord]) -> pd.DataFrame:
    """One row per job: job, objective, what was swept, what its command says, seconds, status, error, folder.

    Args:
        folder: of the sweep.
        records: of its jobs.
    """
    names = swept(records)
    rows = []
    for record in records:
        settings = settings_of(record)
        own = folder / str(record.number)
        rows.append(
            {"job": record.number, "objective": record.objective}
            | {name: settings.get(name) for name in names}
            | _of_training(own)
            | _of_comparison(own)
            | {"seconds": record.seconds, "status": _status(record), "error": record.why, "folder": str(own)}
        )
    table = pd.DataFrame(rows)
    middle = [name for name in table.columns if name not in (*_FIRST, *_LAST)]
    return table[[*_FIRST, *middle, *_LAST]]


def _status(record: JobRecord) -> str:
    return "killed" if record.status == "running" else record.status


def _of_training(job: Path) -> dict[str, Any]:
    """Decisions learnt from, and the best agent against the baselines."""
    try:
        said: Any = json.loads((job / "training.json").read_text())
        best = said["best"]
        ratios = {
            f"ratio to {name}": best / value for name, value in said["baselines"].items() if best and value
        }
        return {"decisions": said["decisions"], **ratios}
    except (OSError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError):
        return {}


def _of_comparison(job: Path) -> dict[str, Any]:
    """Mean JCT of each scheduler over the workloads, seconds."""
    try:
        runs = pd.read_csv(job / "runs.csv")
        means = runs.groupby("scheduler", sort=False)["mean_jct"].mean()
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {f"mean_jct of {name}": mean for name, mean in means.items()}
