"""What callers hand to environments, looked at before anything runs; errors of a wrong order of calls."""

import operator
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ringyard.checks import require, shown
from ringyard.errors import ActionError, ConfigurationError, EpisodeError

__all__ = [
    "ClosedError",
    "ResetNeededError",
    "action_given",
    "actions_given",
    "options_given",
    "reset_mask_given",
    "scores_given",
    "seed_given",
    "seeds_given",
    "workload_given",
]


#: codes of the NumPy types whose numbers all are 64-bit integers
_WHOLE = "bhilqBHI"
#: what Python counts by, and what is no action
_NO_NUMBERS = (bool, np.bool_)


class ResetNeededError(EpisodeError, gymnasium.error.ResetNeeded):
    """A step where no episode is on: before `reset`, or after the end without autoreset."""


class ClosedError(EpisodeError, gymnasium.error.ClosedEnvironmentError):
    """A step or reset after `close`."""


def action_given(action: Any, num_actions: int) -> NDArray[np.int64]:
    """[1] an action of one cluster: a whole number of Python or NumPy, or an array of no dimensions.

    Raises:
        ActionError: no whole number, or outside the space.
    """
    try:
        whole = -1 if isinstance(action, _NO_NUMBERS) else operator.index(action)
    except TypeError:
        whole = -1
    if not 0 <= whole < num_actions:
        raise ActionError(
            f"action {shown(action)} is outside Discrete({num_actions}); expected an integer from 0 to"
            f" {num_actions - 1}"
        )
    return np.array([whole], np.int64)


def actions_given(actions: Any, num_envs: int) -> NDArray[np.int64]:
    """[num_envs] one action per cluster, a fresh array; whether they are in the space is not looked at.

    Raises:
        ActionError: another shape, or no whole numbers.
    """
    try:
        given = np.asarray(actions)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # ragged lists, tensors elsewhere
        raise ActionError(f"actions are no array ({error}); expected {num_envs} integers") from error
    kind = given.dtype
    if given is not actions and isinstance(actions, list | tuple) and bool in map(type, actions):
        kind = np.dtype(bool)  # NumPy makes a number of a boolean among numbers
    if given.shape != (num_envs,) or kind.char not in _WHOLE:
        raise ActionError(
            f"actions are {kind} of shape {given.shape}; expected an array of {num_envs} integers, one for"
            " each cluster"
        )
    return given.astype(np.int64)


def scores_given(scores: Any, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Scores of that shape, a fresh array; whether they are in the space is not looked at.

    Raises:
        ActionError: another shape, or no real numbers.
    """
    expected = f"expected an array of shape {shape}, a score from -1 to 1 for each job"
    try:
        given = np.asarray(scores)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:  # ragged lists, tensors elsewhere
        raise ActionError(f"scores are no array ({error}); {expected}") from error
    if given.shape != shape or given.dtype.kind not in "fiu":
        raise ActionError(f"scores are {given.dtype} of shape {given.shape}; {expected}")
    return given.astype(np.float32, order="C")


def seed_given(seed: Any) -> int | None:
    """A seed as Gymnasium wants it; None is none.

    Raises:
        ConfigurationError: not an integer of 0 or more.
    """
    require("seed", seed, Annotated[int, "[0, inf)"] | None)  # Gymnasium's own have 128 bits
    return None if seed is None else int(seed)


def seeds_given(seed: Any, num_envs: int) -> list[int | None]:
    """[num_envs] of one seed, from which the others count up, or of a list of one for each.

    Raises:
        ConfigurationError: a list of another length, or a seed that is not an integer of 0 or more.
    """
    if isinstance(seed, list | tuple) or (isinstance(seed, np.ndarray) and seed.ndim == 1):
        if len(seed) != num_envs:
            raise ConfigurationError(
                f"there are {len(seed)} seeds; expected {num_envs}, one for each cluster, or a single integer"
            )
        return [seed_given(one) for one in seed]
    first = seed_given(seed)
    return [None if first is None else first + i for i in range(num_envs)]


def options_given(options: Any, known: Collection[str]) -> Mapping[str, Any]:
    """Options of `reset`; None is none.

    Raises:
        ConfigurationError: no mapping, or an unknown key.
    """
    if options is None:
        return {}
    expected = ", ".join(map(repr, known))
    if not isinstance(options, Mapping):
        raise ConfigurationError(f"options is {shown(options)}; expected None or a dict with {expected}")
    for key in options:
        if key not in known:
            raise ConfigurationError(f"options has {shown(key)}; expected only {expected}")
    return options


def workload_given(options: Mapping[str, Any], num_workloads: int) -> int | None:
    """The job table that `options["workload"]` chooses; None: it is to be drawn.

    Raises:
        ConfigurationError: not the number of a table.
    """
    chosen = options.get("workload")
    require("options['workload']", chosen, Annotated[int, f"[0, {num_workloads - 1}]"] | None)
    return None if chosen is None else int(chosen)


def reset_mask_given(mask: Any, num_envs: int) -> NDArray[np.bool_]:
    """[num_envs] the clusters to be reset, a fresh array.

    Raises:
        ConfigurationError: no such array, or it names none.
    """
    is_array = isinstance(mask, np.ndarray)
    if not is_array or mask.dtype != np.bool_ or mask.shape != (num_envs,) or not mask.any():
        raise ConfigurationError(
            f"options['reset_mask'] is {shown(mask)}; expected a NumPy array of {num_envs} booleans,"
            " one or more of them True"
        )
    fresh: NDArray[np.bool_] = mask.copy()
    return fresh
