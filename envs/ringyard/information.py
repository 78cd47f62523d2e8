"""Observability: what a scheduler may see of jobs, and the flags that show each column."""

from enum import Flag, auto
from typing import Any

from ringyard.compiled.reads import fields_read
from ringyard.errors import InformationError
from ringyard.resources import RESOURCES
from ringyard.state import progress
from ringyard.state.records import ClusterRecord, Gpu, Job, Link, Server


class Information(Flag):
    """What a scheduler may see besides arrivals, models and the present allocation.

    A scheduler declares its flags. The view and the job table refuse everything else. Placement rules see job
    sizes and speeds, and declare what else they take (`PlacementRule.observability`).

    Attributes:
        NOTHING: arrivals and the present: waiting jobs, allocations, what monitors show of running jobs.
        SIZES: what jobs ask for: GPUs, batch, cores, memory, bytes sent, acceptable completion time.
        ATTAINED_SERVICE: GPU seconds and seconds that a job has held resources.
        DISTRIBUTION: GPU seconds of all jobs together, not of each.
        PREDICTIONS: predicted work left, with the workload's error; absent where a job is not predictable.
        DURATIONS: true run times and true work left.
        TRAINING_CURVES: iterations, losses and validation metrics so far.
        SPEEDS: how fast jobs are in other shapes and places, as profiling shows it.
        FUTURE: what is not known in advance: withdrawals, failures, noise, errors of predictions.
        HISTORY: run times, users and virtual clusters of jobs that ended before the first arrival.
        EVERYTHING: all of it.
    """

    NOTHING = 0
    SIZES = auto()
    ATTAINED_SERVICE = auto()
    DISTRIBUTION = auto()
    PREDICTIONS = auto()
    DURATIONS = auto()
    TRAINING_CURVES = auto()
    SPEEDS = auto()
    FUTURE = auto()
    HISTORY = auto()
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
        """As tables print it."""
        if self in (Information.NOTHING, Information.EVERYTHING):
            return str(self.name).lower()
        return ", ".join(_TEXTS.get(one, str(one.name).lower().replace("_", " ")) for one in self)


_TEXTS = {
    Information.DISTRIBUTION: "distribution of durations",
    Information.PREDICTIONS: "predicted durations",
    Information.FUTURE: "the future",
    Information.HISTORY: "ended jobs",
}

_WORK = Information.PREDICTIONS | Information.DURATIONS

#: {column: flags, any one of which shows it}: columns of `ringyard.state.records.Job` and of `JobTable`, and
#: what views and job tables derive from them. A column of `Job` that is not named needs FUTURE
COLUMNS: dict[str, Information] = dict.fromkeys(Job.dtype.names or (), Information.FUTURE) | {
    column: takes
    for takes, columns in (
        # identity and place need no flag. A row of the job table may be used once its job is submitted
        (Information.NOTHING, "status kind model model_ids job_id submit_seconds demand_class priority"),
        (Information.NOTHING, "vc user row forgiven_waiting"),
        (Information.NOTHING, "num_servers num_racks server first_slot next_cpu_job stamp"),
        (Information.NOTHING, "first_start_seconds last_start_seconds last_stop_seconds synced_seconds"),
        (Information.NOTHING, "progress_from_seconds num_preemptions num_resizes num_failures"),
        (Information.NOTHING, "fair_share_integral straggler"),
        # monitors show these of a running job (Gandiva measures throughput, CODA how busy GPUs are)
        (Information.NOTHING, "iteration_seconds gpu_activity memory_bandwidth_cap gpu_speed"),
        (Information.NOTHING, "contenders new_contenders sharing_slowdown bandwidth_slowdown"),
        (Information.NOTHING, "storage_seconds_per_byte"),
        # what its user writes into the submission, and the shape it holds
        (Information.SIZES, "num_gpus asked_gpus min_gpus max_gpus deadline_seconds acceptable_jct"),
        (Information.SIZES, "batch_size base_batch min_batch max_batch gradient_bytes memory_bandwidth"),
        (Information.SIZES, "parameter_servers asked_parameter_servers"),
        (Information.SIZES, " ".join(f"{one.per_worker} {one.asked}" for one in RESOURCES)),
        (Information.SIZES, "cores_per_server_task asked_cores_per_server_task"),
        (Information.SIZES, "beside_gpus sample_bytes dataset_bytes stored_bytes"),
        (Information.SIZES, "gpu_memory_bytes fixed_memory_bytes sample_memory_bytes"),
        (Information.ATTAINED_SERVICE, "attained_service forgiven_service service_queue run_seconds"),
        (Information.DISTRIBUTION, "gpu_seconds_distribution"),
        (Information.HISTORY, "past"),
        # predictions come in iterations and in seconds alone; progress is part of any of them
        (Information.PREDICTIONS, "predictable predicted_iterations predicted_seconds predicted_share"),
        (Information.TRAINING_CURVES | _WORK, "completed_iterations"),
        (Information.TRAINING_CURVES, "validation_metric training_loss loss_log"),
        (Information.SPEEDS | _WORK, "isolated_iteration_seconds"),
        (Information.SPEEDS, "compute_seconds base_compute_seconds fixed_fraction fixed_share noise_scale"),
        (
            Information.SPEEDS,
            "samples_per_core_second loading_serial_share progress_per_iteration overlap_exponent",
        ),
        (Information.SPEEDS, "restart_seconds restart_growth restart_jump jump_gpus"),
        (Information.SPEEDS, "resize_seconds resize_growth resize_jump"),
        (Information.SPEEDS, "servers_seconds servers_growth servers_jump cores_seconds"),
        (Information.SPEEDS, "physics what_if isolated_speeds interference"),
        # the truth
        (Information.DURATIONS, "duration_seconds iterations isolated_seconds total_iterations"),
        (Information.DURATIONS, "remaining_iterations saved_iterations computed_seconds end_seconds"),
        (Information.FUTURE, "due_seconds heap_position predictable_from prediction_factor"),
        (Information.FUTURE, "cancel_seconds outcome"),
    )
    for column in columns.split()
}


#: records of the cluster need no flag, though some of their fields are called as a column of jobs is
_OF_THE_CLUSTER = (ClusterRecord, Server, Gpu, Link)


def check_known(name: str, knows: Information) -> None:
    """Refuse a column that was not declared.

    Args:
        name: a key of `COLUMNS`.
        knows: the declared flags.

    Raises:
        InformationError: no flag that shows it is declared, or there is no such column.
    """
    takes = COLUMNS.get(name)
    if takes is None:
        raise InformationError(f"there is no column {name!r}; expected one of {', '.join(sorted(COLUMNS))}")
    if takes and not takes & knows:
        flags = " or ".join(f"Information.{one.name}" for one in takes)
        raise InformationError(
            f"{name} is hidden: the declared information is {knows}; expected {flags} as well: declare it, or"
            " do without"
        )


def check_reads(function: Any, knows: Information, what: str) -> None:
    """Refuse a compiled function that reads more than was declared, by its source, before it runs.

    A field counts unless types show that it is not a job's: `state.servers[b, s].num_gpus` is a server's.
    Functions of `ringyard.state.progress` count as the column of their name.

    Args:
        function: decorated with `fills` or `kernel`.
        knows: the declared flags.
        what: the function's name in the error.

    Raises:
        InformationError: the function reads a column that is not declared.
    """
    for name in sorted(fields_read(function, _OF_THE_CLUSTER, progress.__name__) & COLUMNS.keys()):
        try:
            check_known(name, knows)
        except InformationError as error:
            raise InformationError(f"{what}: {error}") from None
