"""B clusters in one set of arrays, stepped by one compiled call: the engine under every face."""

from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import require_memory, row_bytes
from ringyard.compiled import entry_point
from ringyard.errors import ActionError, SchedulerError
from ringyard.mdp.actions.moves import describe, options_of
from ringyard.mdp.arguments import ClosedError, ResetNeededError
from ringyard.mdp.bank import WorkloadBank, static_features
from ringyard.mdp.episode import Episode, empty_episode
from ringyard.mdp.kernel import (
    BEGIN,
    DONE,
    GOES_ON,
    SETTLE,
    STALLED,
    STEP,
    TRUNCATED,
    Bank,
    Outputs,
    StepRules,
    all_valid,
    play_batch,
)
from ringyard.mdp.setting import Setting
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.physics import physics_of
from ringyard.sim.engine.setup import new_state
from ringyard.sim.engine.standstill import raise_if_still
from ringyard.sim.metrics import Metrics, measure
from ringyard.state.arrays import State
from ringyard.state.records import Integral, JobKind, JobStatus

__all__ = ["ClusterBatch"]


def _arrays(*bundles: State | Episode | Outputs) -> list[NDArray[Any]]:
    return [getattr(bundle, field.name) for bundle in bundles for field in fields(bundle)]


def _empty(
    setting: Setting, segment_rows: int, state: State | None, num_clusters: int
) -> tuple[State, Episode, Outputs]:
    """Arrays of so many clusters; the state may be there already."""
    cluster, actions = setting.cluster, setting.actions
    if state is None:
        jobs = setting.workload.num_jobs
        state = new_state(
            cluster,
            setting.performance,
            setting.failures,
            num_clusters,
            num_jobs=jobs,
            num_classes=jobs,
            segment_rows=segment_rows,
        )
    jobs, classes = state.waiting.shape[1], state.class_waiting.shape[1]
    num_templates = len(actions.starts)
    episode = empty_episode(num_clusters, jobs, classes, actions.num_waiting, num_templates)
    size = setting.observation.size(cluster, actions)
    out = Outputs(
        observations=np.zeros((num_clusters, size), np.float32),
        masks=np.zeros((num_clusters, actions.num_actions), np.bool_),
        rewards=np.zeros(num_clusters),
        returns=np.zeros(num_clusters),
        lengths=np.zeros(num_clusters, np.int64),
        ends=np.zeros(num_clusters, np.int64),
        playing=np.zeros(num_clusters, np.bool_),
    )
    return state, episode, out


class ClusterBatch:
    """A batch of simulations with their observations, masks and rewards.

    Args:
        setting: the decision process.
        num_clusters: B.
        segment_rows: history kept for drawing.
        state: arrays of a simulation set up elsewhere, to be acted on; None makes new ones.

    Attributes:
        observations: [B, size] float32, overwritten by each step.
        masks: [B, actions] valid actions, overwritten by each step.
        rewards: [B] of the last step.
        entries: [B] bank entry of each running episode.
        lengths: [B] steps of each running episode.
        returns: [B] undiscounted reward sum of each running episode.

    Raises:
        ConfigurationError: more clusters, or more workloads, than this machine has memory for.
    """

    def __init__(
        self,
        setting: Setting,
        num_clusters: int,
        segment_rows: int = 0,
        state: State | None = None,
    ) -> None:
        self.setting = setting
        empty = partial(_empty, setting, segment_rows, state)
        require_memory(
            {
                "num_envs": (num_clusters, row_bytes(_arrays(*empty(0)))),
                "setting.num_workloads": (setting.num_workloads, WorkloadBank.entry_bytes(setting)),
            }
        )
        self.bank = WorkloadBank(setting)
        self.state, self.episode, self._out = empty(num_clusters)
        cluster, actions = setting.cluster, setting.actions
        observation = setting.observation
        self._how = StepRules(
            options_of(actions), observation.write, observation.parameters, actions.num_running
        )
        self._physics = physics_of(setting.performance)
        self._windows = observation.windows(cluster, actions)
        out = self._out
        self.observations, self.masks, self.rewards = out.observations, out.masks, out.rewards
        self.returns, self.lengths = out.returns, out.lengths
        self._ends, self._playing = out.ends, out.playing
        self._closed = False
        self.entries = np.zeros(num_clusters, np.int64)
        self._everyone = np.arange(num_clusters)
        self._none_masked = np.zeros(num_clusters, np.bool_)
        self._connect()

    def _connect(self) -> None:
        """Find what is no part of pickles and copies: the view of the bank, and machine code."""
        bank = self.bank
        self._bank = Bank(bank.records, bank.static, bank.num_jobs, bank.weights)
        # types are looked at here, once: `_play` vouches for those of its arguments
        self._kernel = entry_point(play_batch)

    def __getstate__(self) -> dict[str, Any]:
        """All but what `_connect` finds."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_bank", "_kernel")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Go on where the other batch was."""
        self.__dict__.update(state)
        self._connect()

    def _arguments(
        self, clusters: NDArray[np.int64], what: int, numbers: NDArray[np.int64]
    ) -> tuple[Any, ...]:
        return (
            self.state,
            self.episode,
            clusters,
            what,
            numbers,
            self._bank,
            float(self.setting.horizon),
            self._how,
            self._physics,
            self._out,
        )

    def _play(self, clusters: NDArray[np.int64], what: int, numbers: NDArray[np.int64]) -> None:
        """Bring clusters to their next decision; numbers are actions or bank entries, [B]."""
        clusters = np.ascontiguousarray(clusters, np.int64)
        numbers = np.ascontiguousarray(numbers, np.int64)
        self._kernel(*self._arguments(clusters, what, numbers))
        self._raise_stalled()

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

    def reset(self, clusters: NDArray[np.int64], entries: NDArray[np.int64]) -> None:
        """Begin bank entry `entries[i]` in cluster `clusters[i]`.

        Raises:
            WorkloadError: a job table that does not fit the cluster.
            ClosedError: after `close`.
        """
        self._check_open()
        self.bank.fill(entries)
        self.entries[clusters] = entries
        self._play(clusters, BEGIN, self.entries)

    def valid(self, actions: NDArray[np.int64], clusters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[clusters] replace masked actions as `Actions.on_invalid` says, in place; which were masked.

        Raises:
            ActionError: an action outside the space, or a masked one with on_invalid "raise".
            ResetNeededError: a cluster without an episode: before `reset`, or after the end.
            ClosedError: after `close`.
        """
        if all_valid(self.masks, self._playing, actions, clusters):
            return self._none_masked[: len(clusters)]
        self._check_playing(clusters)
        chosen = actions[clusters]
        num_actions = self.masks.shape[1]
        if chosen.min() < 0 or chosen.max() >= num_actions:
            wrong = chosen[(chosen < 0) | (chosen >= num_actions)][0]
            raise ActionError(f"action {wrong} is outside Discrete({num_actions})")
        masked = ~self.masks[clusters, chosen]
        if self.setting.actions.on_invalid == "raise":
            first = int(np.flatnonzero(masked)[0])
            raise ActionError(
                f"action {chosen[first]} is masked in cluster {clusters[first]}; choose one where"
                " action_masks() is True, or set on_invalid='wait'"
            )
        wait = self.setting.actions.wait
        bad = clusters[masked]
        actions[bad] = np.where(self.masks[bad, wait], wait, self.masks[bad].argmax(axis=1))
        return masked

    def step(self, actions: NDArray[np.int64], clusters: NDArray[np.int64] | None = None) -> None:
        """One valid action in each of the given clusters (all by default).

        Raises:
            SchedulerError: the policy waits while nothing runs and no template can ever place a job, or time
                stands still (`standstill.time_stands_still`).
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

    def settle(self) -> None:
        """Go to the next decision of simulations that were set up elsewhere.

        Raises:
            SchedulerError: as `step`.
        """
        for b in range(self.num_clusters):
            count = int(self.state.clusters["num_jobs"][b])
            self.episode.static[b, :count] = static_features(self.state.jobs[b, :count])
        self._play(self._everyone, SETTLE, self._everyone)

    def allocation(self, b: int, action: int) -> Allocation:
        """What a valid action other than waiting gives to its job; nothing is carried out."""
        visible = self.setting.actions.num_waiting
        j, count, shape = describe(self.state, b, self._how.options, visible, action)
        if count == 0:
            waits = self.state.jobs["status"][b, j] == JobStatus.WAITING
            return Allocation(int(j), reject=bool(waits))
        places = tuple(sorted(int(one) for one in self.state.gpu_scratch[b, :count]))
        record = self.state.jobs[b, j]
        if record["kind"] == JobKind.CPU_ONLY:
            cap = shape.memory_bandwidth_cap
            return Allocation(int(j), (), shape.cores_per_worker, server=places[0], memory_bandwidth_cap=cap)
        return Allocation(int(j), places, shape.cores_per_worker, shape.batch_size)

    def _raise_stalled(self) -> None:
        if self._ends.max() == STALLED:
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
        """Observation rows as the space has them."""
        if self.setting.observation.flat:
            return rows
        return {name: rows[..., window] for name, window in self._windows.items()}
