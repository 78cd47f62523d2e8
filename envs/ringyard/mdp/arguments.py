"""What callers hand to environments, looked at before anything runs; errors of a wrong order of calls."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ringyard.checks import require, shown
from ringyard.errors import ConfigurationError, EpisodeError

__all__ = [
    "ClosedError",
    "ResetNeededError",
    "options_given",
    "reset_mask_given",
    "seed_given",
    "seeds_given",
    "workload_given",
]


class ResetNeededError(EpisodeError, gymnasium.error.ResetNeeded):
    """A step where no episode is on: before `reset`, or after the end without autoreset."""


class ClosedError(EpisodeError, gymnasium.error.ClosedEnvironmentError):
    """A step or reset after `close`."""


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
