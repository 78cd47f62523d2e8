"""The files of a comparison: what every run and every job was, and what an earlier comparison left behind."""

import shutil
from collections.abc import Collection
from pathlib import Path

from ringyard.config_folder import config_files
from ringyard_agents.evaluation.results_frame import Results, write_frame

__all__ = ["remove_stale", "remove_stale_worlds", "write_results"]

#: all that a comparison writes of a world, beside what it keeps of the runs
_OUTPUTS = (
    *("table.csv", "table.md", "runs.csv", "jobs.csv", "tenants.csv", "tensorboard"),
    *("jct_distribution.png", "jct_over_time.png", "losses.png", "queue_length.png", "utilisation.png"),
    *("performance_profile.png", "interquartile_means.png"),
)


def write_results(folder: Path, results: Results) -> list[str]:
    """runs.csv: every metric of every run; jobs.csv: every job that counts of every run; their names."""
    write_frame(folder / "runs.csv", results.runs)
    write_frame(folder / "jobs.csv", results.jobs)
    return ["runs.csv", "jobs.csv"]


def remove_stale(folder: Path, written: Collection[str]) -> None:
    """Remove what an earlier comparison of this name wrote and this one did not; other files stay.

    Args:
        folder: of a world.
        written: names of this comparison's files there.
    """
    for name in _OUTPUTS:
        if name in written:
            continue
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)


def remove_stale_worlds(folder: Path, written: Collection[str]) -> None:
    """The same of worlds that this comparison has no table of.

    Args:
        folder: of the comparison.
        written: names of its worlds; "": the one that was configured.
    """
    if "" not in written:
        remove_stale(folder, ())
    for name in config_files("experiment"):
        own = folder / name
        if name in written or not own.is_dir() or (own / "run.json").exists():  # a run of that name
            continue
        remove_stale(own, ())
        if not any(own.iterdir()):
            own.rmdir()
