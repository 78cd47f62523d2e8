"""B clusters in one set of arrays, stepped by one compiled call: the engine under every face."""

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import Rates
from ringyard.checks import require_memory, row_bytes
from ringyard.compiled import entry_point
from ringyard.errors import ActionError, SchedulerError
from ringyard.mdp.arguments import ClosedError, ResetNeededError
from ringyard.mdp.bank import WorkloadBank, static_features
from ringyard.mdp.batch_arrays import arrays_of, copied_bundle, empty_arrays
from ringyard.mdp.driver import driver_of
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import Episode
from ringyard.mdp.kernel import BEGIN, DONE, GOES_ON, SETTLE, STALLED, STEP, TRUNCATED, Bank, Outputs
from ringyard.performance.model import physics_of
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.livelock import raise_if_still
from ringyard.sim.metrics import Metrics, measure
from ringyard.state.arrays import State
from ringyard.state.records import Integral
from ringyard.threads import get_num_threads, in_parts

__all__ = ["ClusterBatch"]


class ClusterBatch:
    """A batch of simulations with their observations, masks and rewards.

    Args:
        setting: the decision process.
        num_clusters: B.
        segment_rows: history kept for drawing.
        state: arrays of a simulation set up elsewhere, to be acted on; None makes new ones.
        num_threads: that step parts of the batch; None: `ringyard.get_num_threads()`. Results are the same.

    Attributes:
        observations: [B, size] float32, overwritten by each step.
        masks: [B, actions] valid actions, or [B, N] which scores have a job; overwritten by each step.
        rewards: [B] of the last step.
        entries: [B] bank entry of each running episode.
        lengths: [B] steps of each running episode.
        returns: [B] undiscounted reward sum of each running episode.

    Raises:
        ConfigurationError: more clusters, or more workloads, than this machine has memory for.
    """

    def __init__(
        self,
        setting: EnvConfig,
        num_clusters: int,
        segment_rows: int = 0,
        state: State | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.setting = setting
        self.num_threads = get_num_threads() if num_threads is None else num_threads
        self._driver = driver_of(setting)
        empty = partial(empty_arrays, setting, self._driver, segment_rows, state)
        if state is None:
            each = row_bytes(arrays_of(*empty(0))) + WorkloadBank.rates_bytes(setting)
            entry, rows = WorkloadBank.entry_bytes(setting), WorkloadBank.rows_for(setting, num_clusters)
            require_memory({"num_envs": (num_clusters, each), "workloads kept": (rows, entry)})
        self.bank = WorkloadBank(setting, num_clusters)
        self._hold(*empty(num_clusters))
        self._physics = physics_of(setting.performance)
        self._horizon = float(setting.horizon)
        #: a row of the observation as a record of its blocks
        self._blocks = np.dtype(
            [
                (block.name, np.float32, block.shape(setting.cluster, setting.actions))
                for block in setting.observation.blocks
            ]
        )
        self._closed = False
        self.entries, self._rows = np.zeros((2, num_clusters), np.int64)
        self._everyone = np.arange(num_clusters)
        self._none_masked = np.zeros(num_clusters, np.bool_)
        self._null_actions = self._driver.null_actions(num_clusters)
        self._connect()

    def _hold(self, state: State, episode: Episode, out: Outputs) -> None:
        """Be about these arrays from now on."""
        self.state, self.episode, self._out = state, episode, out
        self.observations, self.masks, self.rewards = out.observations, out.masks, out.rewards
        self.returns, self.lengths = out.returns, out.lengths
        self._ends, self._playing = out.ends, out.playing

    def fork(self) -> Self:
        """An independent copy at the same moment; both go on making job tables in one bank."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._hold(copied_bundle(self.state), copied_bundle(self.episode), copied_bundle(self._out))
        copy.entries, copy._rows = self.entries.copy(), self._rows.copy()
        return copy

    def _connect(self) -> None:
        """Find what is no part of pickles and copies: the view of the bank, and machine code."""
        bank = self.bank
        self._bank = Bank(bank.records, bank.static, bank.num_jobs, bank.weights, bank.seeds)
        # types are looked at here, once: `_play` vouches for those of its arguments
        self._kernel = entry_point(self._driver.kernel)
        self._all_valid = entry_point(self._driver.all_valid)

    def __getstate__(self) -> dict[str, Any]:
        """All but what `_connect` finds."""
        found = ("_bank", "_kernel", "_all_valid")
        return {name: value for name, value in self.__dict__.items() if name not in found}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on where the other batch was."""
        self.__dict__.update(state)
        self._connect()

    def _play(self, clusters: NDArray[np.int64], phase: int, actions: NDArray[Any]) -> None:
        """Bring clusters to their next decision; actions are [B, ...], read in a step."""
        given = np.ascontiguousarray(actions, self._null_actions.dtype)
        clusters = np.ascontiguousarray(clusters, np.int64)
        play = partial(self._play_some, phase, given)
        if sum(in_parts(play, clusters, self.num_threads, self._driver.least_per_thread)):
            self._raise_stalled()

    def _play_some(self, phase: int, actions: NDArray[Any], clusters: NDArray[np.int64]) -> int:
        """The same in this thread; how many clusters are stalled."""
        stalled: int = self._kernel(
            self.state,
            self.episode,
            clusters,
            phase,
            self._rows,
            actions,
            self._bank,
            self._horizon,
            self._driver.config,
            self._physics,
            self._out,
        )
        return stalled

    @property
    def num_clusters(self) -> int:
        """B."""
        return len(self._everyone)

    @property
    def done(self) -> NDArray[np.bool_]:
        """[B] every job has finished."""
        return self._ends == DONE

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """[B] the window ended with jobs left."""
        return self._ends == TRUNCATED

    def ending(self, b: int) -> tuple[bool, bool]:
        """(`done`, `truncated`) of one cluster."""
        end = self._ends.item(b)
        return end == DONE, end == TRUNCATED

    def reset(self, clusters: NDArray[np.int64], entries: NDArray[np.int64]) -> None:
        """Begin bank entry `entries[i]` in cluster `clusters[i]`.

        Raises:
            WorkloadError: a job table that does not fit the cluster.
            ClosedError: after `close`.
        """
        self._check_open()
        self._rows[clusters] = self.bank.rows_of(entries)
        self.entries[clusters] = entries
        for b, entry in zip(clusters.tolist(), entries.tolist(), strict=True):
            self.episode = self._driver.with_rates(self.episode, b, self.bank.rates[entry])
        self._play(clusters, BEGIN, self._null_actions)

    def possible(self, actions: NDArray[Any], clusters: NDArray[np.int64]) -> bool:
        """Whether the given clusters are in an episode and their actions [B, ...] can be carried out."""
        given = np.ascontiguousarray(actions, self._null_actions.dtype)
        if given.shape != self._null_actions.shape:  # which machine code does not look at
            raise ActionError(f"actions have shape {given.shape}; expected {self._null_actions.shape}")
        out = self._out
        valid: bool = self._all_valid(out.masks, out.playing, given, np.ascontiguousarray(clusters, np.int64))
        return valid

    def valid(self, actions: NDArray[Any], clusters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[clusters] replace masked actions as `Actions.on_invalid` says, in place; which were masked.

        Raises:
            ActionError: an action outside the space, or a masked one with on_invalid "raise".
            ResetNeededError: a cluster without an episode: before `reset`, or after the end.
            ClosedError: after `close`.
        """
        if self.possible(actions, clusters):
            return self._none_masked[: len(clusters)]
        self._check_playing(clusters)
        masked: NDArray[np.bool_] = self._driver.replace_invalid(self.masks, actions, clusters)
        return masked

    def step(self, actions: NDArray[Any], clusters: NDArray[np.int64] | None = None) -> None:
        """One valid action [B, ...] in each of the given clusters (all by default).

        Raises:
            SchedulerError: the policy waits while nothing runs and no template can ever place a job, or time
                stands still (`livelock.time_stands_still`).
        """
        self._play(self._everyone if clusters is None else clusters, STEP, actions)

    def close(self) -> None:
        """Refuse steps and resets from now on."""
        self._playing[:] = False
        self._closed = True

    def check_begun(self) -> None:
        """See to it that there is something to look at in every cluster.

        Raises:
            ResetNeededError: a cluster that was never reset.
        """
        begun = self._playing | (self._ends != GOES_ON)
        if not (begun.all() or self._closed):
            raise ResetNeededError(f"cluster {int(begun.argmin())} has no episode yet; call reset() first")

    def copy_clusters(self, sources: NDArray[np.int64]) -> None:
        """Make each cluster b a copy of cluster `sources[b]`, in the middle of its episode."""
        one, two = (arrays_of(*empty_arrays(self.setting, self._driver, 0, None, count)) for count in (1, 2))
        own = arrays_of(self.state, self.episode, self._out)
        for array, first, second in zip(own, one, two, strict=True):
            if len(first) != len(second):  # else it is of no cluster, but of all
                array[:] = array[sources]
        self.entries[:] = self.entries[sources]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the environment is closed; make a new one")

    def _check_playing(self, clusters: NDArray[np.int64]) -> None:
        self._check_open()
        idle = clusters[~self._playing[clusters]]
        if len(idle):
            ended = self._ends[idle[0]] != GOES_ON
            what = "has ended its episode" if ended else "has no episode yet"
            raise ResetNeededError(f"cluster {idle[0]} {what}; call reset() before step()")

    def settle(self, rates: Rates | None = None) -> None:
        """Go to the next decision of simulations that were set up elsewhere.

        Args:
            rates: of their jobs, if they are the same in all clusters and `bank.rates_of` them is known.

        Raises:
            SchedulerError: as `step`.
        """
        for b in range(self.num_clusters):
            count = int(self.state.clusters["num_jobs"][b])
            jobs = self.state.jobs[b, :count]
            self.episode.static[b, :count] = static_features(jobs)
            self.episode = self._driver.with_rates(self.episode, b, rates or self.bank.rates_of(jobs))
        self._play(self._everyone, SETTLE, self._null_actions)

    def allocations(self, b: int, action: Any) -> list[Allocation]:
        """What a valid action of cluster b gives to jobs, in order; none if it waits. All stays as it is."""
        return self._driver.allocations(self.state, self.episode, b, action, self._physics)

    def _raise_stalled(self) -> None:
        b = int(np.flatnonzero(self._ends == STALLED)[0])
        raise_if_still(self.state, b)
        raise SchedulerError(
            f"cluster {b} is idle, {self.state.clusters['num_waiting'][b]} jobs wait and no action"
            " template finds GPUs for them; add one that can split jobs over servers (pack)"
        )

    def mean_jct(self, b: int) -> float:
        """Mean completion time of cluster b's finished jobs that were not blocked, seconds; NaN if none."""
        cluster = self.state.clusters[b]
        served = int(cluster["num_done"] - self.state.integrals[b, Integral.BLOCKED_JOBS])
        return float(cluster["served_jct"]) / served if served else float("nan")

    def metrics(self, b: int) -> Metrics:
        """Of cluster b's finished jobs."""
        return measure(self.state, b, self.bank.table(int(self.entries[b])))

    def split(self, rows: NDArray[np.float32]) -> Any:
        """Observation rows [..., size], contiguous, as the space has them: windows on the same numbers."""
        if self.setting.observation.flat:
            return rows
        records: NDArray[np.void] = np.ndarray(rows.shape[:-1], self._blocks, rows)
        return {name: records[name] for name in self._blocks.names or ()}
