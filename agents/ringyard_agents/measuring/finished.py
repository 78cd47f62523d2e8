"""Finished runs, found in folders: what a comparison and a training run have left there."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ringyard.errors import ConfigurationError

__all__ = ["Compared", "Trained", "find_runs", "names_of"]


@dataclass(frozen=True)
class Trained:
    """A training run.

    Attributes:
        folder: of the run.
        metric: field of `Metrics` that evaluations measure.
        curve: columns decisions and value, a row an evaluation.
        baselines: {scheduler: the metric on the same workloads}.
        settings: {setting with dots: value} of its config.
    """

    folder: Path
    metric: str
    curve: pd.DataFrame
    baselines: Mapping[str, float]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """A table of a comparison.

    Attributes:
        folder: that has it.
        runs: as `ringyard_agents.measuring.frames.runs_frame`.
        jobs: as `ringyard_agents.measuring.frames.jobs_frame`.
    """

    folder: Path
    runs: pd.DataFrame
    jobs: pd.DataFrame


def find_runs(places: Iterable[str]) -> tuple[list[Trained], list[Compared]]:
    """All training runs and comparisons in some folders, at any depth.

    Args:
        places: run folders, or folders around them, such as a sweep's.

    Raises:
        ConfigurationError: no such folder, none of them in it, or files that are not what a run leaves.
    """
    trained: dict[Path, Trained] = {}
    compared: dict[Path, Compared] = {}
    for place in places:
        folder = Path(place).expanduser()
        if not folder.is_dir():
            raise ConfigurationError(f"there is no folder {place!r}; expected a run, or a folder with runs")
        found = 0
        for home in _folders(folder):
            if (home / "training.json").is_file():
                trained[home.resolve()] = _read(home, _trained)
            elif all((home / name).is_file() for name in ("runs.csv", "jobs.csv")):
                compared[home.resolve()] = _read(home, _compared)
            else:
                continue
            found += 1
        if not found:
            raise ConfigurationError(
                f"{place!r} has no finished run; expected what `ringyard train` (training.json) or `ringyard"
                " compare` (runs.csv and jobs.csv) leaves"
            )
    return list(trained.values()), list(compared.values())


def _folders(folder: Path) -> Iterator[Path]:
    yield folder
    for inside in sorted(folder.iterdir()):
        if inside.is_dir() and not inside.is_symlink() and not inside.name.startswith("."):
            yield from _folders(inside)


def _read(folder: Path, read: Any) -> Any:
    try:
        return read(folder)
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{folder} is not what a run leaves: {error}") from error


def _trained(folder: Path) -> Trained:
    summary = json.loads((folder / "training.json").read_text())
    progress = pd.read_csv(folder / "tensorboard" / "progress.csv")
    curve = progress[["decisions", f"eval/{summary['metric']}"]].dropna()
    curve.columns = pd.Index(["decisions", "value"])
    if curve.empty:
        raise ValueError("tensorboard/progress.csv has no evaluation")
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    flat: dict[Any, Any] = pd.json_normalize(dict(settings)).iloc[0].to_dict()
    return Trained(folder, summary["metric"], curve.astype(float), dict(summary["baselines"]), flat)


def _compared(folder: Path) -> Compared:
    jobs = pd.read_csv(folder / "jobs.csv", dtype={"scheduler": str, "job_id": str}, low_memory=False)
    runs = pd.read_csv(folder / "runs.csv", dtype={"scheduler": str})
    for frame, names in ((runs, ("mean_jct", "bound_mean_jct", "blocking_rate")), (jobs, ("jct", "outcome"))):
        frame[["scheduler", "workload", *names]]  # KeyError: not ours
    if runs.empty:
        raise ValueError("runs.csv has no runs")
    runs = runs.astype(dict.fromkeys(("mean_jct", "bound_mean_jct", "blocking_rate"), float))
    jobs = jobs.astype({"jct": float})
    return Compared(folder, runs, jobs)


def names_of(folders: Sequence[Path]) -> list[str]:
    """A short name for each folder: the parts in which they differ."""
    parts = [folder.resolve().parts for folder in folders]
    if len(parts) < 2:
        return [one[-1] for one in parts]
    same = next(
        (i for i, each in enumerate(zip(*parts, strict=False)) if len(set(each)) > 1),
        min(map(len, parts)) - 1,
    )
    return ["/".join(one[same:]) or one[-1] for one in parts]
