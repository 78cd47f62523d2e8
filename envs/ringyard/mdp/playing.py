"""How a batch plays each kind of actions: kernel and arrays, what is valid, what an action allocates."""

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.allocator import Rates, empty_plan, moves_of, put_rates, with_rates_of, with_room_for
from ringyard.errors import ActionError, ConfigurationError
from ringyard.information import Information
from ringyard.mdp.actions import ActionKind, Actions, Scores
from ringyard.mdp.actions.moves import describe, options_of
from ringyard.mdp.choosing import Choices, all_valid, play_chosen
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import Episode, empty_episode
from ringyard.mdp.kernel import Sight
from ringyard.mdp.scoring import Scorings, all_inside, allocate_by, play_scored
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.physics import Physics
from ringyard.state.arrays import State, copy_state
from ringyard.state.records import JobKind, JobStatus

__all__ = ["Playing", "playing"]


class Playing(Protocol):
    """What a `ClusterBatch` leaves to the kind of its actions.

    Attributes:
        kernel: brings clusters to their next decision; how many are stalled.
        all_valid: (masks, playing, actions, clusters) -> whether these clusters are in an episode and their
            actions in the space and not masked; a kernel.
        how: what clusters share, as the kernel reads it.
        least_per_thread: clusters below which another thread costs more than it saves.
    """

    kernel: Any
    all_valid: Any
    how: Any
    least_per_thread: int

    def episode(self, state: State) -> Episode:
        """Arrays for the clusters of a state."""
        ...

    def nothing(self, num_clusters: int) -> NDArray[Any]:
        """[num_clusters, ...] actions that nobody reads."""
        ...

    def mend(self, masks: NDArray[np.bool_], actions: NDArray[Any], clusters: NDArray[np.int64]) -> Any:
        """[clusters] replace masked actions in place, if the setting says so; which were masked.

        Raises:
            ActionError: outside the space, or masked.
        """
        ...

    def with_rates(self, episode: Episode, b: int, rates: Rates | None) -> Episode:
        """The episode of which cluster b has the jobs whose rates these are."""
        ...

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        """What an action of cluster b gives to jobs, in order; nothing is carried out."""
        ...


class _Choosing:
    """Plays `Actions`: a step takes microseconds, as handing clusters to a thread does."""

    kernel = play_chosen
    all_valid = all_valid
    least_per_thread = 128

    def __init__(self, setting: EnvConfig, actions: Actions) -> None:
        self._actions = actions
        observation = setting.observation
        sight = Sight(observation.write, observation.parameters, actions.num_running)
        self.how = Choices(options_of(actions), actions.num_running, sight)

    def episode(self, state: State) -> Episode:
        return empty_episode(state, self._actions.num_waiting, len(self._actions.starts))

    def nothing(self, num_clusters: int) -> NDArray[np.int64]:
        return np.zeros(num_clusters, np.int64)

    def mend(
        self, masks: NDArray[np.bool_], actions: NDArray[np.int64], clusters: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        chosen = actions[clusters]
        num_actions = masks.shape[1]
        if chosen.min() < 0 or chosen.max() >= num_actions:
            wrong = chosen[(chosen < 0) | (chosen >= num_actions)][0]
            raise ActionError(f"action {wrong} is outside Discrete({num_actions})")
        masked: NDArray[np.bool_] = ~masks[clusters, chosen]
        if self._actions.on_invalid == "raise":
            first = int(np.flatnonzero(masked)[0])
            raise ActionError(
                f"action {chosen[first]} is masked in cluster {clusters[first]}; choose one where"
                " action_masks() is True, or set on_invalid='wait'"
            )
        wait = self._actions.wait
        bad = clusters[masked]
        actions[bad] = np.where(masks[bad, wait], wait, masks[bad].argmax(axis=1))
        return masked

    def with_rates(self, episode: Episode, b: int, rates: Rates | None) -> Episode:
        return episode

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        if action == self._actions.wait:
            return []
        j, count, shape = describe(state, b, self.how.options, self._actions.num_waiting, int(action))
        if count == 0:
            waits = state.jobs["status"][b, j] == JobStatus.WAITING
            return [Allocation(int(j), reject=bool(waits))]
        places = tuple(sorted(int(one) for one in state.gpu_scratch[b, :count]))
        if state.jobs["kind"][b, j] == JobKind.CPU_ONLY:
            cap = shape.memory_bandwidth_cap
            cores = shape.cores_per_worker
            return [Allocation(int(j), (), cores, server=places[0], memory_bandwidth_cap=cap)]
        return [Allocation(int(j), places, shape.cores_per_worker, shape.batch_size)]


class _Scoring:
    """Plays `Scores`: an allocation takes tens of microseconds."""

    kernel = play_scored
    all_valid = all_inside
    least_per_thread = 2

    def __init__(self, setting: EnvConfig, actions: Scores) -> None:
        self._actions = actions
        estimate = actions.allocator.estimate
        if Information.HISTORY in estimate.takes:
            raise ConfigurationError(
                f"action.allocator.estimate is {estimate.name}, which knows what ended before; expected one"
                " that does not: episodes begin without a past (schedulers such as allocator_hazard have it)"
            )
        scored = actions.type_scores
        self._scored_as = [
            scored.index(kind) if kind in scored else -1 for kind in setting.cluster.distinct_gpu_types
        ]
        observation = setting.observation
        sight = Sight(observation.write, observation.parameters, 0)
        rounds = np.inf if actions.round_seconds is None else actions.round_seconds
        self.how = Scorings(actions.allocator.rules, rounds, sight)

    def episode(self, state: State) -> Episode:
        own = self._actions
        plan = empty_plan(state, 0, own.allocator.estimate.memory, False, len(own.type_scores))
        if own.type_scores:
            plan.scored_as[: len(self._scored_as)] = self._scored_as  # the rest: a cluster that names none
        return empty_episode(state, num_scores=own.num_jobs, plan=plan)

    def nothing(self, num_clusters: int) -> NDArray[np.float32]:
        return np.zeros((num_clusters, *self._actions.space.shape), np.float32)

    def mend(
        self, masks: NDArray[np.bool_], actions: NDArray[np.float32], clusters: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        inside = np.abs(actions[clusters]) <= 1.0  # NaN is not
        row, i = np.argwhere(~inside)[0]
        raise ActionError(
            f"score {i} of cluster {clusters[row]} is {actions[clusters[row], i]}; expected numbers from -1"
            " to 1, also where no job is: clip them, or squash them by tanh"
        )

    def with_rates(self, episode: Episode, b: int, rates: Rates | None) -> Episode:
        assert rates is not None
        plan = with_room_for(episode.plan, rates)
        if plan is not episode.plan:
            episode = replace(episode, plan=plan)
        put_rates(plan, b, rates)
        plan.memory[b] = 0.0
        return episode

    def allocations(
        self, state: State, episode: Episode, b: int, action: Any, physics: Physics
    ) -> list[Allocation]:
        tried, plan = copy_state(state), episode.plan
        notes = empty_plan(tried, 0, plan.memory.shape[2], True, plan.type_score.shape[2])
        notes = replace(with_rates_of(notes, plan), memory=plan.memory.copy(), scored_as=plan.scored_as)
        rules = self._actions.allocator.rules
        allocate_by(tried, replace(episode, plan=notes), b, action, rules, physics)
        return moves_of(notes, tried, b)


def playing(setting: EnvConfig) -> Playing:
    """How the actions of a setting are played: the one place that asks what kind they are.

    Raises:
        TypeError: a kind that nobody plays.
    """
    actions: ActionKind = setting.actions
    if isinstance(actions, Actions):
        return _Choosing(setting, actions)
    if isinstance(actions, Scores):
        return _Scoring(setting, actions)
    raise TypeError(f"nothing plays {type(actions).__name__}; expected Actions or Scores")
