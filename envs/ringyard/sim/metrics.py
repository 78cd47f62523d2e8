"""What a run is judged by: per-job times and their summary."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Fraction, require
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.state.arrays import State
from ringyard.state.records import Integral, JobOutcome, JobStatus, Loss

#: what a job's time is lost to beside queueing: `lost_to_...` of `JobTimes` and `Metrics`
LOSS_NAMES = (
    "restarts",
    "failures",
    "contention",
    "spread",
    "interference",
    "input",
    "stragglers",
    "gpu_types",
    "size",
)

#: shares of the jobs, in order of arrival, between which a job's times count
Window = Annotated[tuple[Fraction, Fraction], "strictly ascending"]


@dataclass(frozen=True)
class JobTimes:
    """[finished jobs] columns, in row order.

    Attributes:
        rows: position in the job table.
        job_id: the user's numbers or texts.
        vc: virtual cluster of each; "": none named.
        user: that submitted it; "": none named.
        submit_seconds: arrival.
        start_seconds: first start.
        end_seconds: completion.
        jct: job completion time, end minus submit.
        queueing_seconds: time in the system without GPUs.
        slowdown: jct over the isolated run time.
        fairness: finish-time fairness (Themis' rho): jct over (isolated run time x mean of max(1, GPUs
            demanded / GPUs of the cluster) over the job's life); above 1: worse than a fair share.
        gpu_seconds: GPU seconds that it held.
        gpu_activity: share of them in which its GPUs computed; NaN for a job that held none.
        num_preemptions: times it was stopped.
        num_resizes: times its GPUs, batch, cores or parameter servers changed while it ran.
        num_failures: times a server failed under it.
        outcome: `JobOutcome`; jobs that failed or were cancelled count like the others, blocked ones only in
            the blocking rate.
        lost_to_restarts: seconds without progress after starts and resizes. This column and those below are
            NaN unless the simulator counts losses; `jct` is `queueing_seconds` and all of them together.
        lost_to_failures: seconds of work done again since a server failed.
        lost_to_contention: seconds more because other rings used its links. As those below, of what it
            trained: what the iterations would have taken otherwise is asked of the performance model, one
            thing after the other, in this order (`ringyard.sim.engine.slowdown_accounting`). Below 0: gained.
        lost_to_spread: because it was not on the fewest servers, in one rack.
        lost_to_interference: because of neighbours on its GPUs.
        lost_to_input: waiting for its input pipeline (cores, RAM, storage, memory bandwidth); of a CPU-only
            job: because it had other cores than it asked for, or less memory bandwidth.
        lost_to_stragglers: because its slowest worker was slower than the others.
        lost_to_gpu_types: because it was not on the cluster's GPU type where it is fastest.
        lost_to_size: because it had other GPUs, batch or parameter servers than it asked for.
        work_seconds: what is left: run time alone, as it asked, on the fewest servers, never waiting for
            input. At most `jct / slowdown`, which includes the wait for the input cores that it asked for.
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
    lost_to_restarts: NDArray[np.float64]
    lost_to_failures: NDArray[np.float64]
    lost_to_contention: NDArray[np.float64]
    lost_to_spread: NDArray[np.float64]
    lost_to_interference: NDArray[np.float64]
    lost_to_input: NDArray[np.float64]
    lost_to_stragglers: NDArray[np.float64]
    lost_to_gpu_types: NDArray[np.float64]
    lost_to_size: NDArray[np.float64]
    work_seconds: NDArray[np.float64]

    def without_blocked(self) -> Self:
        """The jobs that were not blocked."""
        kept = self.outcome != JobOutcome.BLOCKED
        return replace(self, **{field.name: getattr(self, field.name)[kept] for field in fields(self)})


@dataclass(frozen=True)
class Metrics:
    """Summary of a run; times in seconds, means and percentiles over the finished jobs not blocked.

    Attributes:
        num_finished: jobs that ended, whatever their outcome, of those that count (`Simulator.metrics`).
        mean_jct: mean job completion time, with median, p95 and p99 beside it.
        makespan: last completion minus first submission; as utilisation, fragmentation and preemptions, of
            the whole run.
        mean_queueing: mean seconds in the system without GPUs.
        mean_slowdown: mean of completion time over isolated run time.
        utilisation: busy GPU seconds / (GPUs x makespan), in [0, 1].
        fragmentation: time mean of free GPUs on partly used servers / GPUs, in [0, 1].
        preemptions: stops of running jobs.
        worst_fairness: largest finish-time fairness rho, with its mean beside it.
        gpu_activity: share of the GPU time held by jobs in which their GPUs computed, in [0, 1]: what a
            monitor shows as GPU utilisation, averaged over busy GPUs (waiting for the network, for input or
            for a restart is idle; a job beside others on its GPU computes as long as it would there alone).
        blocking_rate: jobs rejected, or gone because their acceptable completion time could not be kept, of
            all.
        lost_to_restarts: mean seconds of each job, as in `JobTimes`; this field and those below are None
            unless the simulator counts losses. `mean_jct` is `mean_queueing`, what is lost to anything and
            `mean_work` together.
        mean_work: mean seconds of work, what is left of the completion time.
        kernel_utilisation: share of the GPU time until now in which at least one kernel ran, in [0, 1]: GPU
            seconds / (GPUs x makespan); a shared GPU counts once. A job alone runs kernels for its share
            u = compute seconds x slowness on its GPU x (1 + neighbours' excess) / seconds of an iteration,
            and jobs on one GPU for 1 - (1 - u1) (1 - u2) ...: assumed independent of one another.
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
    lost_to_restarts: float | None = None
    lost_to_failures: float | None = None
    lost_to_contention: float | None = None
    lost_to_spread: float | None = None
    lost_to_interference: float | None = None
    lost_to_input: float | None = None
    lost_to_stragglers: float | None = None
    lost_to_gpu_types: float | None = None
    lost_to_size: float | None = None
    mean_work: float | None = None
    kernel_utilisation: float | None = None

    def as_dict(self) -> dict[str, float]:
        """Name -> value, in the order above, of what was measured."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def measured_rows(num_jobs: int, measured: Window) -> slice:
    """Rows of a job table, which is in order of arrival, that count.

    Args:
        num_jobs: of the table.
        measured: shares of the jobs, for example (0.2, 0.8): neither those that find the cluster empty nor
            those that see it drain.

    Raises:
        ConfigurationError: no such shares, or no job is between them.
    """
    require("measured_jobs", measured, Window)
    first, last = (round(share * num_jobs) for share in measured)
    if first == last:
        raise ConfigurationError(
            f"measured_jobs is {list(measured)}, between which there is none of {num_jobs} jobs; expected"
            f" shares at least {1 / num_jobs:.2g} apart"
        )
    return slice(first, last)


def _loss_columns(state: State, b: int, rows: NDArray[np.int64]) -> dict[str, NDArray[np.float64]]:
    """Columns of `JobTimes` that say where the time of these jobs went."""
    if state.losses.shape[1] == 0:
        columns = [*(f"lost_to_{name}" for name in LOSS_NAMES), "work_seconds"]
        return dict.fromkeys(columns, np.full(len(rows), np.nan))
    jobs, losses = state.jobs[b, rows], state.losses[b, rows]
    done = jobs["total_iterations"] - jobs["remaining_iterations"]
    lost = {f"lost_to_{name}": losses[:, Loss[name.upper()]] for name in LOSS_NAMES}
    return lost | {"work_seconds": done * losses[:, Loss.WORK_RATE]}


def job_times(state: State, b: int, table: JobTable, measured: Window = (0.0, 1.0)) -> JobTimes:
    """Per-job times of the jobs that finished in cluster b.

    Args:
        state: of the simulations.
        b: which of them.
        table: its jobs.
        measured: which jobs, see `measured_rows`.

    Raises:
        ConfigurationError: as there.
    """
    jobs = state.jobs[b, : len(table)]
    counted = measured_rows(len(table), measured)
    rows = counted.start + np.flatnonzero(jobs["status"][counted] == JobStatus.DONE)

    def ended(name: str) -> NDArray[Any]:
        column: NDArray[Any] = jobs[name][rows]
        return column

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
    """Metrics of the jobs that finished in cluster b; NaN where there is nothing to average.

    Args:
        state: of the simulations.
        b: which of them.
        table: its jobs.
        measured: see `measured_rows`.

    Raises:
        ConfigurationError: as there.
    """
    times = job_times(state, b, table, measured)
    served = times.without_blocked()
    whole = _whole_run(state, b, table)
    losses = {}
    if state.losses.shape[1]:
        losses = {f"lost_to_{name}": _mean(getattr(served, f"lost_to_{name}")) for name in LOSS_NAMES}
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
    """What is measured of the cluster, from the first submission on; NaN if no job has finished."""
    jobs = state.jobs[b, : len(table)]
    ends = jobs["end_seconds"][jobs["status"] == JobStatus.DONE]
    if not len(ends):
        return dict.fromkeys(("makespan", "utilisation", "fragmentation", "kernels"), float("nan"))
    cluster, integrals = state.clusters[b], state.integrals[b]
    begin = float(table.submit_seconds[0])
    seconds = float(cluster["now"]) - begin
    capacity = float(cluster["num_gpus"]) * seconds if seconds else float("nan")  # all blocked at once
    return {
        "makespan": float(ends.max()) - begin,
        "utilisation": float(integrals[Integral.BUSY_GPUS]) / capacity,
        "fragmentation": float(integrals[Integral.FRAGMENTED_GPUS]) / capacity,
        "kernels": float(cluster["kernel_seconds"]) / capacity,
    }


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _percentile(values: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else float("nan")


def _weighted(values: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """Mean by weight of what is not NaN; NaN without weight."""
    known = ~np.isnan(values)
    total = float(weights[known].sum())
    return float((values * weights)[known].sum()) / total if total > 0 else float("nan")


def timeline(state: State, b: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Bin ends [bins] in seconds, mean waiting jobs [bins], mean utilisation [bins] until now."""
    width = 2.0 ** int(state.clusters["timeline_bin_log2"][b])
    now = float(state.clusters["now"][b])
    bins = min(int(np.ceil(now / width)), state.timeline.shape[1])
    ends = np.minimum(np.arange(1, bins + 1) * width, now)
    widths = np.diff(ends, prepend=0.0)
    means = state.timeline[b, :bins] / widths[:, None]
    return ends, means[:, 0], means[:, 1] / float(state.clusters["num_gpus"][b])
