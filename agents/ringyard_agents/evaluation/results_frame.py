"""Results as tidy tables: one row per run, per job and per time bin."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pandas as pd

from ringyard.sim.metrics import LOSS_NAMES, JobTimes
from ringyard.state.records import JobOutcome
from ringyard_agents.evaluation.evaluate import RunResult
from ringyard_agents.runs.atomic_write import atomic_write

#: {column of `Results.jobs`: field of `JobTimes`}, between the names of the job and its losses
_JOB_COLUMNS = {
    "submit_time": "submit_seconds",
    "gpus": "num_gpus",
    "start_time": "start_seconds",
    "end_time": "end_seconds",
    "jct": "jct",
    "queueing": "queueing_seconds",
    "slowdown": "slowdown",
    "rho": "fairness",
    "gpu_seconds": "gpu_seconds",
    "preemptions": "num_preemptions",
}


def outcome_names(outcomes: Sequence[int]) -> list[str]:
    """Return the outcome of each job in words: completed, failed, cancelled or blocked."""
    return [JobOutcome(one).name.lower() for one in outcomes]


def write_frame(file: Path, frame: pd.DataFrame) -> None:
    """Write a `frame` as a CSV `file`. Numbers read back exactly, and missing values are empty cells."""
    with atomic_write(file) as partial:
        frame.to_csv(partial, index=False)


@dataclass(frozen=True)
class Results:
    """Results of schedulers on workloads, as `evaluation` hands them to `report`."""

    #: one row per scheduler and workload (`runs.csv`): its `scheduler` (label), `workload` (number), `seed`,
    #: `observability` (what the scheduler may see), `capabilities` (what it may do), `capability_group`
    #: (`Capabilities.group`, in which tables rank it), `published` (False for agents and for Ringyard's own
    #: schedulers), each field of `ringyard.sim.metrics.Metrics` (times in seconds), `bound_mean_jct` (lower
    #: bound on the mean JCT, seconds), `wall_seconds` (of the run without set-up) and `decisions` (number of
    #: decision points)
    runs: pd.DataFrame
    #: one row per measured job of each run (`jobs.csv`): `scheduler`, `workload`, the job's names
    #: (`job_id`, `vc`, `user`), its times and losses in seconds, and its `outcome` (completed, failed,
    #: cancelled or blocked)
    jobs: pd.DataFrame
    #: one row per time bin of each run: `scheduler`, `workload`, `end_seconds` of the bin, mean number of
    #: `waiting` jobs and mean `utilisation` in it
    timelines: pd.DataFrame

    @classmethod
    def of(cls, results: Sequence[RunResult]) -> Self:
        """Make the tables of one or more runs."""
        jobs, bins = [], []
        for one in results:
            run = {"scheduler": one.label, "workload": one.workload}
            jobs.append(jobs_frame(one.label, one.workload, one.times))
            ends, waiting, utilisation = one.timeline
            curves = {"end_seconds": ends, "waiting": waiting, "utilisation": utilisation}
            bins.append(pd.DataFrame(run | curves))
        tables = (pd.concat(frames, ignore_index=True) for frames in (jobs, bins))
        return cls(runs_frame(results), *tables)

    def only(self, labels: Collection[str]) -> Self:
        """Select the rows of the schedulers with some labels."""
        frames = (self.runs, self.jobs, self.timelines)
        return type(self)(*(frame[frame["scheduler"].isin(labels)] for frame in frames))


def runs_frame(results: Sequence[RunResult]) -> pd.DataFrame:
    """Make the table `Results.runs` of one or more runs."""
    return pd.DataFrame(
        {
            "scheduler": one.label,
            "workload": one.workload,
            "seed": one.seed,
            "observability": one.observability,
            "capabilities": str(one.capabilities),
            "capability_group": one.capabilities.group,
            "published": one.published,
            **one.metrics.as_dict(),
            "bound_mean_jct": one.bounds.mean_jct,
            "wall_seconds": one.wall_seconds,
            "decisions": one.num_decisions,
        }
        for one in results
    )


def jobs_frame(label: str, workload: int, times: JobTimes) -> pd.DataFrame:
    """Make the table `Results.jobs` of one run out of the times of its measured jobs."""
    columns = {name: getattr(times, field) for name, field in _JOB_COLUMNS.items()}
    columns |= {f"lost_to_{name}": getattr(times, f"lost_to_{name}") for name in LOSS_NAMES}
    first = {"scheduler": label, "workload": workload, "job_id": times.job_id}
    first |= {"vc": times.vc, "user": times.user}
    last = {"work_seconds": times.work_seconds, "outcome": outcome_names(times.outcome.tolist())}
    return pd.DataFrame({**first, **columns, **last})
