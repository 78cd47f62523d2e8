"""`WorkloadCache`: job tables, prepared for the engine once and copied into a cluster at each reset."""

import functools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import JobUtilities
from ringyard.allocator.utilities import TABLES
from ringyard.checks import row_bytes
from ringyard.compiled import Records1
from ringyard.errors import RingyardError
from ringyard.jobs import JobTable
from ringyard.mdp.actions import AllocatorActions
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import StaticFeatures, WorkloadRows, arrays_of
from ringyard.observability import Observability
from ringyard.sim.engine.prepare import JobPreparer
from ringyard.state.records import INTEGRALS, Job
from ringyard.workloads.workload import draw_tables

#: largest number of job tables that are prepared in one call
_BATCH_TABLES = 128
#: largest number of jobs, and of tables, that a single cluster prepares in advance
_PREFETCH_JOBS, _PREFETCH_TABLES = 2048, 16
#: smallest size of a cache, if there are as many job tables
_MIN_ROWS = 1024


#: {`Actions.queue_order`: what it reads of jobs}
QUEUE_ORDER_OBSERVABILITY = {"submit": Observability.NOTHING, "gpus": Observability.SIZES}
QUEUE_ORDER_OBSERVABILITY["duration"] = Observability.PREDICTIONS
QUEUE_ORDER_OBSERVABILITY["work"] = Observability.SIZES | Observability.PREDICTIONS


def queue_priority(order: str, jobs: Records1[Job] | Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the key [jobs] of a `queue_order`, smallest first. Jobs without a prediction are last."""
    if order == "gpus":
        return jobs["asked_gpus"].astype(np.float64)
    if order not in ("duration", "work"):
        return jobs["submit_seconds"].copy()
    predicted = jobs["isolated_seconds"] * jobs["prediction_factor"]
    if order == "work":
        predicted = predicted * jobs["asked_gpus"]
    return np.where(jobs["predictable_from"] <= 0, predicted, np.inf)


def static_features(jobs: Records1[Job] | Mapping[str, NDArray[Any]]) -> Records1[StaticFeatures]:
    """Return constant features of `jobs` [jobs], scaled by the log-normal fits of the public traces."""
    predicted = jobs["isolated_seconds"] * jobs["prediction_factor"]
    gpus = np.maximum(jobs["asked_gpus"], 0.125)  # a CPU-only job counts as an eighth of a GPU
    work = predicted * gpus
    intensity = jobs["gradient_bytes"] / (1e9 * jobs["base_compute_seconds"])
    features: Records1[StaticFeatures] = StaticFeatures.zeros(len(gpus))
    features["run_time"] = np.clip((np.log(predicted) - 6.0) / 2.5, -10.0, 10.0)
    features["gpus"] = np.clip(np.log2(gpus) / 3.0 - 0.5, -10.0, 10.0)
    features["work"] = np.clip((np.log(work) - 7.0) / 3.0, -10.0, 10.0)
    features["communication"] = np.clip(np.log1p(intensity) - 1.0, -10.0, 10.0)
    return features


def _entry_generator(config: EnvConfig, entry: int) -> tuple[np.random.Generator, int]:
    """Return (generator of a job table, seed of its simulation), the same as in comparisons."""
    sequence = np.random.SeedSequence((config.workload_seed, entry))
    return np.random.default_rng(sequence), int(sequence.generate_state(1)[0])


def empty_signals(config: EnvConfig, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return zeroed `weights` and `due_seconds` of `WorkloadRows` with `size` rows."""
    jobs = config.workload.num_jobs if config.cost and config.cost.due_seconds else 0
    signals = 1 + len(config.reward.parts) + (config.cost is not None)
    return np.zeros((size, signals, INTEGRALS + 1)), np.zeros((size, jobs))


class WorkloadCache:
    """Prepared job tables of an environment. Entry k depends on (`workload_seed`, k) only.

    Entries are prepared when they are needed. A full cache, with room for an entry of each cluster at the
    same time, drops the least recently used ones. `rows` has an entry in each row, `utilities` {entry: those
    of its jobs}.
    """

    def __init__(self, config: EnvConfig, num_clusters: int = 1) -> None:
        self.config = config
        self.num_rows = self.rows_for(config, num_clusters)
        self.rows = self._empty(config, self.num_rows)
        self.utilities: dict[int, JobUtilities | None] = {}
        #: {entry: its row}, least recently used first
        self._row_of: OrderedDict[int, int] = OrderedDict()
        #: rows without an entry, descending
        self._free = list(range(self.num_rows))[::-1]
        self._prefetched: list[int] = []

    @staticmethod
    def rows_for(config: EnvConfig, num_clusters: int) -> int:
        """Return the number of rows. It is limited, because writing to fresh memory is slow."""
        return min(config.num_workloads, max(_MIN_ROWS, 2 * num_clusters))

    @staticmethod
    def _empty(config: EnvConfig, size: int) -> WorkloadRows:
        jobs = config.workload.num_jobs
        records, static = Job.zeros(size, jobs), StaticFeatures.zeros(size, jobs)
        numbers, seeds = np.zeros(size, np.int64), np.zeros(size, np.int64)
        return WorkloadRows(records, static, numbers, *empty_signals(config, size), seeds)

    @classmethod
    def entry_bytes(cls, config: EnvConfig) -> int:
        """Return the bytes of an entry."""
        return row_bytes(arrays_of(cls._empty(config, 0))) + cls.utilities_bytes(config)

    @classmethod
    def utilities_bytes(cls, config: EnvConfig) -> int:
        """Return the bytes of the utilities of entry 0. The largest job determines their size."""
        if not isinstance(config.actions, AllocatorActions):
            return 0
        table = config.workload.sample(config.cluster, _entry_generator(config, 0)[0])
        sizes = min(int(table.max_gpus.max()), config.cluster.num_gpus) + 1
        return len(TABLES) * np.dtype(np.float64).itemsize * len(table) * sizes

    def __getstate__(self) -> dict[str, Any]:
        made = list(self._row_of.values())
        kept = {name: value for name, value in self.__dict__.items() if name != "_preparation"}
        return kept | {"rows": [array[made] for array in arrays_of(self.rows)]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, rows=self._empty(state["config"], state["num_rows"]))
        for room, made in zip(arrays_of(self.rows), state["rows"], strict=True):
            room[list(self._row_of.values())] = made

    @functools.cached_property
    def _preparation(self) -> JobPreparer:
        return JobPreparer(self.config.cluster, self.config.performance, self.config.restart)

    def table(self, entry: int) -> JobTable:
        """Return the job table of an entry."""
        return self.config.workload.sample(self.config.cluster, _entry_generator(self.config, entry)[0])

    def utilities_of(self, jobs: Records1[Job]) -> JobUtilities | None:
        """Return the utilities of `jobs` by number of GPUs, or None if the actions do not use them."""
        return self.config.actions.utilities(jobs, self.config.cluster, self.config.performance)

    def estimate_memory(self, entry: int) -> NDArray[np.float64]:
        """Return the [jobs, numbers] memory of the allocator's estimate before the entry's first job."""
        actions = self.config.actions
        if isinstance(actions, AllocatorActions) and actions.allocator.estimate.memory:
            return actions.allocator.estimate.memory_of(self.table(entry))
        return np.zeros((0, 0))

    def rows_of(self, entries: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of `entries` [entries], valid until the next call. Missing ones are prepared."""
        needed = entries.tolist()
        for entry in needed:
            if entry in self._row_of:
                self._row_of.move_to_end(entry)
        missing = sorted({entry for entry in needed if entry not in self._row_of})
        if missing:
            self._fill(missing, self.num_rows - len(set(needed)))
        return np.array([self._row_of[entry] for entry in needed], np.int64)

    def __contains__(self, entry: int) -> bool:
        return entry in self._row_of

    @property
    def prefetch_size(self) -> int:
        """Number of entries to prefetch with a missing one, because each costs less. 0 for large tables."""
        workload = self.config.workload
        if not hasattr(workload, "sample_batch"):
            return 0
        return min(_PREFETCH_TABLES, _PREFETCH_JOBS // workload.num_jobs)

    def prefetch(self, entries: NDArray[np.int64]) -> None:
        """Let the next preparation include these `entries`, because each costs less in a larger batch."""
        self._prefetched += [one for one in entries.tolist() if one not in self._row_of]

    def _fill(self, missing: list[int], room: int) -> None:
        """Prepare entries, and up to `room` prefetched ones."""
        more = sorted({one for one in self._prefetched if one not in self._row_of}.difference(missing))[:room]
        self._prefetched = []
        wanted = missing + more
        try:
            for first in range(0, len(wanted), _BATCH_TABLES):
                self._make(wanted[first : first + _BATCH_TABLES])
        except RingyardError:
            for entry in missing:  # one by one, so that the error names the row in its own table
                if entry not in self._row_of:
                    self._make([entry])

    def _make(self, entries: Sequence[int]) -> None:
        while len(self._free) < len(entries):  # drop the least recently used entries
            entry, row = self._row_of.popitem(last=False)
            del self.utilities[entry]
            self._free.append(row)
        rows = [self._free.pop() for _ in entries]
        try:
            utilities = self._write(entries, rows)
        except BaseException:
            self._free += rows
            raise
        self._row_of.update(zip(entries, rows, strict=True))
        self.utilities.update(zip(entries, utilities, strict=True))

    def _write(self, entries: Sequence[int], rows: Sequence[int]) -> list[JobUtilities | None]:
        """Write entries into rows, and return the utilities of their jobs [entries]."""
        config = self.config
        generators, self.rows.seeds[rows] = zip(*(_entry_generator(config, k) for k in entries), strict=True)
        tables, lengths = draw_tables(config.workload, config.cluster, generators)
        records: Any = self.rows.records
        begins = [row * records.shape[1] for row in rows]
        jobs = self._preparation.write(tables, lengths, records.reshape(-1), begins)
        self.rows.num_jobs[rows] = lengths
        owner = np.repeat(rows, lengths)
        position = np.arange(len(tables)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        records["priority"][owner, position] = queue_priority(config.actions.queue_order, jobs)
        self.rows.static[owner, position] = static_features(jobs)
        own = [records[row, :length] for row, length in zip(rows, lengths, strict=True)]
        for s, reward in enumerate((config.reward, *config.reward.parts)):
            self.rows.weights[rows, s, :-1] = reward.weights(own, config.cluster)
        if config.cost is not None:
            self.rows.weights[rows, -1] = config.cost.weights(own)
            if config.cost.due_seconds is not None:
                self.rows.due_seconds[owner, position] = config.cost.due_seconds(records[owner, position])
        return [self.utilities_of(one) for one in own]
