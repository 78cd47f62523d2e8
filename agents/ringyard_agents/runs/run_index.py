"""Index of finished runs: find the training runs and comparisons in folders and read their results."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard_agents.config.safe_load import read_plain

_NOT_A_RUN = (OSError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError)


@dataclass(frozen=True)
class TrainingResult:
    """Results of a training run."""

    folder: Path  #: folder of the run
    metric: str  #: metric of the evaluations, a field of `Metrics`
    curve: pd.DataFrame  #: one row per evaluation with the columns `decisions` and `value`
    baselines: Mapping[str, float]  #: {scheduler: its metric on the same workloads}
    settings: Mapping[str, Any]  #: {dotted name of a setting: value}


@dataclass(frozen=True)
class ComparisonResult:
    """Results of a comparison: its folder, and `Results.runs` and `Results.jobs`."""

    folder: Path
    runs: pd.DataFrame
    jobs: pd.DataFrame


def find_runs(places: Iterable[str]) -> tuple[list[TrainingResult], list[ComparisonResult], list[str]]:
    """Return (training runs, comparisons, messages about damaged runs) in folders, at any depth."""
    trained: dict[Path, TrainingResult] = {}
    compared: dict[Path, ComparisonResult] = {}
    damaged: dict[Path, str] = {}
    for place in places:
        if not Path(place).expanduser().is_dir():
            raise ConfigurationError(
                f"there is no folder {place!r}; expected the folder of a run, or a folder of runs"
            )
        found = 0
        for name, folders, files in os.walk(Path(place).expanduser()):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            home = Path(name)
            try:
                if "training.json" in files:
                    trained[home.resolve()] = _read_training(home)
                elif {"runs.csv", "jobs.csv"} <= {*files}:
                    compared[home.resolve()] = _read_comparison(home)
                else:
                    continue
            except ConfigurationError as error:
                damaged[home.resolve()] = str(error)
            found += 1
        if not found:
            raise ConfigurationError(
                f"{place!r} has no finished run; expected the files of `ringyard train` (training.json) or of"
                " `ringyard compare` (runs.csv and jobs.csv)"
            )
    if damaged and not (trained or compared):
        raise ConfigurationError("; ".join(damaged.values()))
    return list(trained.values()), list(compared.values()), list(damaged.values())


@contextmanager
def _name_file_in_errors(file: Path, command: str) -> Iterator[Path]:
    """Turn errors about a file of a run into a ConfigurationError that names the file and the command."""
    try:
        yield file
    except _NOT_A_RUN as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ConfigurationError(
            f"{file} is not a complete file of a run: {reason}; run the same `ringyard {command}` again, or"
            f" leave {file.parent} out"
        ) from error


def _read_table(
    file: Path, columns: Sequence[str], names: Sequence[str] = (), **options: Any
) -> pd.DataFrame:
    """Read a CSV. Raises KeyError if it lacks `columns`, ValueError if a row lacks a value of `names`."""
    if not file.read_bytes().endswith(b"\n"):
        raise ValueError("its last line is incomplete")
    frame = pd.read_csv(file, **options)
    for name in columns:
        frame[name]
    lacking = frame[[*names]].isna().any(axis=1)
    if lacking.any():
        raise ValueError(f"row {int(lacking.argmax()) + 1} lacks some of {', '.join(names)}")
    return frame


def _read_training(folder: Path) -> TrainingResult:
    with _name_file_in_errors(folder / "training.json", "train") as file:
        summary = read_plain(file)
        metric, baselines = summary["metric"], summary["baselines"]
        require("metric", metric, str)
        require("baselines", baselines, Mapping[str, float])
    with _name_file_in_errors(folder / "tensorboard" / "progress.csv", "train") as file:
        names = ["decisions", f"eval/{metric}"]
        curve = _read_table(file, names)[names].dropna().astype(float)
        curve.columns = pd.Index(["decisions", "value"])
        if curve.empty:
            raise ValueError("it has no evaluations")
    with _name_file_in_errors(folder / "config.yaml", "train") as file:
        flat: dict[Any, Any] = pd.json_normalize(dict(read_plain(file))).iloc[0].to_dict()
    return TrainingResult(folder, metric, curve, baselines, flat)


def _read_comparison(folder: Path) -> ComparisonResult:
    names, numbers = ["scheduler", "workload"], ["mean_jct", "bound_mean_jct", "blocking_rate"]
    with _name_file_in_errors(folder / "runs.csv", "compare") as file:
        runs = _read_table(file, [*names, *numbers], names, dtype={"scheduler": str})
        if runs.empty:
            raise ValueError("it has no runs")
        runs = runs.astype(dict.fromkeys(numbers, float))
    with _name_file_in_errors(folder / "jobs.csv", "compare") as file:
        kinds: Any = {"scheduler": str, "job_id": str}
        required = [*names, "outcome"]
        jobs = _read_table(file, [*required, "jct"], required, dtype=kinds, low_memory=False)
        if not set(runs["scheduler"]) <= set(jobs["scheduler"]):
            raise ValueError("it lacks jobs of some schedulers of runs.csv")
        jobs = jobs.astype({"jct": float})
    return ComparisonResult(folder, runs, jobs)


def short_names(folders: Sequence[Path]) -> list[str]:
    """Return a short name for each folder: its path without the part that all share."""
    paths = [folder.resolve() for folder in folders]
    common = Path(os.path.commonpath(paths)) if paths else Path()
    common = common.parent if common in paths else common
    return [str(path.relative_to(common)) for path in paths]
