"""Results of a run: times of each job (`JobTimes`), and their summary (`Metrics`)."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Fraction, require
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.state.arrays import State
from ringyard.state.records import Integral, JobOutcome, JobStatus, Loss

#: causes of lost time beside queueing: `lost_to_...` of `JobTimes` and `Metrics`
_SLOWED = ("contention", "spread", "interference", "input", "stragglers", "gpu_types", "size")
LOSS_NAMES = ("restarts", "failures", *_SLOWED)

#: (first, last) fractions of the jobs in order of arrival, between which jobs are measured
Window = Annotated[tuple[Fraction, Fraction], "strictly ascending"]


@dataclass(frozen=True)
class JobTimes:
    """[finished jobs] columns, in the order of the job table.

    `jct` is the sum of `queueing_seconds`, the `lost_to_...` columns and `work_seconds`, which are NaN unless
    the simulator counts losses (`ringyard.sim.engine.slowdown_accounting`). A loss below 0 is a gain.
    """

    rows: NDArray[np.int64]  #: rows of the job table
    job_id: NDArray[np.int64] | NDArray[np.str_]  #: the user's job ids
    vc: NDArray[np.str_]  #: virtual cluster, "" if none is named
    user: NDArray[np.str_]  #: user, "" if none is named
    num_gpus: NDArray[np.int64]  #: GPUs that the job asked for
    submit_seconds: NDArray[np.float64]  #: submission time
    start_seconds: NDArray[np.float64]  #: first start
    end_seconds: NDArray[np.float64]  #: completion
    jct: NDArray[np.float64]  #: job completion time, end minus submission
    queueing_seconds: NDArray[np.float64]  #: time in the system without GPUs
    slowdown: NDArray[np.float64]  #: jct / isolated run time
    #: finish-time fairness rho (Themis): jct / (isolated run time x mean over the job's life of max(1,
    #: GPUs demanded / GPUs of the cluster)). Above 1: worse than a fair share.
    fairness: NDArray[np.float64]
    gpu_seconds: NDArray[np.float64]  #: GPU seconds that the job held
    gpu_activity: NDArray[np.float64]  #: share of these in which its GPUs computed, NaN without any
    num_preemptions: NDArray[np.int64]  #: number of preemptions
    num_resizes: NDArray[np.int64]  #: changes of GPUs, batch, cores or parameter servers while it ran
    num_failures: NDArray[np.int64]  #: number of server failures that hit the job
    #: `JobOutcome`. Failed and cancelled jobs count like completed ones. Blocked jobs count only in the
    #: blocking rate.
    outcome: NDArray[np.int64]
    lost_to_restarts: NDArray[np.float64]  #: seconds without progress after starts and resizes
    lost_to_failures: NDArray[np.float64]  #: seconds of work repeated after server failures
    lost_to_contention: NDArray[np.float64]  #: because other rings used its links
    lost_to_spread: NDArray[np.float64]  #: because it was not on the fewest servers, in one rack
    lost_to_interference: NDArray[np.float64]  #: because of neighbours on its GPUs
    lost_to_input: NDArray[np.float64]  #: waiting for its input pipeline, see docs/metrics.md
    lost_to_stragglers: NDArray[np.float64]  #: because its slowest worker was slower than the others
    lost_to_gpu_types: NDArray[np.float64]  #: because it was not on its fastest GPU type of the cluster
    lost_to_size: NDArray[np.float64]  #: because it had another size than it asked for, see docs/metrics.md
    #: run time alone, as it asked, on the fewest servers, never waiting for input. At most `jct /
    #: slowdown`, which includes the wait for the input cores that it asked for.
    work_seconds: NDArray[np.float64]

    def without_blocked(self) -> Self:
        """Return the rows of the jobs that were not blocked."""
        kept = self.outcome != JobOutcome.BLOCKED
        return replace(self, **{field.name: getattr(self, field.name)[kept] for field in fields(self)})


@dataclass(frozen=True)
class Metrics:
    """Summary of a run. Means and percentiles are over finished jobs that were not blocked.

    Times are in seconds.
    """

    num_finished: int  #: jobs that ended with any outcome, among those measured (`Simulator.metrics`)
    mean_jct: float  #: mean job completion time. `median_jct`, `p95_jct` and `p99_jct` are its percentiles.
    median_jct: float
    p95_jct: float
    p99_jct: float
    #: last completion minus first submission. Like utilisation, fragmentation and preemptions, it covers the
    #: whole run.
    makespan: float
    mean_queueing: float  #: mean seconds in the system without GPUs
    mean_slowdown: float  #: mean of completion time / isolated run time
    utilisation: float  #: busy GPU seconds / (GPUs x makespan), in [0, 1]
    fragmentation: float  #: time mean of free GPUs on partly used servers / GPUs, in [0, 1]
    preemptions: int  #: number of preemptions
    mean_fairness: float  #: mean finish-time fairness rho (`JobTimes.fairness`)
    worst_fairness: float  #: largest finish-time fairness rho
    #: fraction of the GPU time held by jobs in which their GPUs computed, in [0, 1]: the GPU utilisation of
    #: monitors, averaged over busy GPUs. Waiting for the network, for input or for a restart is idle. A job
    #: on a shared GPU computes as long as it would alone.
    gpu_activity: float
    #: fraction of jobs that were rejected, or left because their acceptable completion time could not be met
    blocking_rate: float
    #: share of the guaranteed jobs (`JobTable.deadline_seconds`) that ended late, or blocked. None: there are
    #: none.
    sla_violations: float | None = None
    #: mean seconds of each job (`JobTimes`). This field and those below are None unless the simulator counts
    #: losses. `mean_jct` is the sum of `mean_queueing`, the `lost_to_...` fields and `mean_work`.
    lost_to_restarts: float | None = None
    lost_to_failures: float | None = None
    lost_to_contention: float | None = None
    lost_to_spread: float | None = None
    lost_to_interference: float | None = None
    lost_to_input: float | None = None
    lost_to_stragglers: float | None = None
    lost_to_gpu_types: float | None = None
    lost_to_size: float | None = None
    mean_work: float | None = None  #: mean seconds of work
    #: fraction of the GPU time (GPUs x makespan) in which at least one kernel ran, in [0, 1]. A shared GPU
    #: counts once. docs/metrics.md ("How busy GPUs are") says what of it is measured, and what derived.
    kernel_utilisation: float | None = None

    def as_dict(self) -> dict[str, float]:
        """Return {name: value} of what was measured, in the order above."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def measured_rows(table: JobTable, measured: Window) -> slice:
    """Return the rows of a table between (first, last) fractions of the arrivals; none are an error.

    Jobs that ran before time 0 (`JobTable.elapsed_seconds`) do not count, nor do fractions include them.
    """
    require("measured_jobs", measured, Window)
    num_jobs = len(table) - table.num_warm
    first, last = (table.num_warm + round(share * num_jobs) for share in measured)
    if first == last and num_jobs:
        raise ConfigurationError(
            f"measured_jobs is {list(measured)}, which leaves none of {num_jobs} jobs"
            f"; expected fractions at least {1 / num_jobs:.2g} apart"
        )
    return slice(first, last)


def _loss_columns(state: State, b: int, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Return the columns of `JobTimes` that say where the time of the jobs `rows` went."""
    if state.losses.shape[1] == 0:
        columns = [*(f"lost_to_{name}" for name in LOSS_NAMES), "work_seconds"]
        return dict.fromkeys(columns, np.full(len(rows), np.nan))
    jobs, losses = state.jobs[b, rows], state.losses[b, rows]
    done = jobs["total_iterations"] - jobs["remaining_iterations"]
    lost = {f"lost_to_{name}": losses[:, Loss[name.upper()]] for name in LOSS_NAMES}
    return lost | {"work_seconds": done * losses[:, Loss.WORK_RATE]}


def job_times(state: State, b: int, table: JobTable, measured: Window = (0.0, 1.0)) -> JobTimes:
    """Return the times of the jobs of `table`, simulated as cluster `b` of `state`, that finished.

    `measured` and errors are those of `measured_rows`.
    """
    jobs = state.jobs[b, : len(table)]
    counted = measured_rows(table, measured)
    rows = counted.start + np.flatnonzero(jobs["status"][counted] == JobStatus.DONE)

    def ended(name: str) -> NDArray[Any]:
        return jobs[name][rows]

    jct = ended("end_seconds") - ended("submit_seconds")
    isolated = ended("isolated_seconds")
    held = ended("attained_service").astype(np.float64)
    computed = np.minimum(ended("computed_seconds"), held)
    crowding = np.maximum(ended("fair_share_integral") / np.maximum(jct, 1e-300), 1.0)
    return JobTimes(
        rows=rows,
        job_id=table.job_id[rows],
        vc=table.vc[rows],
        user=table.user[rows],
        num_gpus=table.num_gpus[rows],
        submit_seconds=ended("submit_seconds"),
        start_seconds=ended("first_start_seconds"),
        end_seconds=ended("end_seconds"),
        jct=jct,
        queueing_seconds=np.maximum(jct - ended("run_seconds"), 0.0),
        slowdown=jct / isolated,
        fairness=jct / (isolated * crowding),
        gpu_seconds=held,
        num_preemptions=ended("num_preemptions").astype(np.int64),
        num_resizes=ended("num_resizes").astype(np.int64),
        num_failures=ended("num_failures").astype(np.int64),
        outcome=ended("outcome").astype(np.int64),
        gpu_activity=np.divide(computed, held, out=np.full(len(rows), np.nan), where=held > 0),
        **_loss_columns(state, b, rows),
    )


def measure(state: State, b: int, table: JobTable, measured: Window = (0.0, 1.0)) -> Metrics:
    """Return the metrics of cluster `b` of `state` with job table `table`, NaN where nothing is to average.

    `measured` and errors are those of `measured_rows`.
    """
    times = job_times(state, b, table, measured)
    served = times.without_blocked()
    whole = _whole_run(state, b, table)
    losses, deadlines = {}, table.deadline_seconds[times.rows]
    if (promised := np.isfinite(deadlines)).any():
        late = (times.jct > deadlines) | (times.outcome == JobOutcome.BLOCKED)
        losses["sla_violations"] = _mean(late[promised])
    if state.losses.shape[1]:
        losses |= {f"lost_to_{name}": _mean(getattr(served, f"lost_to_{name}")) for name in LOSS_NAMES}
        losses |= {"mean_work": _mean(served.work_seconds), "kernel_utilisation": whole["kernels"]}
    return Metrics(
        num_finished=len(times.rows),
        mean_jct=_mean(served.jct),
        median_jct=_percentile(served.jct, 50),
        p95_jct=_percentile(served.jct, 95),
        p99_jct=_percentile(served.jct, 99),
        makespan=whole["makespan"],
        mean_queueing=_mean(served.queueing_seconds),
        mean_slowdown=_mean(served.slowdown),
        utilisation=whole["utilisation"],
        fragmentation=whole["fragmentation"],
        preemptions=int(state.clusters["num_preemptions"][b]),
        mean_fairness=_mean(served.fairness),
        worst_fairness=_percentile(served.fairness, 100),
        gpu_activity=_weighted(times.gpu_activity, times.gpu_seconds),
        blocking_rate=1.0 - len(served.rows) / len(times.rows) if len(times.rows) else float("nan"),
        **losses,
    )


def _whole_run(state: State, b: int, table: JobTable) -> dict[str, float]:
    """Return the metrics of the cluster since the first submission, NaN if no job has finished."""
    jobs = state.jobs[b, : len(table)]
    ends = jobs["end_seconds"][jobs["status"] == JobStatus.DONE]
    if not len(ends):
        return dict.fromkeys(("makespan", "utilisation", "fragmentation", "kernels"), float("nan"))
    cluster, integrals = state.clusters[b], state.integrals[b]
    begin = float(table.submit_seconds[0])
    seconds = float(cluster["now"]) - begin
    # no time passes if all jobs are blocked at once
    capacity = float(cluster["num_gpus"]) * seconds if seconds else float("nan")
    totals = {
        "utilisation": integrals[Integral.BUSY_GPUS],
        "fragmentation": integrals[Integral.FRAGMENTED_GPUS],
    }
    totals["kernels"] = cluster["kernel_seconds"]
    shares = {name: float(total) / capacity for name, total in totals.items()}
    return {"makespan": float(ends.max()) - begin, **shares}


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _percentile(values: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float("nan")


def _weighted(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Return the weighted mean of the values that are not NaN. NaN if their weights are 0."""
    known = ~np.isnan(values)
    total = float(weights[known].sum())
    return float((values * weights)[known].sum()) / total if total > 0 else float("nan")


def timeline(state: State, b: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return [bins] ends in seconds, mean waiting jobs and mean utilisation of cluster `b` of `state`."""
    width = 2.0 ** int(state.clusters["timeline_bin_log2"][b])
    now = float(state.clusters["now"][b])
    bins = min(int(np.ceil(now / width)), state.timeline.shape[1])
    ends = np.minimum(np.arange(1, bins + 1) * width, now)
    widths = np.diff(ends, prepend=0.0)
    means = state.timeline[b, :bins] / widths[:, None]
    return ends, means[:, 0], means[:, 1] / float(state.clusters["num_gpus"][b])
