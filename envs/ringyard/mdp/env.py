"""`ClusterEnv`: one cluster behind Gymnasium's Env interface."""

import inspect
from collections.abc import Collection, Mapping, Sized
from typing import Annotated, Any, Literal, Self

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from ringyard.checks import require, shown
from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations.observation import feature_table
from ringyard.mdp.observations.queue import BLOCKS
from ringyard.mdp.render import MODES, Screen

SEGMENT_ROWS = 8192

#: the one cluster of the batch
_ONLY = np.zeros(1, np.int64)


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


def _warn_who_steps_one_by_one() -> None:
    """Say what is faster, once, if Gymnasium's own vector environment is being made of these."""
    frame = inspect.currentframe()
    while frame is not None:
        maker = frame.f_locals.get("self")
        if isinstance(maker, SyncVectorEnv):
            makers = maker.env_fns  # of other libraries a generator, which has no length
            if isinstance(makers, Sized) and len(makers) > 1:
                gymnasium.logger.warn(
                    "SyncVectorEnv steps clusters one by one in Python; gymnasium.make_vec(id, num_envs=...)"
                    " and ringyard.ClusterVectorEnv step them all in one compiled call, with equal results"
                )
            return
        frame = frame.f_back


def _same_generator(generator: np.random.Generator) -> np.random.Generator:
    """As `copy.deepcopy`, in a third of the time."""
    bits = type(generator.bit_generator)(0)
    bits.state = generator.bit_generator.state
    return type(generator)(bits)


class ClusterEnv(gymnasium.Env[Any, Any]):
    """Schedule deep-learning jobs on a cluster of multi-GPU servers.

    ## Action space
    `Discrete(V x T + R x A + 1)`, V visible waiting jobs, T templates, R visible running jobs and A ways to
    change one (none by default). Action `i * T + t` starts visible job i as template t says; action
    `V * T + r * A + a` changes running slot r by adjustment a (with `preemptive`, adjustment 0 stops it;
    others resize, rebatch, move, give or take cores, cap memory bandwidth); the last action waits for the
    next event. A start takes no time. Moments with nothing to decide pass by themselves.
    `info["action_mask"]` says which actions are valid, in int8, as `action_space.sample` wants it;
    `action_masks()` says the same in booleans, as sb3-contrib wants it.

    With `Scores` it is `Box(-1, 1, (N,))`: a score for each live job, of which an allocator makes
    allocations; the mask says which scores have a job (`ringyard.mdp.actions.Scores`). With `type_scores`
    there are N more for each GPU type that they name.

    ## Observation space
    A Dict of float32 blocks with values in [-10, 10], most in [0, 1]; `flat=True` gives the same numbers as
    one Box. A block has a row of features for each item; `env.metadata["blocks"]` has the shapes and the
    names of the features. Unused slots are 0 and have a 0 in the block's mask. `s(x, c)` is x / (x + c).
    This is the default, `queue_and_cluster`; docs/observations.md has the others.
    `ringyard.ActionMaskObservation` puts the action mask into it.

    FEATURE TABLE

    ## Rewards
    With `job_completion_time` (default): minus the integral of the number of jobs in the system since
    the last step, over the jobs' total isolated run time, so that the undiscounted return is minus
    (mean JCT / mean run time). Others: `ringyard.mdp.rewards`.

    ## Starting state
    An empty cluster at the first arrival of a job table drawn from the setting's workloads
    (`reset(options={"workload": k})` chooses table k).

    ## Episode end
    Terminated when every job has finished; truncated at `limit_seconds`. The last `info` then holds
    `episode_jct` (mean JCT in seconds of the finished jobs), `workload` and `num_finished`.

    ## Presets
    Other ids, such as `ringyard/Sharing-v1`, are settings of this environment: one `conf/experiment/*.yaml`
    each. `ringyard.experiment("sharing")` is the setting alone, to be changed.

    ## Arguments
    Args:
        setting: cluster, workload, performance and the rest; see `ringyard.mdp.env_config.EnvConfig`.
        render_mode: None, "rgb_array" (`render()` gives pictures of 1280 x 720 pixels: GPUs by server over
            time, who waits, links that are shared), or "human" (the same in a window, after each step).

    Raises:
        ActionError: from `step`, for anything that is not of the space (a score that is NaN or beyond -1 and
            1), or for a masked action if the setting's `on_invalid` is "raise".
        ResetNeededError: from `step`, before `reset` and after the end of an episode; it is Gymnasium's
            `ResetNeeded` too.
        ClosedError: from `step` and `reset`, after `close`.

    ## Copies
    `fork()`, `copy.deepcopy` and `pickle` give an independent environment at the same moment, which goes on
    as this one would, byte for byte. Forks are for tree search: they take microseconds, since they share
    what never changes; of an environment with wrappers it is `env.unwrapped.fork()`. Pickles go to other
    processes. `copy.copy` gives a second name for the same episode.
    """

    metadata: dict[str, Any] = {"render_modes": [*MODES], "render_fps": 10}

    def __init__(self, setting: EnvConfig | None = None, render_mode: str | None = None) -> None:
        require("render_mode", render_mode, Literal["human", "rgb_array"] | None)
        require("setting", setting, EnvConfig | None)
        _warn_who_steps_one_by_one()
        self.setting = EnvConfig() if setting is None else setting
        self.render_mode = render_mode
        self._screen = Screen(render_mode, self.setting.cluster) if render_mode else None
        self._batch = ClusterBatch(self.setting, 1, SEGMENT_ROWS if render_mode else 0)
        self.observation_space = self.setting.observation.space(self.setting.cluster, self.setting.actions)
        self.action_space = self.setting.actions.space
        blocks = self.setting.observation.names(self.setting.cluster, self.setting.actions)
        self.metadata = type(self).metadata | {"blocks": blocks}

    @property
    def batch(self) -> ClusterBatch:
        """The batch of one under this face."""
        return self._batch

    def action_masks(self) -> NDArray[np.bool_]:
        """[actions] True where an action is valid (as sb3-contrib expects)."""
        self._batch.check_begun()
        return self._mask()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; `options={"workload": k}` chooses job table k."""
        seed = seed_given(seed)
        chosen = workload_given(options_given(options, ("workload",)), self.setting.num_workloads)
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(self.setting.num_workloads))
        entry = drawn if chosen is None else chosen
        bank = self._batch.bank
        if seed is None and entry not in bank and bank.cheap_together:
            bank.needed_soon(self._next_drawn(bank.cheap_together))
        self._batch.reset(_ONLY, np.array([entry]))
        self._show()
        return self._observation(), {"action_mask": self._mask().view(np.int8), "workload": entry}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out one action; see the class."""
        actions = self._batch.given([action])
        masked = self._batch.valid(actions, _ONLY)
        self._batch.step(actions)
        self._show()
        done, truncated = self._batch.ending(0)
        info: dict[str, Any] = {"action_mask": self._mask().view(np.int8)}
        if masked[0]:
            info["invalid_action"] = True
        if done or truncated:
            info |= self._batch.outcome(0)
        return self._observation(), float(self._batch.rewards[0]), done, truncated, info

    def fork(self) -> Self:
        """An independent copy at the same moment, for look-ahead; it shares the spaces and the setting."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy._batch = self._batch.fork()
        if self._np_random is not None:
            copy._np_random = _same_generator(self._np_random)
        return copy

    def render(self) -> NDArray[np.uint8] | None:
        """[720, 1280, 3] in "rgb_array" mode, None in "human", whose window is drawn anew.

        It shows what is remembered: the last 8,192 times that a job held GPUs of a server.
        """
        if self._screen is None:
            gymnasium.logger.warn("render() needs render_mode='rgb_array' or 'human'")
            return None
        self._batch.check_begun()
        return self._screen.draw(self._batch.state, 0)

    def close(self) -> None:
        """Refuse steps and resets from now on; close the window."""
        self._batch.close()
        if self._screen is not None:
            self._screen.close()

    def _next_drawn(self, count: int) -> NDArray[np.int64]:
        """[count] entries of the resets to come, if nobody else draws from the generator until then."""
        generator = _same_generator(self.np_random)
        return np.array([generator.integers(self.setting.num_workloads) for _ in range(count)])

    def _show(self) -> None:
        if self._screen is not None and self.render_mode == "human":
            self._screen.draw(self._batch.state, 0)

    def _mask(self) -> NDArray[np.bool_]:
        return self._batch.masks[0].copy()

    def _observation(self) -> Any:
        return self._batch.split(self._batch.observations[0].copy())


_page = inspect.cleandoc(ClusterEnv.__doc__ or "")
ClusterEnv.__doc__ = _page.replace("FEATURE TABLE\n", feature_table(BLOCKS))
