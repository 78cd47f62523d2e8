"""What a scheduler may see of jobs: the flags, the columns that each shows, and the checks of both."""

from enum import Flag, auto
from typing import Any

from ringyard.compiled.reads import fields_read
from ringyard.errors import ObservabilityError
from ringyard.resources import RESOURCES
from ringyard.state import progress
from ringyard.state.records import ClusterRecord, Gpu, Job, Link, Server


class Observability(Flag):
    """What a scheduler, agent or rule may see besides arrivals, models and the present allocation.

    A scheduler declares its flags. Its view and its job table raise an error for everything else.
    """

    NOTHING = 0  #: arrivals and the present: waiting jobs, allocations, what monitors show of running jobs
    SIZES = auto()  #: what jobs ask for: GPUs, batch, cores, memory, bytes sent, acceptable completion time
    ATTAINED_SERVICE = auto()  #: GPU seconds and seconds for which a job has held resources
    DISTRIBUTION = auto()  #: the sorted GPU seconds of all jobs, without the job of each
    #: predicted work left, with the workload's error. Absent where a job is not predictable.
    PREDICTIONS = auto()
    DURATIONS = auto()  #: true run times and true work left
    TRAINING_CURVES = auto()  #: iterations, losses and validation metrics so far
    SPEEDS = auto()  #: how fast jobs run with other allocations, as profiling would measure it
    FUTURE = auto()  #: what cannot be known in advance: cancellations, failures, noise, errors of predictions
    HISTORY = auto()  #: run times, users and virtual clusters of jobs that ended before the first arrival
    #: all flags
    EVERYTHING = (
        SIZES
        | ATTAINED_SERVICE
        | DISTRIBUTION
        | PREDICTIONS
        | DURATIONS
        | TRAINING_CURVES
        | SPEEDS
        | FUTURE
        | HISTORY
    )

    def __str__(self) -> str:
        if self in (Observability.NOTHING, Observability.EVERYTHING):
            return str(self.name).lower()
        return ", ".join(_TABLE_TEXTS.get(one, str(one.name).lower().replace("_", " ")) for one in self)


#: flags that tables do not print by their names
_TABLE_TEXTS = {
    Observability.DISTRIBUTION: "distribution of durations",
    Observability.PREDICTIONS: "predicted durations",
    Observability.FUTURE: "the future",
    Observability.HISTORY: "ended jobs",
}

_WORK = Observability.PREDICTIONS | Observability.DURATIONS

#: {column: flags, of which any one shows it}. The columns are those of `ringyard.state.records.Job` and of
#: `JobTable`, and what views and job tables derive from them. Unlisted columns of `Job` need FUTURE
COLUMNS: dict[str, Observability] = dict.fromkeys(Job.dtype.names or (), Observability.FUTURE) | {
    column: flags
    for flags, columns in (
        # identity and place need no flag. A row of the job table may be used once its job is submitted
        (Observability.NOTHING, "status kind model model_ids job_id submit_seconds demand_class priority"),
        (Observability.NOTHING, "vc user row forgiven_waiting"),
        (
            Observability.NOTHING,
            "num_servers num_racks server first_slot next_cpu_job visit_mark fewest_gpus",
        ),
        (Observability.NOTHING, "first_start_seconds last_start_seconds last_stop_seconds updated_seconds"),
        (Observability.NOTHING, "pause_ends_seconds num_preemptions num_resizes num_failures"),
        (Observability.NOTHING, "fair_share_integral straggler"),
        # monitors show these of a running job (Gandiva measures throughput, CODA GPU utilisation)
        (Observability.NOTHING, "iteration_seconds gpu_activity memory_bandwidth_cap link_share gpu_speed"),
        (Observability.NOTHING, "contenders new_contenders sharing_slowdown bandwidth_slowdown"),
        (Observability.NOTHING, "storage_seconds_per_byte"),
        # what the user writes into the submission, and the present allocation
        (Observability.SIZES, "num_gpus asked_gpus min_gpus max_gpus deadline_seconds acceptable_jct"),
        (Observability.SIZES, "batch_size base_batch min_batch max_batch gradient_bytes memory_bandwidth"),
        (Observability.SIZES, "parameter_servers asked_parameter_servers graph plan_model plan asked_plan"),
        (Observability.SIZES, " ".join(f"{one.per_worker} {one.asked}" for one in RESOURCES)),
        (Observability.SIZES, "cores_per_server_task asked_cores_per_server_task"),
        (Observability.SIZES, "uses_host_resources sample_bytes dataset_bytes stored_bytes"),
        (Observability.SIZES, "gpu_memory_bytes fixed_memory_bytes sample_memory_bytes"),
        (Observability.ATTAINED_SERVICE, "attained_service forgiven_service service_queue run_seconds"),
        (Observability.ATTAINED_SERVICE, "elapsed_seconds num_warm"),
        (Observability.DISTRIBUTION, "gpu_seconds_distribution"),
        (Observability.HISTORY, "past"),
        # predictions come in iterations and in isolated seconds. All of them contain the progress so far
        (Observability.PREDICTIONS, "predictable predicted_iterations predicted_seconds predicted_share"),
        (Observability.TRAINING_CURVES | _WORK, "completed_iterations"),
        (Observability.TRAINING_CURVES, "validation_metric training_loss loss_log"),
        (Observability.SPEEDS | _WORK, "isolated_iteration_seconds"),
        (Observability.SPEEDS, "compute_seconds base_compute_seconds fixed_fraction fixed_share noise_scale"),
        (
            Observability.SPEEDS,
            "samples_per_core_second loading_serial_share progress_per_iteration overlap_exponent",
        ),
        (Observability.SPEEDS, "restart_seconds restart_growth restart_jump jump_gpus"),
        (Observability.SPEEDS, "resize_seconds resize_growth resize_jump"),
        (Observability.SPEEDS, "servers_seconds servers_growth servers_jump cores_seconds"),
        (Observability.SPEEDS, "physics what_if isolated_speeds interference"),
        (Observability.DURATIONS, "duration_seconds iterations isolated_seconds total_iterations"),
        (Observability.DURATIONS, "remaining_iterations remaining_at_last_stop computed_seconds end_seconds"),
        (Observability.FUTURE, "next_event_seconds heap_position predictable_from prediction_factor"),
        (Observability.FUTURE, "cancel_seconds outcome loss_curve loss_noise"),
    )
    for column in columns.split()
}


#: records with fields that need no flag, although some of these have the name of a column of jobs
_CLUSTER_RECORDS = (ClusterRecord, Server, Gpu, Link)


def check_column(name: str, observability: Observability) -> None:
    """Raise an ObservabilityError unless the declared flags show column `name`, a key of `COLUMNS`."""
    flags = COLUMNS.get(name)
    if flags is None:
        raise ObservabilityError(f"there is no column {name!r}; expected one of {', '.join(sorted(COLUMNS))}")
    if flags and not flags & observability:
        expected = " or ".join(f"Observability.{one.name}" for one in flags)
        raise ObservabilityError(
            f"{name} is hidden: the declared observability is {observability}"
            f"; expected {expected} as well: declare it, or do without"
        )


def check_reads(function: Any, observability: Observability, label: str) -> None:
    """Raise an ObservabilityError if the source of a compiled function reads a column that was not declared.

    A field counts unless types show that it is not a job's: `state.servers[b, s].num_gpus` is a server's. A
    call of a function of `ringyard.state.progress` counts as the column of that name. `label` names the
    function.
    """
    for name in sorted(fields_read(function, _CLUSTER_RECORDS, progress.__name__) & COLUMNS.keys()):
        try:
            check_column(name, observability)
        except ObservabilityError as error:
            raise ObservabilityError(f"{label}: {error}") from None
