"""What a run is judged by: per-job times and their summary."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ringyard.compiled import Records1
from ringyard.jobs import JobTable
from ringyard.state.arrays import State
from ringyard.state.records import Integral, Job, JobKind, JobOutcome, JobStatus

__all__ = ["JobTimes", "Metrics", "TenantMetrics", "by_tenant", "job_times", "measure", "timeline"]


@dataclass(frozen=True)
class JobTimes:
    """[finished jobs] columns, in row order.

    Attributes:
        rows: position in the job table.
        job_id: the user's numbers or texts.
        vc: virtual cluster of each; "": none named.
        user: who submitted it; "": nobody named.
        submit_seconds: arrival.
        start_seconds: first start.
        end_seconds: completion.
        jct: job completion time, end minus submit.
        queueing_seconds: time in the system without GPUs.
        slowdown: jct over the isolated run time.
        fairness: finish-time fairness (Themis' rho): jct over (isolated run time x mean of max(1, GPUs
            demanded / GPUs of the cluster) over the job's life); above 1: worse than a fair share.
        gpu_seconds: GPU seconds that it held.
        gpu_activity: share of them in which its GPUs computed (see `Metrics`), NaN for a job without any.
        num_preemptions: times it was stopped.
        num_resizes: times its GPUs, batch or cores changed while it ran.
        num_failures: times a server failed under it.
        outcome: `JobOutcome`; jobs that failed or were cancelled count like the others, blocked ones only in
            the blocking rate.
    """

    rows: NDArray[np.int64]
    job_id: NDArray[np.int64] | NDArray[np.str_]
    vc: NDArray[np.str_]
    user: NDArray[np.str_]
    num_gpus: NDArray[np.int64]
    submit_seconds: NDArray[np.float64]
    start_seconds: NDArray[np.float64]
    end_seconds: NDArray[np.float64]
    jct: NDArray[np.float64]
    queueing_seconds: NDArray[np.float64]
    slowdown: NDArray[np.float64]
    fairness: NDArray[np.float64]
    gpu_seconds: NDArray[np.float64]
    gpu_activity: NDArray[np.float64]
    num_preemptions: NDArray[np.int64]
    num_resizes: NDArray[np.int64]
    num_failures: NDArray[np.int64]
    outcome: NDArray[np.int64]

    def served(self) -> Self:
        """The jobs that were not blocked."""
        kept = self.outcome != JobOutcome.BLOCKED
        return replace(self, **{field.name: getattr(self, field.name)[kept] for field in fields(self)})


@dataclass(frozen=True)
class Metrics:
    """Summary of a run; times in seconds, means and percentiles over the finished jobs not blocked.

    Attributes:
        num_finished: jobs that ended, whatever their outcome.
        mean_jct: mean job completion time, with median, p95 and p99 beside it.
        makespan: last completion minus first submission.
        mean_queueing: mean seconds in the system without GPUs.
        mean_slowdown: mean of completion time over isolated run time.
        utilisation: busy GPU seconds / (GPUs x makespan), in [0, 1].
        fragmentation: time mean of free GPUs on partly used servers / GPUs, in [0, 1].
        preemptions: stops of running jobs.
        worst_fairness: largest finish-time fairness rho, with its mean beside it.
        gpu_activity: share of the GPU time held by jobs in which their GPUs computed, in [0, 1]: what a
            monitor shows as GPU utilisation, averaged over busy GPUs (waiting for the network or for input
            is idle; of GPU jobs that were not withdrawn, reference GPU's speed).
        blocking_rate: jobs rejected, or gone because their acceptable completion time could not be kept, of
            all.
    """

    num_finished: int
    mean_jct: float
    median_jct: float
    p95_jct: float
    p99_jct: float
    makespan: float
    mean_queueing: float
    mean_slowdown: float
    utilisation: float
    fragmentation: float
    preemptions: int
    mean_fairness: float
    worst_fairness: float
    gpu_activity: float
    blocking_rate: float

    def as_dict(self) -> dict[str, float]:
        """Name -> value, in the order above."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def job_times(state: State, b: int, table: JobTable) -> JobTimes:
    """Per-job times of the jobs that finished in cluster b."""
    jobs = state.jobs[b, : len(table)]
    rows = np.flatnonzero(jobs["status"] == JobStatus.DONE)

    def ended(name: str) -> NDArray[Any]:
        column: NDArray[Any] = jobs[name][rows]
        return column

    jct = ended("end_seconds") - ended("submit_seconds")
    isolated = ended("isolated_seconds")
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
        gpu_seconds=ended("attained_service").astype(np.float64),
        gpu_activity=_computed(jobs[rows]) / np.maximum(ended("attained_service"), 1e-300),
        num_preemptions=ended("num_preemptions").astype(np.int64),
        num_resizes=ended("num_resizes").astype(np.int64),
        num_failures=ended("num_failures").astype(np.int64),
        outcome=ended("outcome").astype(np.int64),
    )


@dataclass(frozen=True)
class TenantMetrics:
    """What a run was for one tenant; means over its jobs that were not blocked, NaN where there are none.

    Attributes:
        tenant: name of a virtual cluster or user; "": the jobs that name none.
        jobs: that ended, whatever their outcome.
        mean_jct: seconds.
        mean_queueing: seconds in the system without GPUs.
        mean_slowdown: completion time over isolated run time.
        gpu_seconds: that its jobs held, in all.
    """

    tenant: str
    jobs: int
    mean_jct: float
    mean_queueing: float
    mean_slowdown: float
    gpu_seconds: float


def by_tenant(times: JobTimes, kind: Literal["vc", "user"]) -> list[TenantMetrics]:
    """A tenant each, by GPU seconds, most first; a run without names has one, unnamed.

    Args:
        times: of finished jobs.
        kind: tenants are virtual clusters, or users.
    """
    names, which = np.unique(getattr(times, kind), return_inverse=True)
    served = times.outcome != JobOutcome.BLOCKED
    found = []
    for position, name in enumerate(names.tolist()):
        own = which == position
        some = own & served
        found.append(
            TenantMetrics(
                tenant=name,
                jobs=int(own.sum()),
                mean_jct=_mean(times.jct[some]),
                mean_queueing=_mean(times.queueing_seconds[some]),
                mean_slowdown=_mean(times.slowdown[some]),
                gpu_seconds=float(times.gpu_seconds[own].sum()),
            )
        )
    return sorted(found, key=lambda one: -one.gpu_seconds)


def measure(state: State, b: int, table: JobTable) -> Metrics:
    """Metrics of the jobs that finished in cluster b; NaN where there is nothing to average."""
    times = job_times(state, b, table)
    cluster = state.clusters[b]
    served = times.served()
    if len(times.rows) == 0:
        nan = float("nan")
        return Metrics(0, nan, nan, nan, nan, nan, nan, nan, nan, nan, 0, nan, nan, nan, nan)
    begin = float(table.submit_seconds[0])
    makespan = float(times.end_seconds.max()) - begin
    elapsed = float(cluster["now"]) - begin
    capacity = float(cluster["num_gpus"])
    integrals = state.integrals[b]
    return Metrics(
        num_finished=len(times.rows),
        mean_jct=_mean(served.jct),
        median_jct=_percentile(served.jct, 50),
        p95_jct=_percentile(served.jct, 95),
        p99_jct=_percentile(served.jct, 99),
        makespan=makespan,
        mean_queueing=_mean(served.queueing_seconds),
        mean_slowdown=_mean(served.slowdown),
        utilisation=float(integrals[Integral.BUSY_GPUS]) / (capacity * elapsed),
        fragmentation=float(integrals[Integral.FRAGMENTED_GPUS]) / (capacity * elapsed),
        preemptions=int(cluster["num_preemptions"]),
        mean_fairness=_mean(served.fairness),
        worst_fairness=_percentile(served.fairness, 100),
        gpu_activity=_gpu_activity(state.jobs[b, times.rows]),
        blocking_rate=1.0 - len(served.rows) / len(times.rows),
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _percentile(values: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float("nan")


def _computed(jobs: Records1[Job]) -> NDArray[np.float64]:
    """[jobs] GPU seconds that each one's work takes, NaN where it was not done or takes no GPU."""
    whole = (jobs["kind"] != JobKind.CPU_ONLY) & (jobs["outcome"] <= JobOutcome.FAILED)
    seconds = jobs["total_iterations"] * jobs["base_compute_seconds"] * jobs["asked_gpus"]
    return np.where(whole, seconds, np.nan)


def _gpu_activity(jobs: Records1[Job]) -> float:
    """GPU seconds computed / held; NaN where no job held GPUs to its end."""
    computed = _computed(jobs)
    whole = ~np.isnan(computed)
    held = float(jobs["attained_service"][whole].sum())
    return float(computed[whole].sum()) / held if held > 0 else float("nan")


def timeline(state: State, b: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Bin ends [bins] in seconds, mean waiting jobs [bins], mean utilisation [bins] until now."""
    width = 2.0 ** int(state.clusters["timeline_bin_log2"][b])
    now = float(state.clusters["now"][b])
    bins = min(int(np.ceil(now / width)), state.timeline.shape[1])
    ends = np.minimum(np.arange(1, bins + 1) * width, now)
    widths = np.diff(ends, prepend=0.0)
    means = state.timeline[b, :bins] / widths[:, None]
    return ends, means[:, 0], means[:, 1] / float(state.clusters["num_gpus"][b])
