"""Orders of the queue that only start jobs."""

import numpy as np
from numpy.typing import NDArray

from ringyard import JobTable, Observability, PlacementRule
from ringyard.checks import checked
from ringyard_baselines.policies.ordered import OrderedScheduler


def _by_submit_time(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.submit_seconds


def by_duration(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    """[jobs] isolated run time, seconds."""
    return jobs.duration_seconds


def _by_gpu_seconds(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.duration_seconds * jobs.num_gpus


def _shuffled(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.random(len(jobs))


@checked("fifo_backfill")
def fifo_backfill(placement: PlacementRule, counted: bool = False) -> OrderedScheduler:
    """By submit time; a job that does not fit is skipped.

    Args:
        placement: where a job goes.
        counted: GPUs counted for a job that finds no place stay idle (`OrderedScheduler`).

    Raises:
        ConfigurationError: counted is neither true nor false.
    """
    name = "fifo_backfill_counted" if counted else "fifo_backfill"
    return OrderedScheduler(name, _by_submit_time, placement, False, Observability.NOTHING, counted)


def fifo(placement: PlacementRule) -> OrderedScheduler:
    """By submit time; nothing starts before a job that does not fit."""
    return OrderedScheduler("fifo", _by_submit_time, placement, True, Observability.NOTHING)


def sjf(placement: PlacementRule, strict: bool = False, counted: bool = False) -> OrderedScheduler:
    """Shortest job first: by isolated run time.

    Args:
        placement: where a job goes.
        strict: the first job that finds no place blocks those behind it.
        counted: GPUs counted for a job that finds no place stay idle (`OrderedScheduler`).
    """
    name = "sjf_strict" if strict else "sjf_counted" if counted else "sjf"
    return OrderedScheduler(name, by_duration, placement, strict, Observability.DURATIONS, counted)


def smallest_work(placement: PlacementRule) -> OrderedScheduler:
    """By isolated run time times GPUs (the order of Ada-SRSF's queue); a job that does not fit is skipped."""
    takes = Observability.SIZES | Observability.DURATIONS
    return OrderedScheduler("smallest_work", _by_gpu_seconds, placement, False, takes)


def random_order(placement: PlacementRule) -> OrderedScheduler:
    """By a number drawn for each job: the floor any scheduler should beat; what does not fit is skipped."""
    return OrderedScheduler("random", _shuffled, placement, False, Observability.NOTHING)
