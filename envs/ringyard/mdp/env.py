"""`ClusterEnv`: one cluster behind Gymnasium's Env interface."""

import importlib.util
import inspect
import os
from collections.abc import Collection, Mapping, Sized
from typing import Annotated, Any, Literal, Self

import gymnasium
import numpy as np
from gymnasium.vector import SyncVectorEnv
from numpy.typing import NDArray

from ringyard.checks import require, shown
from ringyard.cluster import Cluster
from ringyard.errors import ActionError, ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations.observation import feature_table
from ringyard.mdp.observations.queue import BLOCKS
from ringyard.rendering.history import history_of
from ringyard.state.arrays import State

MODES = ("human", "rgb_array")
MAX_SEGMENTS = 8192

#: seconds that a window is left to draw itself
_PAUSE = 1e-3

#: the one cluster of the batch
_ONLY = np.zeros(1, np.int64)


def validate_seed(seed: Any) -> int | None:
    """A seed as Gymnasium expects it, an integer of any size; None stays None.

    Raises:
        ConfigurationError: not an integer of 0 or more.
    """
    require("seed", seed, Annotated[int, "[0, inf)"] | None)
    return None if seed is None else int(seed)


def workload_option(options: Any, known: Collection[str], num_workloads: int) -> int | None:
    """The job table that `options` of `reset` choose; None: one is drawn.

    Args:
        options: None, or a mapping with some of the keys `known`.
        known: these keys.
        num_workloads: number of job tables.

    Raises:
        ConfigurationError: not a mapping, an unknown key, or not the number of a table.
    """
    expected = ", ".join(map(repr, known))
    if not isinstance(options, Mapping | None):
        raise ConfigurationError(f"options is {shown(options)}; expected None or a dict with {expected}")
    for key in options or {}:
        if key not in known:
            raise ConfigurationError(f"options has {shown(key)}; expected only {expected}")
    chosen = (options or {}).get("workload")
    require("options['workload']", chosen, Annotated[int, f"[0, {num_workloads - 1}]"] | None)
    return None if chosen is None else int(chosen)


def _warn_in_sync_vector_env() -> None:
    """Warn that a faster vector environment exists, if Gymnasium's `SyncVectorEnv` makes this one."""
    frame = inspect.currentframe()
    while frame is not None:
        maker = frame.f_locals.get("self")
        if isinstance(maker, SyncVectorEnv):
            makers = maker.env_fns  # other libraries pass a generator, which has no length
            if isinstance(makers, Sized) and len(makers) > 1:
                gymnasium.logger.warn(
                    "SyncVectorEnv steps clusters one by one in Python; gymnasium.make_vec(id, num_envs=...)"
                    " and ringyard.ClusterVectorEnv step them all in one compiled call, with equal results"
                )
            return
        frame = frame.f_back


def _same_generator(generator: np.random.Generator) -> np.random.Generator:
    """A copy of a generator, in a third of the time of `copy.deepcopy`."""
    bits = type(generator.bit_generator)(0)
    bits.state = generator.bit_generator.state
    return type(generator)(bits)


class Screen:
    """Draws an environment. The figure is made with the first picture.

    Copies and pickles make figures of their own.

    Raises:
        ConfigurationError: matplotlib is not installed, or "human" finds no display.
    """

    def __init__(self, mode: str, cluster: Cluster) -> None:
        if importlib.util.find_spec("matplotlib") is None:
            raise ConfigurationError(
                f"render_mode={mode!r} needs matplotlib, which is not installed: pip install"
                ' "ringyard[render]"'
            )
        #: MPLBACKEND=agg asks for windows that are not seen, as tests do
        self._shows = mode == "human" and os.environ.get("MPLBACKEND", "").lower() != "agg"
        if self._shows:
            _require_display()
        self.mode = mode
        self._cluster = cluster
        self._chart: Any = None

    def draw(self, state: State, b: int) -> NDArray[np.uint8] | None:
        """[720, 1280, 3] of cluster b in "rgb_array" mode; "human" shows it and gives None."""
        from ringyard.rendering.chart import Chart

        if self._chart is None:
            self._chart = Chart(self._cluster, figure=self._window())
        self._chart.draw(history_of(state, b, self._cluster))
        if self.mode == "rgb_array":
            return np.asarray(self._chart.pixels())
        canvas = self._chart.figure.canvas
        canvas.draw()
        if self._shows:
            canvas.start_event_loop(_PAUSE)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._chart is not None and self._shows:
            from matplotlib import pyplot

            pyplot.close(self._chart.figure)
        self._chart = None

    def _window(self) -> Any:
        if not self._shows:
            return None
        from matplotlib import pyplot

        figure = pyplot.figure("Ringyard", figsize=(12.8, 7.2), dpi=100)
        figure.show()
        return figure

    def __getstate__(self) -> dict[str, Any]:
        """Without the figure."""
        return {**self.__dict__, "_chart": None}


def _require_display() -> None:
    """Raise a ConfigurationError if matplotlib can open no window here."""
    import matplotlib
    from matplotlib import backends, pyplot

    registry: Any = vars(backends)["backend_registry"]
    backend = matplotlib.get_backend()  # chooses one that works here, if none is chosen
    why = f"matplotlib's backend is {backend}, which opens none"
    try:
        pyplot.switch_backend(backend)
        if registry.resolve_backend(backend)[1] is not None:
            return
    except ImportError as error:
        why = str(error)
    raise ConfigurationError(
        f"render_mode='human' needs a window, but {why}; give render_mode='rgb_array', or use a display with"
        " MPLBACKEND=tkagg (qtagg, ...), or set MPLBACKEND=agg to draw without a window"
    )


class ClusterEnv(gymnasium.Env[Any, Any]):
    """Schedule deep-learning jobs on a cluster of multi-GPU servers.

    ## Action space
    `Discrete(V x T + R x A + 1)` for V visible waiting jobs, T templates, R visible running jobs and A
    adjustments of a running job (none by default). Action `i * T + t` starts visible job i as template t
    says. Action `V * T + r * A + a` changes running slot r by adjustment a. With `preemptive`, adjustment 0
    preempts the job. Others resize or migrate it, or change its batch, cores or memory bandwidth cap. The
    last action waits for the next event. A start takes no time. Time passes by itself while there is nothing
    to decide. `info["action_mask"]` marks the valid actions in int8, as `action_space.sample` expects it;
    `action_masks()` gives the same in booleans, as sb3-contrib expects it.

    With `Scores` it is `Box(-1, 1, (N,))`, a score for each live job. A compiled allocator turns the scores
    into GPU assignments, and the mask marks the scores that have a job (`ringyard.mdp.actions.Scores`). With
    `type_scores` there are N more scores for each GPU type named.

    ## Observation space
    A Dict of float32 blocks with values in [-10, 10], most in [0, 1]; `flat=True` gives the same numbers as
    one Box. A block has a row of features for each item; `env.metadata["blocks"]` has the shapes and the
    names of the features. Unused slots are 0 and have a 0 in the block's mask. Running slots are in heap
    order of ends, or by row if any end is uncertain. `s(x, c)` is x / (x + c). This is the default,
    `queue_and_cluster`; docs/observations.md has the others.
    `ringyard.ActionMaskObservation` puts the action mask into it.

    FEATURE TABLE

    ## Rewards
    By default (`job_completion_time`) minus the integral of the number of jobs in the system since the last
    step, divided by the jobs' total isolated run time. The undiscounted return is minus (mean JCT / mean run
    time). Others: `ringyard.mdp.rewards`.

    ## Starting state
    An empty cluster at the first arrival of a job table, drawn from `num_workloads` tables
    (`reset(options={"workload": k})` chooses table k).

    ## Episode end
    Terminated when every job has finished; truncated at `limit_seconds`. The last `info` then holds
    `episode_jct` (mean JCT in seconds of the finished jobs), `workload` and `num_finished`.

    ## Experiments
    Other ids, such as `ringyard/Sharing-v1`, are configurations of this environment, one
    `conf/experiment/*.yaml` each. `ringyard.experiment("sharing")` returns the `EnvConfig` alone.

    ## Arguments
    Args:
        config: configuration; see `ringyard.mdp.env_config.EnvConfig`.
        render_mode: None, "rgb_array" (`render()` returns pictures of 1280 x 720 pixels: GPUs by server over
            time, waiting jobs, shared links), or "human" (the same in a window, after each step).

    Raises:
        ActionError: from `step`, for an action outside of the space, or for a masked action if `on_invalid`
            is "raise".
        ResetNeededError: from `step`, before `reset` and after the end of an episode. It is a subclass of
            Gymnasium's `ResetNeeded`.
        ClosedError: from `step` and `reset`, after `close`.

    ## Copies
    `fork()`, `copy.deepcopy` and `pickle` give an independent environment at the same moment, which continues
    as this one would, byte for byte. Forks are for tree search. They take microseconds, because they share
    what never changes. With wrappers, call `env.unwrapped.fork()`. `copy.copy` gives a second name for the
    same episode.
    """

    metadata: dict[str, Any] = {"render_modes": [*MODES], "render_fps": 10}

    def __init__(self, config: EnvConfig | None = None, render_mode: str | None = None) -> None:
        require("render_mode", render_mode, Literal["human", "rgb_array"] | None)
        require("config", config, EnvConfig | None)
        _warn_in_sync_vector_env()
        self.config = EnvConfig() if config is None else config
        self.render_mode = render_mode
        self._screen = Screen(render_mode, self.config.cluster) if render_mode else None
        self.batch = ClusterBatch(self.config, 1, MAX_SEGMENTS if render_mode else 0)
        self.observation_space = self.config.observation.space(self.config.cluster, self.config.actions)
        self.action_space = self.config.actions.space
        blocks = self.config.observation.names(self.config.cluster, self.config.actions)
        self.metadata = type(self).metadata | {"blocks": blocks}

    def action_masks(self) -> NDArray[np.bool_]:
        """[actions] True where an action is valid (as sb3-contrib expects)."""
        self.batch.require_episode()
        return self.batch.masks[0].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; `options={"workload": k}` chooses job table k."""
        seed = validate_seed(seed)
        chosen = workload_option(options, ("workload",), self.config.num_workloads)
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(self.config.num_workloads))
        entry = drawn if chosen is None else chosen
        workload_cache = self.batch.workload_cache
        if seed is None and entry not in workload_cache and workload_cache.prefetch_size:
            workload_cache.prefetch(self._next_drawn(workload_cache.prefetch_size))
        self.batch.reset(_ONLY, np.array([entry]))
        self._show()
        observation, info = self._observed()
        return observation, info | {"workload": entry}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Carry out one action, and let time pass to the next decision; see the class."""
        try:
            actions = self.batch.action_array([action])
        except ActionError:
            expected = self.batch.expected_action.rstrip(",")
            raise ActionError(f"action is {shown(action)}; expected {expected}") from None
        masked = self.batch.replace_invalid(actions, _ONLY)
        self.batch.step(actions)
        self._show()
        done, truncated = self.batch.ending(0)
        observation, info = self._observed()
        if masked[0]:
            info["invalid_action"] = True
        if done or truncated:
            info |= self.batch.final_info(0)
        return observation, float(self.batch.rewards[0]), done, truncated, info

    def fork(self) -> Self:
        """An independent copy at the same moment, for look-ahead. Spaces and configuration are shared."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.batch = self.batch.fork()
        if self._np_random is not None:
            copy._np_random = _same_generator(self._np_random)
        return copy

    def render(self) -> NDArray[np.uint8] | None:
        """[720, 1280, 3] picture in "rgb_array" mode; None in "human" mode, which draws the window again.

        The picture shows the last 8,192 intervals in which a job held GPUs of a server.
        """
        if self._screen is None:
            gymnasium.logger.warn("render() needs render_mode='rgb_array' or 'human'")
            return None
        self.batch.require_episode()
        return self._screen.draw(self.batch.state, 0)

    def close(self) -> None:
        """Refuse steps and resets from now on; close the window."""
        self.batch.close()
        if self._screen is not None:
            self._screen.close()

    def _next_drawn(self, count: int) -> NDArray[np.int64]:
        """[count] job tables of the next resets, if the generator is not used until then."""
        generator = _same_generator(self.np_random)
        return np.array([generator.integers(self.config.num_workloads) for _ in range(count)])

    def _show(self) -> None:
        if self._screen is not None and self.render_mode == "human":
            self._screen.draw(self.batch.state, 0)

    def _observed(self) -> tuple[Any, dict[str, Any]]:
        mask = self.batch.masks[0].copy()
        return self.batch.split(self.batch.observations[0].copy()), {"action_mask": mask.view(np.int8)}


_page = inspect.cleandoc(ClusterEnv.__doc__ or "")
ClusterEnv.__doc__ = _page.replace("FEATURE TABLE\n", feature_table(BLOCKS))
