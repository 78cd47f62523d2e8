"""B clusters in one set of arrays, stepped by one compiled call: the engine under every face."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ActionError, SchedulerError
from ringyard.mdp.bank import WorkloadBank, static_features
from ringyard.mdp.episode import empty_episode
from ringyard.mdp.kernel import (
    DONE,
    STALLED,
    TRUNCATED,
    Bank,
    How,
    Outputs,
    all_valid,
    reset_batch,
    settle_batch,
    step_batch,
)
from ringyard.mdp.setting import Setting
from ringyard.records import State, empty_state
from ringyard.sim.setup import set_up_clusters

__all__ = ["ClusterBatch"]


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
    """

    def __init__(
        self,
        setting: Setting,
        num_clusters: int,
        segment_rows: int = 0,
        state: State | None = None,
    ) -> None:
        self.setting = setting
        self.bank = WorkloadBank(setting)
        cluster, actions = setting.cluster, setting.actions
        if state is None:
            jobs = setting.workload.num_jobs
            classes = min(jobs, cluster.num_gpus) + 1
            state = empty_state(
                num_clusters, jobs, cluster.num_gpus, cluster.num_servers, classes, segment_rows=segment_rows
            )
            set_up_clusters(state, cluster, setting.performance.network_coupled)
        self.state = state
        jobs, classes = state.waiting.shape[1], state.class_waiting.shape[1]
        templates = tuple(actions.templates)
        self.episode = empty_episode(num_clusters, jobs, classes, actions.num_waiting, len(templates))
        parameters = np.zeros((len(templates), max(len(rule.parameters) for rule in templates)))
        for row, rule in zip(parameters, templates, strict=True):
            row[: len(rule.parameters)] = rule.parameters
        self._how = How(
            np.array([rule.place.addresses for rule in templates], dtype=np.int64),
            parameters,
            np.array([setting.observation.write.addresses], dtype=np.int64),
            len(templates),
            actions.num_running,
            actions.preemptive,
        )
        self._rate = setting.performance.rate
        size = setting.observation.size(cluster, actions)
        self._out = Outputs(
            observations=np.zeros((num_clusters, size), np.float32),
            masks=np.zeros((num_clusters, actions.num_actions), np.bool_),
            rewards=np.zeros(num_clusters),
            returns=np.zeros(num_clusters),
            lengths=np.zeros(num_clusters, np.int64),
            ends=np.zeros(num_clusters, np.int64),
        )
        self.observations, self.masks, self.rewards, self.returns, self.lengths, self._ends = self._out
        self.entries = np.zeros(num_clusters, np.int64)
        self._everyone = np.arange(num_clusters)
        self._none_masked = np.zeros(num_clusters, np.bool_)

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
        """
        self.bank.fill(entries)
        self.entries[clusters] = entries
        bank = Bank(self.bank.records, self.bank.static, self.bank.num_jobs, self.bank.weights)
        horizon = self.setting.horizon
        reset_batch(
            self.state, self.episode, clusters, entries, bank, horizon, self._how, self._rate, self._out
        )
        self._raise_stalled()

    def valid(self, actions: NDArray[np.int64], clusters: NDArray[np.int64]) -> NDArray[np.bool_]:
        """[clusters] replace masked actions as `Actions.on_invalid` says, in place; which were masked.

        Raises:
            ActionError: an action outside the space, or a masked one with on_invalid "raise".
        """
        if all_valid(self.masks, actions, clusters):
            return self._none_masked[: len(clusters)]
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
            SchedulerError: the policy waits while nothing runs and no template can ever place a job.
        """
        stepped = self._everyone if clusters is None else clusters
        step_batch(self.state, self.episode, stepped, actions, self._how, self._rate, self._out)
        self._raise_stalled()

    def settle(self) -> None:
        """Go to the next decision of simulations that were set up elsewhere.

        Raises:
            SchedulerError: as `step`.
        """
        for b in range(self.num_clusters):
            count = int(self.state.clusters["num_jobs"][b])
            self.episode.static[b, :count] = static_features(self.state.jobs[b, :count])
        settle_batch(self.state, self.episode, self._how, self._rate, self._out)
        self._raise_stalled()

    def _raise_stalled(self) -> None:
        if self._ends.max() == STALLED:
            b = int(np.flatnonzero(self._ends == STALLED)[0])
            raise SchedulerError(
                f"cluster {b} is idle, {self.state.clusters['num_waiting'][b]} jobs wait and no action"
                " template finds GPUs for them; add one that can split jobs over servers (pack)"
            )

    def mean_jct(self, b: int) -> float:
        """Mean completion time of cluster b's finished jobs, seconds; NaN if none finished."""
        cluster = self.state.clusters[b]
        finished = int(cluster["num_done"])
        return float(cluster["finished_jct"]) / finished if finished else float("nan")

    def split(self, rows: NDArray[np.float32]) -> Any:
        """Observation rows as the space has them."""
        return self.setting.observation.split(rows, self.setting.cluster, self.setting.actions)
