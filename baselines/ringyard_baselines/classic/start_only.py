"""Textbook orders of the queue that only start jobs: FIFO, SJF, smallest work, random."""

import numpy as np
from numpy.typing import NDArray

from ringyard import JobTable, Observability, PlacementRule
from ringyard.checks import checked
from ringyard_baselines.policies.ordered import OrderedScheduler


def _by_submit_time(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.submit_seconds


def by_duration(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the isolated run time of `jobs` [jobs], seconds. `rng` is not used."""
    return jobs.duration_seconds


def _by_gpu_seconds(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return jobs.duration_seconds * jobs.num_gpus


def _shuffled(jobs: JobTable, rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.random(len(jobs))


@checked("fifo_backfill")
def fifo_backfill(placement: PlacementRule, reserve_unplaced: bool = False) -> OrderedScheduler:
    """First in, first out with backfilling: a job that finds no place is skipped.

    Args:
        placement: rule that places a job.
        reserve_unplaced: leave the GPUs of a job that finds no place idle (`OrderedScheduler`).

    Raises:
        ConfigurationError: `reserve_unplaced` is neither true nor false.
    """
    name = "fifo_backfill_reserving" if reserve_unplaced else "fifo_backfill"
    return OrderedScheduler(name, _by_submit_time, placement, False, Observability.NOTHING, reserve_unplaced)


def fifo(placement: PlacementRule) -> OrderedScheduler:
    """First in, first out: the first job that finds no place in `placement` blocks those behind it."""
    return OrderedScheduler("fifo", _by_submit_time, placement, True, Observability.NOTHING)


def sjf(placement: PlacementRule, strict: bool = False, reserve_unplaced: bool = False) -> OrderedScheduler:
    """Shortest job first, by isolated run time.

    Args:
        placement: rule that places a job.
        strict: let the first job that finds no place block those behind it. False: skip it.
        reserve_unplaced: leave the GPUs of a job that finds no place idle (`OrderedScheduler`).
    """
    name = "sjf_strict" if strict else "sjf_reserving" if reserve_unplaced else "sjf"
    return OrderedScheduler(name, by_duration, placement, strict, Observability.DURATIONS, reserve_unplaced)


def smallest_work(placement: PlacementRule) -> OrderedScheduler:
    """Smallest isolated run time x GPUs first (the order of Ada-SRSF's queue), with backfilling."""
    takes = Observability.SIZES | Observability.DURATIONS
    return OrderedScheduler("smallest_work", _by_gpu_seconds, placement, False, takes)


def random_order(placement: PlacementRule) -> OrderedScheduler:
    """Random order with backfilling: the floor that every scheduler should beat."""
    return OrderedScheduler("random", _shuffled, placement, False, Observability.NOTHING)
