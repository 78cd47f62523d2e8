"""Workloads made ready for the engine once and replayed by a copy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import row_bytes
from ringyard.compiled import Records1
from ringyard.information import Information
from ringyard.jobs import JobTable
from ringyard.mdp.episode import STATIC_FEATURES
from ringyard.mdp.setting import Setting
from ringyard.sim.allocator import Rates
from ringyard.sim.allocator.rates import TABLES
from ringyard.sim.engine.setup import prepare_jobs
from ringyard.state.random_numbers import own_seed
from ringyard.state.records import INTEGRALS, Job

__all__ = ["QUEUE_TAKES", "WorkloadBank", "queue_priority", "static_features"]

#: what each `Actions.queue_order` goes by
QUEUE_TAKES = {
    "submit": Information.NOTHING,
    "gpus": Information.SIZES,
    "duration": Information.PREDICTIONS,
    "work": Information.SIZES | Information.PREDICTIONS,
}


def queue_priority(order: str, jobs: Records1[Job]) -> NDArray[np.float64]:
    """[jobs] key of the waiting list for `Actions.queue_order`.

    Jobs that are not predictable when they are submitted go behind the others in orders by predictions.
    """
    if order == "gpus":
        return jobs["asked_gpus"].astype(np.float64)
    if order not in ("duration", "work"):
        return jobs["submit_seconds"].copy()
    predicted = jobs["isolated_seconds"] * jobs["prediction_factor"]
    if order == "work":
        predicted = predicted * jobs["asked_gpus"]
    return np.where(jobs["predictable_from"] <= 0, predicted, np.inf)


def static_features(jobs: Records1[Job]) -> NDArray[np.float32]:
    """[jobs, STATIC_FEATURES] log duration, log2 GPUs, log GPU seconds, log communication intensity.

    Centred and scaled by the public traces' log-normal fits (mean about 6, spread about 2.5).
    """
    predicted = jobs["isolated_seconds"] * jobs["prediction_factor"]
    gpus = np.maximum(jobs["asked_gpus"], 0.125)  # a CPU-only job: as little as an eighth
    work = predicted * gpus
    intensity = jobs["gradient_bytes"] / (1e9 * jobs["base_compute_seconds"])
    columns = (
        (np.log(predicted) - 6.0) / 2.5,
        np.log2(gpus) / 3.0 - 0.5,
        (np.log(work) - 7.0) / 3.0,
        np.log1p(intensity) - 1.0,
    )
    return np.clip(np.stack(columns, axis=1), -10.0, 10.0).astype(np.float32)


def _table(setting: Setting, entry: int) -> JobTable:
    rng = np.random.default_rng((setting.workload_seed, entry))
    return setting.workload.sample(setting.cluster, rng)


class WorkloadBank:
    """Job tables of a setting, made on first use; entry k depends on (workload_seed, k) only.

    Attributes:
        records: [entries, jobs] `Job`, static: [entries, jobs, STATIC_FEATURES], num_jobs: [entries],
        weights: [entries, Integral] of the reward, seeds: [entries] of all that is random in an episode.
        rates: {entry: `rates_of` its jobs}.
    """

    _ARRAYS = ("records", "static", "num_jobs", "weights", "seeds")

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        size = setting.num_workloads
        self.records, self.static, self.num_jobs, self.weights, self.seeds = self._empty(setting, size)
        self.rates: dict[int, Rates | None] = {}

    @staticmethod
    def _empty(setting: Setting, size: int) -> tuple[Any, ...]:
        """The arrays, of so many entries."""
        jobs = setting.workload.num_jobs
        static = np.zeros((size, jobs, STATIC_FEATURES), np.float32)
        num_jobs, seeds = np.zeros((2, size), np.int64)
        return Job.zeros(size, jobs), static, num_jobs, np.zeros((size, INTEGRALS)), seeds

    @classmethod
    def entry_bytes(cls, setting: Setting) -> int:
        """Of one entry, of any bank of this setting."""
        return row_bytes(cls._empty(setting, 0)) + cls.rates_bytes(setting)

    @classmethod
    def rates_bytes(cls, setting: Setting) -> int:
        """Of an entry's tables of rates, which are as long as its largest job: those of the first."""
        if not setting.actions.goes_by_rates:
            return 0
        table = _table(setting, 0)
        sizes = min(int(table.max_gpus.max()), setting.cluster.num_gpus) + 1
        return len(TABLES) * np.dtype(np.float64).itemsize * len(table) * sizes

    def __getstate__(self) -> dict[str, Any]:
        """Only entries that exist travel with pickles and copies."""
        made = np.flatnonzero(self.num_jobs)
        arrays = {name: getattr(self, name)[made] for name in self._ARRAYS}
        return {"setting": self.setting, "made": made, "arrays": arrays, "rates": self.rates}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Room for all entries, and those that exist."""
        self.__init__(state["setting"])  # type: ignore[misc]
        for name, rows in state["arrays"].items():
            getattr(self, name)[state["made"]] = rows
        self.rates = state["rates"]

    def table(self, entry: int) -> JobTable:
        """The job table of an entry."""
        return _table(self.setting, entry)

    def rates_of(self, jobs: Records1[Job]) -> Rates | None:
        """How fast jobs are on so many GPUs, if the setting's actions go by it."""
        return self.setting.actions.rates(jobs, self.setting.cluster, self.setting.performance)

    def fill(self, entries: NDArray[np.int64]) -> None:
        """Make the entries that do not exist yet.

        Raises:
            WorkloadError: a table that does not fit the cluster.
        """
        setting = self.setting
        for entry in np.unique(entries[self.num_jobs[entries] == 0]):
            table = self.table(int(entry))
            jobs = prepare_jobs(table, setting.cluster, setting.performance, setting.restart)
            self.rates[int(entry)] = self.rates_of(jobs)
            jobs["priority"] = queue_priority(setting.actions.queue_order, jobs)
            count = len(jobs)
            self.records[entry, :count] = jobs
            self.static[entry, :count] = static_features(jobs)
            self.weights[entry] = setting.reward.weights(jobs, setting.cluster)
            self.seeds[entry] = own_seed(setting.workload_seed, int(entry))  # as comparisons have it
            self.num_jobs[entry] = count
