"""`ClusterVectorEnv`: many clusters as a `gymnasium.vector.VectorEnv`, stepped by one compiled call."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, Unpack

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from ringyard.checks import PositiveInt, require, shown
from ringyard.errors import ConfigurationError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env import MAX_SEGMENTS, ClusterEnv, validate_seed, workload_option
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import ConfigArguments, choose_config, require_experiment
from ringyard.rendering.frames import Renderer

#: attributes of a `ClusterEnv` that differ between the clusters
_OWN_ATTRIBUTES = ("action_masks", "np_random", "np_random_seed")
#: {attribute of a `ClusterEnv` that all clusters share: its name in `ClusterVectorEnv`}
_SHARED_ATTRIBUTES = {name: f"single_{name}" for name in ("action_space", "observation_space")}
_SHARED_ATTRIBUTES |= {name: name for name in ("metadata", "render_mode", "config", "spec", "reward_space")}


class ClusterVectorEnv(VectorEnv[Any, NDArray[Any], NDArray[Any]]):
    """Many clusters, stepped by one compiled call. Equal seeds give the episodes of `ClusterEnv`.

    ## Spaces
    `single_action_space` and `single_observation_space` are those of `ClusterEnv`. `action_space` and
    `observation_space` add a leading axis [num_envs].

    ## Rewards, episode end and information
    They equal those of Gymnasium's `SyncVectorEnv` over `ClusterEnv`. Each key of `info` is an array
    [num_envs], `_key` marks the clusters that have the key, and the others hold 0. `info["action_mask"]` is
    int8 [num_envs, actions]. With `SAME_STEP`, `info["final_info"]` and `info["final_obs"]` have the last
    `info` and observations of the episodes that ended.

    ## Arguments
    Args:
        num_envs: number of clusters.
        config: configuration of all clusters. None: that of `experiment` and `arguments`.
        autoreset_mode: `NEXT_STEP` (Gymnasium's default: the step after the end resets), `SAME_STEP`, or
            `DISABLED` (`reset(options={"reset_mask": ended})` begins the next episodes).
        copy: return new arrays each step. False returns views of buffers that the next step overwrites.
        render_mode: None, or "rgb_array" (`render()` returns a picture of each cluster).
        num_threads: threads that step parts of the batch. None: `ringyard.get_num_threads()`. Results do not
            depend on it.
        max_episode_steps: steps after which an episode is truncated, as by Gymnasium's `TimeLimit`. None or
            -1: without limit.
        experiment: as in `ClusterEnv`.
        arguments: as in `ClusterEnv`.

    Raises:
        ConfigurationError: an argument has another type or value, or the machine lacks memory.

    ## Copies
    `copy.deepcopy` and `pickle` return an independent environment at the same moment.
    """

    metadata: dict[str, Any] = {**ClusterEnv.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        config: EnvConfig | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        render_mode: str | None = None,
        num_threads: int | None = None,
        max_episode_steps: int | None = None,
        experiment: str | None = None,
        **arguments: Unpack[ConfigArguments],
    ) -> None:
        require("num_envs", num_envs, PositiveInt)
        require("num_threads", num_threads, PositiveInt | None)
        require("max_episode_steps", max_episode_steps, PositiveInt | Literal[-1] | None)
        require("copy", copy, bool)
        require("render_mode", render_mode, Literal["rgb_array"] | None)
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            expected = ", ".join(repr(mode.value) for mode in AutoresetMode)
            given = f"autoreset_mode is {shown(autoreset_mode)}"
            raise ConfigurationError(f"{given}; expected {expected}") from None
        self.config = choose_config(config, experiment, arguments)
        self._spec: Any = None
        self.num_envs = int(num_envs)
        self.render_mode = render_mode
        self._renderer = Renderer(render_mode, self.config.cluster) if render_mode else None
        self._max_steps = None if max_episode_steps == -1 else max_episode_steps
        observation, cluster, actions = self.config.observation, self.config.cluster, self.config.actions
        blocks = observation.names(cluster, actions)
        self.metadata = type(self).metadata | {"autoreset_mode": self.autoreset_mode, "blocks": blocks}
        segments = MAX_SEGMENTS if render_mode else 0
        self.batch = ClusterBatch(self.config, self.num_envs, segments, num_threads=num_threads)
        self.single_observation_space = observation.space(cluster, actions)
        self.single_action_space, self.reward_space = actions.space, self.config.reward.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._copy = copy
        self._all = np.ones(self.num_envs, np.bool_)
        self._generators: dict[int, np.random.Generator] = {}
        self._seeds: dict[int, int] = {}
        #: {cluster: job table of its next episode}
        self._next: dict[int, int] = {}
        #: [num_envs] clusters that the next step resets
        self._resets = ~self._all

    @property  # type: ignore[misc]
    def np_random(self) -> Any:
        """[num_envs] generators that draw the job tables of each cluster's episodes."""
        self._seed([None] * self.num_envs, np.arange(self.num_envs))
        return tuple(self._generators[b] for b in range(self.num_envs))

    @property
    def np_random_seed(self) -> Any:
        """[num_envs] seeds of `np_random`."""
        self._seed([None] * self.num_envs, np.arange(self.num_envs))
        return tuple(self._seeds[b] for b in range(self.num_envs))

    @property
    def spec(self) -> Any:
        """Description by `gymnasium.make_vec`. Its arguments are JSON: an `AutoresetMode` is a text."""
        return self._spec

    @spec.setter
    def spec(self, given: Any) -> None:
        if given is not None and isinstance(mode := given.kwargs.get("autoreset_mode"), AutoresetMode):
            given.kwargs["autoreset_mode"] = mode.value
        self._spec = given

    def action_masks(self) -> NDArray[np.bool_]:
        """Return [num_envs, actions] booleans, True where an action is valid."""
        self.batch.require_episode()
        return self.batch.masks.copy() if self._copy else self.batch.masks

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes.

        Args:
            seed: of cluster 0 (cluster i takes seed + i), or a list [num_envs]. None keeps the generators.
            options: `workload`: job table of all clusters. `reset_mask`: [num_envs] booleans, True for the
                clusters that begin an episode (all by default).

        Returns:
            Observations and `info`.

        Raises:
            ConfigurationError: a seed or option has another type or value.
            ClosedError: after `close`.
        """
        seeds = self._checked_seeds(seed)
        workload = workload_option(options, ("workload", "reset_mask"), self.config.num_workloads)
        chosen = (options or {}).get("reset_mask", self._all)
        is_array = isinstance(chosen, np.ndarray) and chosen.dtype == np.bool_
        if not is_array or chosen.shape != (self.num_envs,) or not chosen.any():
            raise ConfigurationError(
                f"options['reset_mask'] is {shown(chosen)}; expected a NumPy array of {self.num_envs}"
                " booleans, one or more of them True"
            )
        begun = np.flatnonzero(chosen)
        self._seed(seeds, begun)
        self._begin(begun, workload)
        self._resets = self._resets & ~chosen
        self.batch.replaced.fill(False)
        return self._observations(), self._infos(chosen)

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carry out one action in every cluster. A cluster in its reset step ignores its action.

        Args:
            actions: [num_envs, ...] an element of `action_space`.

        Returns:
            Observations, rewards, whether every job has ended, whether `limit_seconds` or
            `max_episode_steps` is reached (each [num_envs]), and `info`.

        Raises:
            ActionError: another number of actions, an action outside of the space, or a masked one with
                `on_invalid="raise"`.
            ResetNeededError: before `reset`, or after the end of an episode with `DISABLED`.
            ClosedError: after `close`.
            SchedulerError: see `ClusterEnv.step`.
        """
        given = self.batch.action_array(actions)
        (stepping,) = (~self._resets).nonzero()
        self.batch.replace_invalid(given, stepping)
        self.batch.step(given, stepping)
        done, truncated = self.batch.done.copy(), self.batch.truncated.copy()
        rewards = self.batch.rewards_given.copy()
        if self._max_steps is not None:
            truncated |= self.batch.lengths >= self._max_steps
        if len(stepping) < self.num_envs:
            begun = np.flatnonzero(self._resets)
            done[begun] = truncated[begun] = False
            rewards[begun] = 0.0
            self._begin(begun)
        over = done | truncated
        (ended,) = over.nonzero()
        final: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            self._resets = over
        elif self.autoreset_mode is AutoresetMode.SAME_STEP and len(ended):
            final = {"final_info": self._infos(over), "_final_info": over.copy()}
            for b in ended.tolist():
                last = self.batch.split(self.batch.observations[b].copy())
                final = self._add_info(final, {"final_obs": last}, b)
            self._begin(ended)
            self.batch.replaced[ended] = False
        return self._observations(), rewards, done, truncated, self._infos(self._all) | final

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return `get_attr(name)`. `args` and `kwargs` must be empty. An unknown name is an error."""
        known = (*_OWN_ATTRIBUTES, *_SHARED_ATTRIBUTES)
        if not isinstance(name, str) or name not in known or args or kwargs:
            raise ConfigurationError(
                f"single clusters have no {shown(name)} to call with {args} and {kwargs}"
                f"; expected one of {', '.join(known)}, without arguments"
            )
        if name in _SHARED_ATTRIBUTES:
            return (getattr(self, _SHARED_ATTRIBUTES[name]),) * self.num_envs
        return tuple(self.action_masks()) if name == "action_masks" else getattr(self, name)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each cluster [num_envs], such as `action_masks`, `np_random` or `config`."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Raise a ConfigurationError for any `name` and `values`: all clusters share one configuration."""
        raise ConfigurationError(f"cannot set {shown(name)} of single clusters; create a new environment")

    def render(self) -> tuple[Any, ...]:
        """Return a picture [height, width, 3] of each cluster, as `ClusterEnv.render`.

        Raises:
            ConfigurationError: `render_mode` is None.
        """
        if self._renderer is None:
            raise ConfigurationError("render() needs render_mode='rgb_array'")
        self.batch.require_episode()
        return tuple(np.array(self._renderer.draw(self.batch.state, b)) for b in range(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """Let later calls of `step` and `reset` raise a `ClosedError`."""
        if hasattr(self, "batch"):  # Gymnasium 1.2 also closes an environment after its constructor failed
            self.batch.close()

    def _checked_seeds(self, seed: Any) -> list[int | None]:
        """Return seeds [num_envs]: those of a list, or one number and those that follow it."""
        if isinstance(seed, list | tuple) or (isinstance(seed, np.ndarray) and seed.ndim == 1):
            if len(seed) != self.num_envs:
                raise ConfigurationError(
                    f"there are {len(seed)} seeds; expected {self.num_envs}, one for each cluster, or a"
                    " single integer"
                )
            return [validate_seed(one) for one in seed]
        first = validate_seed(seed)
        return [None if first is None else first + i for i in range(self.num_envs)]

    def _seed(self, seeds: list[int | None], clusters: NDArray[np.int64]) -> None:
        for b in clusters.tolist():
            if seeds[b] is not None or b not in self._generators:
                self._generators[b], self._seeds[b] = seeding.np_random(seeds[b])
                self._next.pop(b, None)

    def _begin(self, clusters: NDArray[np.int64], workload: int | None = None) -> None:
        rows = clusters.tolist()
        drawn = [self._next.pop(b) if b in self._next else self._draw(b) for b in rows]
        self._next |= {b: self._draw(b) for b in rows}
        entries = np.array(drawn) if workload is None else np.full(len(rows), workload)
        self.batch.reset(clusters, entries)
        self.batch.workload_cache.prefetch(np.array([self._next[b] for b in rows]))

    def _draw(self, b: int) -> int:
        return int(self._generators[b].integers(self.config.num_workloads))

    def _infos(self, shown: NDArray[np.bool_]) -> dict[str, Any]:
        """Return `info` of the clusters that are `shown`, and 0 for others."""
        info: dict[str, Any] = {}
        for name, values in self.batch.infos.items():
            info[name] = own = values.copy()
            info[f"_{name}"] = shown.copy()
            if shown is not self._all:
                own[~shown] = 0
        info["action_mask"] = info["action_mask"].view(np.int8)
        return info

    def _observations(self) -> Any:
        rows = self.batch.observations
        return self.batch.split(rows.copy() if self._copy else rows)


class _Replaced:
    """Warns that an id will be removed, with a DeprecationWarning."""

    def __init__(self, experiment: str, **arguments: Any) -> None:
        require_experiment(experiment)
        name = "".join(word.capitalize() for word in experiment.split("_"))
        warnings.warn(
            f"ringyard/{name}-v1 will be removed in version 0.3; use ringyard/{name}-Weights-v0, -Jobs-v0 or"
            " -Queue-v0 (docs/forms.md says which to choose)",
            DeprecationWarning,
            stacklevel=3,
        )
        super().__init__(experiment=experiment, **arguments)  # type: ignore[call-arg]


class ReplacedClusterEnv(_Replaced, ClusterEnv):
    """`ClusterEnv` of an id that will be removed."""


class ReplacedClusterVectorEnv(_Replaced, ClusterVectorEnv):
    """`ClusterVectorEnv` of an id that will be removed."""
