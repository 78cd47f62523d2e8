"""Finished runs, found in folders: what a comparison and a training run have left there."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ringyard.checks import require
from ringyard.errors import ConfigurationError

_NOT_A_RUN = (OSError, ValueError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError)


@dataclass(frozen=True)
class TrainingResult:
    """A training run.

    Attributes:
        folder: of the run.
        metric: field of `Metrics` that evaluations measure.
        curve: [evaluations] columns decisions and value.
        baselines: {scheduler: metric on the same workloads}.
        settings: {setting with dots: value} of the config.
    """

    folder: Path
    metric: str
    curve: pd.DataFrame
    baselines: Mapping[str, float]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class ComparisonResult:
    """A comparison: its folder, and both frames of `ringyard_agents.evaluation.results_frame.Results`."""

    folder: Path
    runs: pd.DataFrame
    jobs: pd.DataFrame


def find_runs(places: Iterable[str]) -> tuple[list[TrainingResult], list[ComparisonResult], list[str]]:
    """All training runs and comparisons in some folders, at any depth, and what is wrong with others.

    Raises:
        ConfigurationError: no such folder, none of them in it, or none but damaged ones.
    """
    trained: dict[Path, TrainingResult] = {}
    compared: dict[Path, ComparisonResult] = {}
    damaged: dict[Path, str] = {}
    for place in places:
        if not Path(place).expanduser().is_dir():
            raise ConfigurationError(f"there is no folder {place!r}; expected a run, or a folder with runs")
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
                f"{place!r} has no finished run; expected what `ringyard train` (training.json) or `ringyard"
                " compare` (runs.csv and jobs.csv) leaves"
            )
    if damaged and not (trained or compared):
        raise ConfigurationError("; ".join(damaged.values()))
    return list(trained.values()), list(compared.values()), list(damaged.values())


@contextmanager
def _name_file_in_errors(file: Path, left_by: str) -> Iterator[Path]:
    """Turn every error about a file of a run into a ConfigurationError that names it."""
    try:
        yield file
    except (*_NOT_A_RUN, yaml.YAMLError, ConfigurationError) as error:
        said = f"it has no {error}" if isinstance(error, KeyError) else error
        raise ConfigurationError(
            f"{file} is not what a run leaves: {said}; run the same `ringyard {left_by}` again, or leave"
            f" {file.parent} out"
        ) from error


def _read_table(file: Path, columns: Sequence[str], names: Sequence[str] = (), **how: Any) -> pd.DataFrame:
    """A CSV that has some columns, some of them in every row; raises KeyError or ValueError."""
    if not file.read_bytes().endswith(b"\n"):
        raise ValueError("its last line is not whole")
    frame = pd.read_csv(file, **how)
    for name in columns:
        frame[name]
    lacking = frame[[*names]].isna().any(axis=1)
    if lacking.any():
        raise ValueError(f"row {int(lacking.argmax()) + 1} has not all of {', '.join(names)}")
    return frame


def _read_training(folder: Path) -> TrainingResult:
    with _name_file_in_errors(folder / "training.json", "train") as file:
        summary = json.loads(file.read_text())
        metric, baselines = summary["metric"], summary["baselines"]
        require("metric", metric, str)
        require("baselines", baselines, Mapping[str, float])
    with _name_file_in_errors(folder / "tensorboard" / "progress.csv", "train") as file:
        names = ["decisions", f"eval/{metric}"]
        curve = _read_table(file, names)[names].dropna().astype(float)
        curve.columns = pd.Index(["decisions", "value"])
        if curve.empty:
            raise ValueError("it has no evaluation")
    with _name_file_in_errors(folder / "config.yaml", "train") as file:
        settings = yaml.safe_load(file.read_text())
        flat: dict[Any, Any] = pd.json_normalize(dict(settings)).iloc[0].to_dict()
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
        said = [*names, "outcome"]
        jobs = _read_table(file, [*said, "jct"], said, dtype=kinds, low_memory=False)
        if not set(runs["scheduler"]) <= set(jobs["scheduler"]):
            raise ValueError("it has not the jobs of every scheduler of runs.csv")
        jobs = jobs.astype({"jct": float})
    return ComparisonResult(folder, runs, jobs)


def short_names(folders: Sequence[Path]) -> list[str]:
    """A short name for each folder: the parts in which they differ."""
    paths = [folder.resolve() for folder in folders]
    common = Path(os.path.commonpath(paths)) if paths else Path()
    common = common.parent if common in paths else common
    return [str(path.relative_to(common)) for path in paths]
