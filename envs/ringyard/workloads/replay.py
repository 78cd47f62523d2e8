"""Replay of traces: windows of a recorded trace as episodes."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Fraction, NonNegative, Positive, PositiveInt, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError, WorkloadError, WorkloadWarning
from ringyard.jobs import HistoricalJobs, JobTable
from ringyard.workloads.workload import CostAssignment, scale_to_load


@checked("workload")
@dataclass(frozen=True)
class Replay:
    """A workload that replays windows of a recorded trace.

    The history of a window (`JobTable.past`) is all jobs of the trace that had ended when it starts.
    Assumption: they did not wait, because excerpts of traces do not state waiting times.

    With `warm`, jobs that ran when the window starts come first, at 0 s, with what they have run so far in
    `JobTable.elapsed_seconds`. They hold GPUs before the first decision and can be preempted like all jobs.
    Means of `Metrics` do not count them; rewards and `info` of environments do, from 0 s on. Assumptions: as
    above, they did not wait. With a `load`, all arrivals of the trace are stretched like the window's. If
    they ask for more GPUs than the cluster has, they are taken in a random order, as long as GPUs are left,
    and at most as many as ever ran at once in the trace. Those submitted at the same instant as the first job
    of the window are left out.

    Raises:
        WorkloadError: no job has at most `max_gpus` GPUs, or jobs without run times and `warm`.
        ConfigurationError: an argument out of its range, or no jobs in the `part`.

    Warns:
        WorkloadWarning: number of jobs larger than `max_gpus`.
    """

    jobs: JobTable  #: the whole trace
    models: CostAssignment  #: costs per iteration of jobs without a model of their own
    window_jobs: PositiveInt | None = None  #: largest number of jobs in a window. None: no limit.
    window_seconds: Positive | None = None  #: length of a window. None: no limit.
    start_seconds: NonNegative | None = None  #: start of the window. None: drawn for each sample.
    #: stretch the window's arrivals to this offered load. None: the recorded times.
    load: Positive | None = None
    #: leave out larger jobs. None: keep all. Jobs larger than the cluster are an error.
    max_gpus: PositiveInt | None = None
    #: added to every run time. Lucid's simulator ends jobs one tick (1 s) later.
    extra_seconds: NonNegative = 0.0
    #: windows lie between these shares of the jobs in order of submission, such as (0, 0.6) for training
    #: and (0.6, 1) for evaluation
    part: Annotated[tuple[Fraction, Fraction], "ascending"] = (0.0, 1.0)
    warm: bool = False  #: begin with the jobs that ran at that moment. False: with an empty cluster

    def __post_init__(self) -> None:
        self.jobs.check()
        if self.extra_seconds > 0:
            longer = self.jobs.duration_seconds + self.extra_seconds
            object.__setattr__(self, "jobs", replace(self.jobs, duration_seconds=longer))
        if self.max_gpus is not None:
            kept = self.jobs.num_gpus <= self.max_gpus
            if not kept.any():
                raise WorkloadError(f"no job of the trace asks for {self.max_gpus} GPUs or fewer")
            if not kept.all():
                message = f"left out {(~kept).sum():,} of {len(kept):,} jobs: they ask for more than"
                text = f"{message} {self.max_gpus} GPUs (workload.max_gpus)"
                warnings.warn(text, WorkloadWarning, stacklevel=4)
            object.__setattr__(self, "jobs", self.jobs.rows(kept))
        if self.warm and np.isnan(self.jobs.duration_seconds).any():
            raise WorkloadError(
                "workload.warm is true, and the trace has jobs without run times; expected a column of run"
                " times or ends (workload.reader.duration=NAME or workload.reader.end=NAME), or warm=false"
            )
        submit = self.jobs.submit_seconds[self._span]
        if not len(submit):
            raise ConfigurationError(
                f"workload.part is {list(self.part)}, which is none of {len(self.jobs)} jobs; expected more"
            )
        if self.start_seconds is not None and self.start_seconds > submit[-1]:
            raise ConfigurationError(
                f"workload.start_seconds is {self.start_seconds}; the last job arrives at {submit[-1]:.0f} s"
            )

    @cached_property
    def _ends(self) -> tuple[NDArray[np.float64], HistoricalJobs]:
        """([ended] ascending ends of jobs with known run times, in seconds, and these jobs)."""
        ends = self.jobs.submit_seconds + self.jobs.duration_seconds
        order = np.argsort(ends, kind="stable")[: np.isfinite(ends).sum()]
        jobs = self.jobs.rows(order)
        return ends[order], HistoricalJobs(jobs.num_gpus, jobs.duration_seconds, jobs.vc, jobs.user)

    @property
    def _span(self) -> slice:
        """Rows of the `part`."""
        rows = [round(share * len(self.jobs)) for share in self.part]
        return slice(rows[0], rows[1])

    @property
    def num_jobs(self) -> int:
        """Largest number of jobs of a window."""
        submit = self.jobs.submit_seconds[self._span]
        most = len(submit)
        if self.window_seconds is not None:
            ends = np.searchsorted(submit, submit + self.window_seconds, side="right")
            most = int((ends - np.arange(len(submit))).max())
        return min(most, self.window_jobs or most) + (self._most_running if self.warm else 0)

    @cached_property
    def _most_running(self) -> int:
        """Largest number of jobs of the trace that ran at once, with known run times."""
        begun = np.arange(1, len(self.jobs) + 1)
        return int((begun - np.searchsorted(self._ends[0], self.jobs.submit_seconds, side="right")).max())

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw a window for `cluster` from `rng`, its first job at 0 s."""
        submit, begin = self.jobs.submit_seconds[self._span], self._span.start
        first = 0
        if self.start_seconds is not None:
            first = int(np.searchsorted(submit, self.start_seconds))
        elif self.window_jobs is not None or self.window_seconds is not None:
            last = len(submit) - (self.window_jobs or 1)
            if self.window_seconds is not None:
                last = min(last, int(np.searchsorted(submit, submit[-1] - self.window_seconds)))
            first = int(rng.integers(0, max(last, 0) + 1))
        end = len(submit)
        if self.window_seconds is not None:
            end = int(np.searchsorted(submit, submit[first] + self.window_seconds, side="right"))
        if self.window_jobs is not None:
            end = min(end, first + self.window_jobs)
        first, end = begin + first, begin + end
        window = self.jobs.rows(slice(first, end))
        ends, past = self._ends
        ended = int(np.searchsorted(ends, window.submit_seconds[0], side="right"))
        columns = [getattr(past, field.name)[:ended] for field in fields(past)]
        window = replace(window, past=HistoricalJobs(*columns))
        window = window.shifted(window.submit_seconds - window.submit_seconds[0])
        seconds = window.submit_seconds[-1]
        if self.load is not None:
            window = scale_to_load(window, cluster, self.load)
        window = self._with_models(window, rng)
        if not self.warm:
            return window
        running = self._running(first, window.submit_seconds[-1] / seconds if seconds else 1.0, cluster, rng)
        both = [self._with_models(running, rng), window] if len(running) else [window]
        return replace(JobTable.concatenate(both), past=window.past)

    def _running(self, first: int, stretch: float, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Jobs that ran when row `first` was submitted, if gaps between submissions are `stretch` as long."""
        elapsed = (self.jobs.submit_seconds[first] - self.jobs.submit_seconds[:first]) * stretch
        rows = np.flatnonzero((elapsed > 0) & (elapsed < self.jobs.duration_seconds[:first]))
        gpus, free = self.jobs.num_gpus, cluster.num_gpus
        if gpus[rows].sum() > free or len(rows) > self._most_running:
            kept: list[int] = []
            for row in rng.permutation(rows).tolist():
                if gpus[row] <= free and len(kept) < self._most_running:
                    kept.append(row)
                    free -= gpus[row]
            rows = np.array(sorted(kept), np.int64)
        return replace(self.jobs.rows(rows).shifted(np.zeros(len(rows))), elapsed_seconds=elapsed[rows])

    def _with_models(self, jobs: JobTable, rng: np.random.Generator) -> JobTable:
        """Return the same `jobs` with models drawn from `rng`, except for those that have one."""
        own = jobs.model_ids
        assigned = self.models.assign(jobs, rng)
        if (own < 0).all():
            return assigned
        batch = np.where(own >= 0, jobs.batch_size, np.nan)
        return assigned.with_models(np.where(own >= 0, own, assigned.model_ids), batch)


def replay_file(
    path: str, reader: Callable[[str], JobTable], models: CostAssignment, **settings: Any
) -> Replay:
    """Return the `Replay` of the trace in a file.

    Args:
        path: the file.
        reader: function that reads it, such as a `ringyard.workloads.TraceReader`.
        models: costs per iteration of jobs without a model of their own.
        **settings: settings of `Replay`, such as `window_jobs`.

    Raises:
        WorkloadError: no such file, or the reader does not understand it.
    """
    return Replay(reader(path), models, **settings)
