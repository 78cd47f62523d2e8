"""`ClusterEnv`: one simulated GPU cluster as a `gymnasium.Env`."""

import inspect
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Self, Unpack

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ringyard.checks import PositiveInt, require, shown
from ringyard.errors import ActionError, ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import ConfigArguments, choose_config
from ringyard.mdp.observations.observation import feature_table
from ringyard.mdp.observations.queue import BLOCKS
from ringyard.rendering.frames import Renderer

#: intervals of the schedule that `render` can show
MAX_SEGMENTS = 8192

#: [1] index of the only cluster of the batch
_FIRST = np.zeros(1, np.int64)


def validate_seed(seed: Any) -> int | None:
    """Return a seed of `reset` as a Python integer of 0 or more, None as None, or raise an error."""
    require("seed", seed, Annotated[int, "[0, inf)"] | None)
    return None if seed is None else int(seed)


def workload_option(options: Any, known: Collection[str], num_workloads: int) -> int | None:
    """Return the job table that the options of `reset` choose, or None if it is to be drawn.

    Options are None or a mapping with some of the keys in `known`. Others, or no job table, are an error.
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


def _copy_generator(generator: np.random.Generator) -> np.random.Generator:
    """Return a copy of a random generator, in a third of the time of `copy.deepcopy`."""
    bits = type(generator.bit_generator)(0)
    bits.state = generator.bit_generator.state
    return type(generator)(bits)


class ClusterEnv(gymnasium.Env[Any, Any]):
    """A multi-tenant GPU cluster on which the agent schedules deep-learning jobs.

    ## Action space
    With `Actions`, the default, it is `Discrete(V * T + R * A + 1)`. V is the number of visible waiting jobs,
    T of start templates, R of visible running jobs and A of adjustments of a running job (0 by default).

    * Action `i * T + t` starts visible job i with template t. A start takes no simulated time.
    * Action `V * T + r * A + a` applies adjustment a to running slot r. With `preemptive`, adjustment 0
      preempts the job. Others migrate or resize it, or change its batch, cores, memory bandwidth cap or
      link share.
    * The last action waits for the next event.

    While no start and no adjustment is valid, time passes without a step. Masked actions wait, or raise an
    error with `on_invalid="raise"`.

    With `Scores` it is `Box(-1, 1, (N,))`, one score for each job that waits or runs. A compiled allocator
    turns the scores into GPU assignments. See `ringyard.mdp.actions.Scores`.

    ## Observation space
    A Dict of float32 vectors, the blocks, with values in [-10, 10], most of them in [0, 1]. `flat=True` gives
    the same numbers as one Box, in the order of Gymnasium's `FlattenObservation`. A block has features of
    each item, item by item: `env.metadata["blocks"]` has its shape, such as (16, 12), for `reshape`, and the
    names of the features. Features of a slot without an item are 0, and so is its number in the block's mask.
    Running jobs are in the heap order of their ends, or in the order of the job table if an end is uncertain.
    `s(x, c)` stands for x / (x + c). The table shows the default, `queue_and_cluster`. docs/observations.md
    has the others.

    FEATURE TABLE

    ## Rewards
    By default (`job_completion_time`) minus the integral of the number of jobs in the system since the last
    step, divided by the jobs' total isolated run time. The undiscounted return is minus (mean JCT / mean
    isolated run time). `ringyard.mdp.rewards` has the others. `reward="vector"` returns an array [names] in
    `reward_space`, for multi-objective learners.

    ## Starting state
    An empty cluster at the first arrival of a job table. `reset` draws one of `num_workloads`, or takes
    table k with `reset(options={"workload": k})`.

    ## Episode end
    Terminated when every job has ended. Truncated at `limit_seconds`.

    ## Info
    The keys of `info` are the same after every reset and step, with arrays and numbers as values:

    * `action_mask`: int8 [actions], 1 where an action is valid, or where a score has a job. It is what
      `action_space.sample(mask)` takes. `action_masks()` returns it in booleans, for sb3-contrib, and
      `ringyard.ActionMaskObservation` adds it to the observation.
    * `invalid_action`: True if a masked action was replaced in this step.
    * `workload`: number of the job table.
    * `episode_jct`: mean job completion time of the jobs that have ended, in seconds, without blocked jobs.
      0 while there is none, NaN if there is none at the end.
    * `episode_slowdown`: at the end of the episode the mean of JCT / isolated run time of the jobs that have
      ended, without blocked jobs. 0 before, NaN if there is none at the end.
    * `episode_preemptions`: number of preemptions so far.
    * `num_finished`: number of jobs that have ended.
    * `cost`: cost of the step, if `cost` names one of `ringyard.mdp.costs`, for constrained learners.

    ## Experiments
    Other ids, such as `ringyard/Sharing-Queue-v0`, are configurations of this environment, one yaml of
    `conf/experiment` each. `ringyard.experiment("sharing")` returns such an `EnvConfig`. Every id takes the
    arguments below, also those that Gymnasium passes on: `gymnasium.make("ringyard/Sharing-Jobs-v0",
    reward="makespan", flat=True)`. Processes that do not import ringyard, such as
    workers of RLlib, name the package in the id: `"ringyard:ringyard/Sharing-Queue-v0"`.

    ## Arguments
    Args:
        config: configuration of the environment. None: that of `experiment` and `arguments`.
        render_mode: None, "rgb_array" (`render()` returns pictures of 640 x 400 pixels: GPUs by server over
            time, waiting jobs, shared links), or "human" (the same in a window, after each step).
        experiment: name of a yaml in `conf/experiment`. None: `EnvConfig()`.
        num_threads: as in `ClusterVectorEnv`. One cluster has one thread.
        arguments: parts of the configuration by name, such as `action="scores"`, and `flat`,
            `limit_seconds`, `num_workloads` and `workload_seed`. See
            `ringyard.mdp.experiments.ConfigArguments`. Unlike a `config`, they keep `env.spec` JSON.

    Raises:
        ConfigurationError: from the constructor, for an argument of another type or value.
        ActionError: from `step`, for an action outside of the space, or for a masked action if `on_invalid`
            is "raise".
        ResetNeededError: from `step`, before `reset` and after the end of an episode. It is a subclass of
            Gymnasium's `ResetNeeded`.
        ClosedError: from `step` and `reset`, after `close`.

    ## Copies
    `fork()`, `copy.deepcopy` and `pickle` return an independent environment at the same moment. It continues
    exactly as this one would. A fork takes microseconds, because both share what never changes. It is meant
    for tree search. With wrappers, call `env.unwrapped.fork()`. `copy.copy` shares the episode.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 10}

    def __init__(
        self,
        config: EnvConfig | None = None,
        render_mode: str | None = None,
        experiment: str | None = None,
        num_threads: int | None = None,
        **arguments: Unpack[ConfigArguments],
    ) -> None:
        if render_mode is not None and str(render_mode) not in self.metadata["render_modes"]:
            raise ConfigurationError(
                f"render_mode is {shown(render_mode)}; expected None, 'human' or 'rgb_array' (with"
                " gymnasium.make also 'rgb_array_list')"
            )
        require("num_threads", num_threads, PositiveInt | None)
        self.config = choose_config(config, experiment, arguments)
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode, self.config.cluster) if render_mode else None
        self.batch = ClusterBatch(self.config, 1, MAX_SEGMENTS if render_mode else 0)
        self.observation_space = self.config.observation.space(self.config.cluster, self.config.actions)
        self.action_space, self.reward_space = self.config.actions.space, self.config.reward.space
        blocks = self.config.observation.names(self.config.cluster, self.config.actions)
        self.metadata = type(self).metadata | {"blocks": blocks}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return [actions] booleans, True where an action is valid, as sb3-contrib expects them."""
        self.batch.require_episode()
        return self.batch.masks[0].copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: of the generator that draws the job tables of this and later episodes. None keeps it.
            options: `{"workload": k}` takes job table k instead of a drawn one.

        Returns:
            Observation and `info`.

        Raises:
            ConfigurationError: the seed or an option has another type or value.
            WorkloadError: a job of the table does not fit the cluster.
            ClosedError: after `close`.
        """
        seed = validate_seed(seed)
        cache, num_workloads = self.batch.workload_cache, self.config.num_workloads
        chosen = workload_option(options, ("workload",), num_workloads)
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(num_workloads))
        entry = drawn if chosen is None else chosen
        if seed is None and entry not in cache and cache.prefetch_size:
            later = _copy_generator(self.np_random)  # draws the job tables of the next resets
            cache.prefetch(np.array([later.integers(num_workloads) for _ in range(cache.prefetch_size)]))
        self.batch.reset(_FIRST, np.array([entry]))
        self._update_window()
        self.batch.replaced.fill(False)
        return self._observation_and_info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Carry out one action and let time pass to the next decision.

        Args:
            action: an element of `action_space`.

        Returns:
            Observation, reward, whether every job has ended, whether `limit_seconds` is reached, and `info`.
            The class describes them.

        Raises:
            ActionError: an action outside of the space, or a masked one with `on_invalid="raise"`.
            ResetNeededError: before `reset`, or after the end of an episode.
            ClosedError: after `close`.
            SchedulerError: no job runs or arrives and no action template can start a waiting job.
        """
        try:
            actions = self.batch.action_array([action])
        except ActionError:
            expected = self.batch.expected_action.rstrip(",")
            raise ActionError(f"action is {shown(action)}; expected {expected}") from None
        self.batch.replace_invalid(actions, _FIRST)
        self.batch.step(actions)
        self._update_window()
        observation, info = self._observation_and_info()
        batch = self.batch
        reward: Any = batch.rewards_given[0].copy() if self.reward_space.shape else batch.rewards.item(0)
        return observation, reward, batch.done.item(0), batch.truncated.item(0), info

    def fork(self) -> Self:
        """Return an independent copy at the same moment, for look-ahead."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        copy.batch = self.batch.fork()
        if self._np_random is not None:
            copy._np_random = _copy_generator(self._np_random)
        return copy

    def render(self) -> NDArray[np.uint8] | None:
        """Draw the schedule so far: the last 8,192 intervals in which a job held GPUs of a server.

        Returns:
            [400, 640, 3] RGB pixels in "rgb_array" mode. None in "human" mode, which updates the window.
        """
        if self._renderer is None:
            gymnasium.logger.warn("render() needs render_mode='rgb_array' or 'human'")
            return None
        self.batch.require_episode()
        return self._renderer.draw(self.batch.state, 0)

    def close(self) -> None:
        """Close the window, and let later calls of `step` and `reset` raise a `ClosedError`."""
        self.batch.close()
        if self._renderer is not None:
            self._renderer.close()

    def _update_window(self) -> None:
        if self._renderer is not None and self.render_mode == "human":
            self._renderer.draw(self.batch.state, 0)

    def _observation_and_info(self) -> tuple[Any, dict[str, Any]]:
        info = {name: values[0] for name, values in self.batch.infos.items()}
        info["action_mask"] = info["action_mask"].copy().view(np.int8)
        info["invalid_action"] = np.array(info["invalid_action"])  # Gymnasium stacks no np.bool_
        return self.batch.split(self.batch.observations[0].copy()), info


_page = inspect.cleandoc(ClusterEnv.__doc__ or "")
ClusterEnv.__doc__ = _page.replace("FEATURE TABLE\n", feature_table(BLOCKS))
