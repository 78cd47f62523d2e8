"""What a scheduler may see of jobs: the flags, the columns that each shows, and the checks of both."""

from enum import Flag, auto
from typing import Any

import yaml

from ringyard.compiled.reads import fields_read
from ringyard.config_folder import config_folder
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

#: {column: flags, of which any one shows it}, as conf/observability.yaml says
COLUMNS = dict.fromkeys(Job.dtype.names or (), Observability.FUTURE)
for _flags, _columns in yaml.safe_load((config_folder() / "observability.yaml").read_text()).items():
    _any = Observability(sum(Observability[name].value for name in _flags.split()))
    COLUMNS |= dict.fromkeys(" ".join(_columns).split(), _any)
COLUMNS |= {name: Observability.SIZES for one in RESOURCES for name in (one.per_worker, one.asked)}

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
