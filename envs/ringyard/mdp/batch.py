"""`ClusterBatch`: B clusters in one set of arrays, stepped by one compiled call, below all environments."""

from dataclasses import fields, replace
from functools import partial
from typing import Any, Self

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import JobUtilities
from ringyard.checks import require_memory, row_bytes
from ringyard.compiled import BoolVector, FloatVector, IntVector, entry_point
from ringyard.errors import ActionError, EpisodeError, SchedulerError
from ringyard.mdp.actions import Actions, AllocatorActions
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import Episode, StepOutputs, arrays_of, copy_bundle
from ringyard.mdp.step import BEGIN, ONGOING, RESUME, STALLED, STEP, StepConfig, all_valid, step
from ringyard.mdp.step_discrete import DiscreteDriver
from ringyard.mdp.step_scores import AllocatorDriver, with_utilities
from ringyard.mdp.workload_cache import WorkloadCache, empty_signals, static_features
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.livelock import raise_if_livelocked
from ringyard.sim.engine.setup import new_state
from ringyard.sim.metrics import Metrics, measure
from ringyard.state.arrays import State
from ringyard.threads import get_num_threads, run_in_parts, usable_cores


class ResetNeededError(EpisodeError, gymnasium.error.ResetNeeded):
    """A step before `reset`, or after the end of an episode without autoreset."""


class ClosedError(EpisodeError, gymnasium.error.ClosedEnvironmentError):
    """A call of `step` or `reset` after `close`."""


def _create_driver(config: EnvConfig) -> DiscreteDriver | AllocatorDriver:
    actions = config.actions
    if isinstance(actions, AllocatorActions):
        return AllocatorDriver(actions, config.cluster, config.performance.plans)
    assert isinstance(actions, Actions)
    return DiscreteDriver(actions)


class ClusterBatch:
    """A batch of B simulations with their observations, masks and rewards, in new arrays or a given `state`.

    Too many clusters or job tables for memory are an error. `segment_rows` intervals are recorded,
    and at most one thread per core steps parts (`num_threads`, None: `ringyard.get_num_threads()`).

    Attributes:
        observations: [B, size] float32, overwritten by each step.
        masks: [B, actions] valid actions, [B, N] scores with a job, or [B, weights] True, overwritten too.
        rewards: [B] rewards of the last step: of a vector reward the sum of its components.
        rewards_given: what environments return: the same, or [B, components] of a vector reward.
        done: [B] True where every job has ended.
        truncated: [B] True where `limit_seconds` was reached before that.
        replaced: [B] True where a masked action was replaced in the last step.
        infos: {key of `info`: [B, ...] values}, overwritten by each step.
        entries: [B] number of the job table of each episode.
        lengths: [B] steps of each episode.
        returns: [B] undiscounted sum of the rewards of each episode.
    """

    def __init__(
        self,
        config: EnvConfig,
        num_clusters: int,
        segment_rows: int = 0,
        state: State | None = None,
        num_threads: int | None = None,
    ) -> None:
        self.config = config
        self.num_threads = min(num_threads, usable_cores()) if num_threads else get_num_threads()
        self._driver = _create_driver(config)
        if state is None:
            each = row_bytes(arrays_of(*self._empty(0, segment_rows))) + WorkloadCache.utilities_bytes(config)
            entry, rows = WorkloadCache.entry_bytes(config), WorkloadCache.rows_for(config, num_clusters)
            require_memory({"num_envs": (num_clusters, each), "num_workloads in memory": (rows, entry)})
        self.workload_cache = WorkloadCache(config, num_clusters)
        self._use(*self._empty(num_clusters, segment_rows, state))
        observation = config.observation
        limit = np.inf if config.limit_seconds is None else float(config.limit_seconds)
        driver, physics = self._driver, config.performance.physics
        write, parameters = observation.write, observation.parameters
        discount = -1.0 if config.reward.shaping is None else float(config.reward.shaping)
        decode, actions = driver.decode, replace(driver.config, shows_estimates=observation.estimates)
        self._step_config = StepConfig(decode, actions, write, parameters, physics, limit, discount)
        #: record with the blocks of an observation row as fields
        lengths = observation.lengths(config.cluster, config.actions)
        self._blocks = np.dtype([(name, np.float32, (length,)) for name, length in lengths.items()])
        self._closed = False
        #: {job table: [2, times] seconds and returns of an episode with equal scores}, see `Reward.saved`
        self._with_equal_scores: dict[int, NDArray[np.float64]] = {}
        self._workload_rows = np.zeros(num_clusters, np.int64)
        self._all_clusters = np.arange(num_clusters)
        space: Any = config.actions.space
        self._null_actions = np.zeros((num_clusters, *space.shape), space.dtype)
        #: arguments of the compiled step for the other action space
        self._no_numbers = np.zeros(num_clusters, np.int64)
        self._no_scores = np.zeros((num_clusters, 0), np.float32)

    def _empty(
        self, num_clusters: int, segment_rows: int = 0, state: State | None = None
    ) -> tuple[State, Episode, StepOutputs]:
        """Create the arrays of `num_clusters` clusters, with a new state unless one is given."""
        config = self.config
        cluster, actions, jobs = config.cluster, config.actions, config.workload.num_jobs
        if state is None:
            state = new_state(
                cluster,
                config.performance,
                config.failures,
                num_clusters,
                num_jobs=jobs,
                num_classes=jobs,
                round_seconds=actions.round_seconds,
                segment_rows=segment_rows,
            )
        size = config.observation.size(cluster, actions)
        kinds = {FloatVector: np.float64, IntVector: np.int64, BoolVector: np.bool_}
        vectors = {one.name: kinds[one.type] for one in fields(StepOutputs) if one.type in kinds}
        out = StepOutputs(
            observations=np.zeros((num_clusters, size), np.float32),
            masks=np.zeros((num_clusters, actions.mask_size), np.bool_),
            parts=np.zeros((num_clusters, len(config.reward.parts))),
            **{name: np.zeros(num_clusters, kind) for name, kind in vectors.items()},
        )
        weights, due = empty_signals(config, num_clusters)
        return state, replace(self._driver.episode(state), weights=weights, due_seconds=due), out

    def _use(self, state: State, episode: Episode, out: StepOutputs) -> None:
        """Set the arrays of this batch."""
        self.state, self.episode, self._out = state, episode, out
        self.observations, self.masks, self.rewards = out.observations, out.masks, out.rewards
        self.returns, self.lengths = out.returns, out.lengths
        self.done, self.truncated = out.done, out.truncated
        self.rewards_given = out.parts if self.config.reward.parts else out.rewards
        self.replaced, self.entries = out.replaced, out.entries
        self.infos = dict[str, NDArray[Any]](action_mask=out.masks, invalid_action=out.replaced)
        self.infos["workload"] = out.entries
        names = ("episode_jct", "episode_slowdown", "episode_preemptions", "num_finished")
        self.infos |= {name: getattr(out, name) for name in names}
        if self.config.cost is not None:
            self.infos["cost"] = out.costs

    def fork(self) -> Self:
        """Return an independent copy at the same moment. Both share the cache of job tables."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._use(copy_bundle(self.state), copy_bundle(self.episode), copy_bundle(self._out))
        copy._workload_rows = self._workload_rows.copy()
        return copy

    def action_array(self, actions: Any) -> NDArray[Any]:
        """Return a new array [B, ...] of the space's type, unchecked values, or raise an ActionError."""
        wanted = self._null_actions
        try:
            given = np.asarray(actions)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # ragged, or on another device
            raise self._action_error(f"not an array ({error})") from error
        kind = given.dtype
        if given is not actions and isinstance(actions, list | tuple) and bool in map(type, actions):
            kind = np.dtype(bool)  # NumPy converts a boolean among numbers to a number
        if given.shape != wanted.shape or kind.kind not in ("iu" if wanted.ndim == 1 else "fiu"):
            raise self._action_error(f"{kind} of shape {given.shape}")
        if kind.kind == "u" and given.max() > np.iinfo(np.int64).max:
            raise self._action_error(f"as large as {given.max()}")
        return given.astype(wanted.dtype, order="C")

    def _action_error(self, found: str) -> ActionError:
        expected = f"{self.expected_action} for each of the {self.num_clusters} clusters"
        return ActionError(f"actions are {found}; expected {expected}")

    @property
    def expected_action(self) -> str:
        """Description of an action of one cluster, for errors."""
        _, *shape = self._null_actions.shape
        if shape:
            return f"an array of shape {tuple(shape)}, numbers from -1 to 1,"
        return f"an integer from 0 to {self.config.actions.mask_size - 1}"

    def _kernel_actions(self, actions: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return [B] action numbers and [B, scores], of which the compiled step reads one."""
        read = np.ascontiguousarray(actions, self._null_actions.dtype)
        if read.shape != self._null_actions.shape:  # the compiled step would read beyond the array
            raise ActionError(f"actions have shape {read.shape}; expected {self._null_actions.shape}")
        return (read, self._no_scores) if read.ndim == 1 else (self._no_numbers, read)

    def _run(self, clusters: NDArray[np.int64], phase: int, actions: NDArray[Any]) -> None:
        """Advance clusters to their next decision. Only phase STEP reads the actions [B, ...]."""
        numbers, scores = self._kernel_actions(actions)
        clusters, least = np.ascontiguousarray(clusters, np.int64), self._driver.min_per_thread
        given = (phase, numbers, scores, self.workload_cache.rows, self._workload_rows, self._step_config)
        run = partial(entry_point(step), self.state, self.episode, self._out, *given)
        one_part = len(clusters) < 2 * least
        if run(clusters) if one_part else sum(run_in_parts(run, clusters, self.num_threads, least)):
            b = int(np.flatnonzero(self._out.ends == STALLED)[0])
            raise_if_livelocked(self.state, b)
            raise SchedulerError(
                f"cluster {b} is idle, {self.state.clusters['num_waiting'][b]} jobs wait and no action"
                " template finds GPUs for them; add a template that splits jobs over servers (pack)"
            )

    @property
    def num_clusters(self) -> int:
        """B, the number of clusters."""
        return len(self._all_clusters)

    def reset(self, clusters: NDArray[np.int64], entries: NDArray[np.int64]) -> None:
        """Begin an episode with job table `entries[i]` in cluster `clusters[i]`.

        Raises:
            WorkloadError: a job of a table does not fit the cluster.
            ClosedError: after `close`.
        """
        self._check_open()
        self._workload_rows[clusters] = self.workload_cache.rows_of(entries)
        self.entries[clusters] = entries
        for b, entry in zip(clusters.tolist(), entries.tolist(), strict=True):
            memory = self.workload_cache.estimate_memory(entry)
            self._set_utilities(b, self.workload_cache.utilities[entry], memory)
        self._run(clusters, BEGIN, self._null_actions)
        if self.config.reward.saved:
            self._play_with_equal_scores(clusters)

    def _play_with_equal_scores(self, clusters: NDArray[np.int64]) -> None:
        """Play a copy of a cluster to its end for each new job table, and keep its returns by time."""
        present = set(self.entries.tolist())
        kept = {entry: curve for entry, curve in self._with_equal_scores.items() if entry in present}
        new = {self.entries.item(b): b for b in clusters.tolist() if self.entries.item(b) not in kept}
        self._with_equal_scores = kept
        if not new:
            return
        copy, curves, played = self.fork(), [], np.array(list(new.values()), np.int64)
        left = played
        while True:
            curves.append((copy.state.clusters["now"][played], copy.returns[played]))
            if not len(left):
                break
            copy._run(left, STEP, self._null_actions)
            left = left[copy._out.active_mask[left]]
        curve = np.ascontiguousarray(np.array(curves).transpose(2, 1, 0))
        self._with_equal_scores = kept | dict(zip(new, curve, strict=True))

    def _set_utilities(self, b: int, utilities: JobUtilities | None, memory: NDArray[np.float64]) -> None:
        """Give the allocator the speeds of cluster b's jobs and its memory, if actions are scores."""
        if utilities is not None:
            self.episode = with_utilities(self.episode, b, utilities, memory)

    def all_valid(self, actions: NDArray[Any], clusters: NDArray[np.int64]) -> bool:
        """Return whether `clusters` are in an episode and their `actions` [B, ...] are valid."""
        numbers, scores = self._kernel_actions(actions)
        return entry_point(all_valid)(self._out, np.ascontiguousarray(clusters, np.int64), numbers, scores)

    def replace_invalid(self, actions: NDArray[Any], clusters: NDArray[np.int64]) -> None:
        """Replace masked actions in place, as `Actions.on_invalid` says. `replaced` tells which.

        Args:
            actions: [B, ...] actions.
            clusters: [stepped] indices of the clusters to check.

        Raises:
            ActionError: an action outside of the space, or a masked one with `on_invalid="raise"`.
            ResetNeededError: a cluster before `reset`, or after the end of its episode.
            ClosedError: after `close`.
        """
        self.replaced.fill(False)
        if self.all_valid(actions, clusters):
            return
        self._check_open()
        idle = clusters[~self._out.active_mask[clusters]]
        if len(idle):
            ended = self._out.ends[idle[0]] != ONGOING
            found = "has ended its episode" if ended else "has no episode yet"
            raise ResetNeededError(f"cluster {idle[0]} {found}; call reset() before step()")
        self.replaced[clusters] = self._driver.replace_invalid(self.masks, actions, clusters)

    def step(self, actions: NDArray[Any], clusters: NDArray[np.int64] | None = None) -> None:
        """Carry out valid `actions` [B, ...] in the given `clusters` (all by default).

        Raises:
            SchedulerError: no job runs or arrives and no template can start a waiting job, or time does not
                advance (`ringyard.sim.engine.livelock`).
        """
        stepped = self._all_clusters if clusters is None else clusters
        if not self.config.reward.saved:
            self._run(stepped, STEP, actions)
            return
        before = self.state.clusters["now"][stepped]
        self._run(stepped, STEP, actions)
        for b, since in zip(stepped.tolist(), before.tolist(), strict=True):
            until = self.state.clusters["now"].item(b) if self._out.active_mask[b] else np.inf
            then, now = np.interp((since, until), *self._with_equal_scores[self.entries.item(b)])
            self.rewards[b] -= now - then
            self.returns[b] -= now - then

    def close(self) -> None:
        """Let later steps and resets raise a `ClosedError`."""
        self._out.active_mask[:] = False
        self._closed = True

    def require_episode(self) -> None:
        """Raise a `ResetNeededError` if a cluster was never reset."""
        begun = self._out.active_mask | (self._out.ends != ONGOING)
        if not (begun.all() or self._closed):
            raise ResetNeededError(f"cluster {int(begun.argmin())} has no episode yet; call reset() first")

    def copy_clusters(self, sources: NDArray[np.int64]) -> None:
        """Overwrite each of the first clusters b with cluster `sources[b]` at its present moment."""
        one, two = arrays_of(*self._empty(1)), arrays_of(*self._empty(2))
        own = arrays_of(self.state, self.episode, self._out)
        for array, first, second in zip(own, one, two, strict=True):
            if len(first) != len(second):  # else the array has no axis of clusters
                array[: len(sources)] = array[sources]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the environment is closed; create a new one")

    def resume(
        self, utilities: JobUtilities | None = None, memory: NDArray[np.float64] | None = None
    ) -> None:
        """Advance a given `state` to the next decision.

        Args:
            utilities: those of the jobs of all clusters. None: they are found.
            memory: [jobs, numbers] memory of the allocator's estimate. None: zeros.
        """
        memory = np.zeros((0, 0)) if memory is None else memory
        for b in range(self.num_clusters):
            count = int(self.state.clusters["num_jobs"][b])
            jobs = self.state.jobs[b, :count]
            self.episode.static[b, :count] = static_features(jobs)
            self._set_utilities(b, utilities or self.workload_cache.utilities_of(jobs), memory)
        self._run(self._all_clusters, RESUME, self._null_actions)

    def allocations(self, b: int, action: Any) -> list[Allocation]:
        """Return the allocations of a valid `action` of cluster `b`, none if it waits. Changes nothing."""
        return self._driver.allocations(self.state, self.episode, b, action, self._step_config.physics)

    def episode_costs(self) -> NDArray[np.float64]:
        """Return [B] sums of the costs of each episode so far."""
        weights, late = self.episode.weights[:, -1], self.episode.num_late
        return np.asarray((weights[:, :-1] * self.state.integrals).sum(axis=1) + weights[:, -1] * late)

    def metrics(self, b: int) -> Metrics:
        """Return the metrics of cluster b's ended jobs."""
        return measure(self.state, b, self.workload_cache.table(int(self.entries[b])))

    def split(self, rows: NDArray[np.float32]) -> Any:
        """Return contiguous observation rows [..., size] in the form of the space, as views."""
        if self.config.observation.flat:
            return rows
        records: NDArray[np.void] = np.ndarray(rows.shape[:-1], self._blocks, rows)
        return {name: records[name] for name in self._blocks.names or ()}
