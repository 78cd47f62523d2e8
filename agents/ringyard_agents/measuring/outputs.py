"""The files of a comparison: what every run and every job was, and what an earlier comparison left behind."""

import csv
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from ringyard.config_folder import config_files
from ringyard.sim.metrics import LOSSES
from ringyard.state.records import JobOutcome
from ringyard_agents.files import replaced
from ringyard_agents.measuring.evaluate import RunResult

__all__ = ["outcome_names", "remove_stale", "remove_stale_worlds", "write_csv"]

#: all that a comparison writes of a world, beside what it keeps of the runs
_OUTPUTS = (
    *("table.csv", "table.md", "runs.csv", "jobs.csv", "tenants.csv", "tensorboard"),
    *("jct_distribution.png", "jct_over_time.png", "losses.png", "queue_length.png", "utilisation.png"),
)


def outcome_names(outcomes: Sequence[int]) -> list[str]:
    """How each job ended, as files say it: completed, failed, cancelled or blocked."""
    return [JobOutcome(one).name.lower() for one in outcomes]


def write_csv(folder: Path, results: Sequence[RunResult]) -> list[str]:
    """runs.csv: every metric of every run; jobs.csv: every job that counts of every run; their names."""
    lost = [f"lost_to_{name}" for name in LOSSES]
    with replaced(folder / "runs.csv") as partial, partial.open("w", newline="") as stream:
        metrics = list(results[0].metrics.as_dict())
        writer = csv.writer(stream)
        writer.writerow(["scheduler", "workload", "information", *metrics, "bound_mean_jct", "wall_seconds"])
        for r in results:
            values = [repr(value) for value in r.metrics.as_dict().values()]
            bound = repr(r.bounds.mean_jct)
            writer.writerow([r.label, r.workload, r.information, *values, bound, f"{r.wall_seconds:.4f}"])
    with replaced(folder / "jobs.csv") as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream)
        times = ("submit_time", "gpus", "start_time", "end_time", "jct", "queueing", *lost, "work_seconds")
        writer.writerow(["scheduler", "workload", "job_id", *times, "outcome"])
        for r in results:
            t = r.times
            columns = (t.job_id, t.submit_seconds, t.num_gpus, t.start_seconds, t.end_seconds, t.jct)
            columns += (t.queueing_seconds, *(getattr(t, name) for name in lost), t.work_seconds)
            lists = [*(column.tolist() for column in columns), outcome_names(t.outcome.tolist())]
            for job in zip(*lists, strict=True):
                writer.writerow([r.label, r.workload, *job])
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
