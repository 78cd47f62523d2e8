"""Trained policies, to act with in an environment or to run as a scheduler on any cluster."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ringyard.allocator import JobUtilities
from ringyard.checks import NonNegative, checked, shown
from ringyard.cluster import Cluster
from ringyard.errors import CheckpointError, ConfigurationError, PluginError, RingyardError
from ringyard.jobs import JobTable
from ringyard.mdp.actions import ActionKind, Actions, AllocatorActions, Scores, Weights
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations.observation import Observation
from ringyard.mdp.workload_cache import QUEUE_ORDER_OBSERVABILITY, queue_priority
from ringyard.performance import PerformanceModel
from ringyard.sim.allocation import Allocation
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView, unrestricted
from ringyard.state.arrays import State, copy_state, waiting_rows
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.learning.agent_file import find_checkpoint, load_policy
from ringyard_agents.learning.learner import Policy
from ringyard_agents.learning.models import ModelPolicy, read_model
from ringyard_agents.learning.score_networks import ScorePolicy
from ringyard_baselines.policies import allocating
from ringyard_baselines.scheduler import Capabilities, Scheduler

#: maximum number of jobs to score, in order of arrival: attention among more takes 0.2 s per decision
_MAX_SCORED_JOBS = 4096


def agent_capabilities(actions: ActionKind) -> Capabilities:
    """Return the capabilities of an agent with these actions. With scores, those of the allocator."""
    if isinstance(actions, AllocatorActions):
        return allocating.allocator_capabilities(actions.allocator)
    assert isinstance(actions, Actions)
    capabilities = Capabilities.START
    if actions.preemptive or any(one.placement is not None for one in actions.adjustments):
        capabilities |= Capabilities.PREEMPT
    changes: Sequence[Any] = (*actions.starts, *actions.adjustments)
    for one in changes:
        if one.gpu_factor != 1.0 or one.batch_factor != 1.0:
            capabilities |= Capabilities.RESIZE
        new = (getattr(one, name, None) for name in ("bandwidth_cap", "link_share"))
        if one.core_factor != 1.0 or any(value is not None for value in new):
            capabilities |= Capabilities.CORES
    return capabilities


def _shapes(space: spaces.Space[Any]) -> set[str]:
    if isinstance(space, spaces.Dict):
        return {f"{name} {block.shape}" for name, block in space.items()}
    return {f"{type(space).__name__}({getattr(space, 'n', space.shape)})"}


class AgentScheduler(Scheduler):
    """Scheduler that takes the preferred actions of a trained policy.

    Args:
        policy: chooses the actions.
        observation: observation that the policy reads.
        actions: actions of the policy. An invalid action counts as waiting. A network that scores any number
            of jobs scores all unfinished ones that have arrived, up to 4,096, however many were visible in
            training.
        name: name in tables.
    """

    published = False

    def __init__(
        self, policy: Policy, observation: Observation, actions: ActionKind, name: str = "agent"
    ) -> None:
        self.name = name
        queue = QUEUE_ORDER_OBSERVABILITY[actions.queue_order]
        self.observability = observation.observability | queue | actions.observability
        self.capabilities = agent_capabilities(actions)
        self.policy = policy
        self.observation = replace(observation, flat=policy.flat)
        self.actions = actions.with_raise_on_invalid(False)
        self.round_seconds = actions.round_seconds
        self._episode_actions = self.actions
        self._cluster = Cluster((1,))
        self._utilities: JobUtilities | None = None
        self._memory = np.zeros((0, 0))  # [jobs, numbers] of the allocator's estimate

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Start an episode with `jobs` on `cluster`. See `Scheduler.reset`, `rng` is not used."""
        if isinstance(self.actions, Scores) and isinstance(self.policy, ScorePolicy):
            self._episode_actions = replace(self.actions, num_jobs=min(max(len(jobs), 1), _MAX_SCORED_JOBS))
        self._cluster = cluster
        self._utilities = None
        if isinstance(self.actions, AllocatorActions):
            self._memory = self.actions.allocator.estimate.memory_of(jobs)
        if isinstance(self.policy, ModelPolicy):
            self.require_spaces(cluster, self.actions)
            self.policy.reset()

    def require_spaces(self, cluster: Cluster, actions: ActionKind) -> None:
        """Raise a CheckpointError if the policy was trained with other spaces than it meets on a cluster."""
        if not self.observation.flat and not isinstance(self.policy, ModelPolicy):
            return  # networks over sets of jobs fit any cluster
        met = self.observation.space(cluster, actions), actions.space
        for part, space in zip(("observation_space", "action_space"), met, strict=True):
            trained = getattr(getattr(self.policy, "network", None), part, None)
            if trained is None or _shapes(trained) == _shapes(space):
                continue
            pairs = ((trained, space), (space, trained))
            own, theirs = (sorted(_shapes(one) - _shapes(other)) for one, other in pairs)
            raise CheckpointError(
                f"{self.name} cannot act in this environment: its {part} is {', '.join(own) or 'smaller'},"
                f" the environment's {', '.join(theirs) or 'smaller'}; expected the form (such as"
                " form=weights), the cluster and the numbers of visible jobs of its training"
            )

    def act(self, observation: Any, mask: Any) -> Any:
        """Choose an action in an environment with the spaces of the training, which `load` can check.

        Args:
            observation: observation of one cluster, or of many with a leading axis of clusters.
            mask: `info["action_mask"]`: [actions], or [clusters, actions].

        Returns:
            An action for `step`: a number, or [(1 + T) N] scores with `Scores`. With a leading axis of
            clusters for many.

        Raises:
            CheckpointError: observations or masks have other shapes than in training.
        """
        masks = np.asarray(mask, np.bool_)
        if masks.ndim == 2:
            return self.policy.act(observation, masks)
        if isinstance(observation, dict):
            batch: Any = {name: block[None] for name, block in observation.items()}
        else:
            batch = np.asarray(observation)[None]
        return self.policy.act(batch, masks[None])[0]

    def run_compiled(self, sim: Simulator) -> None:
        """Simulate until every job has ended. See `CompiledScheduler.run_compiled`."""
        records = sim.state.jobs[0, : len(sim.jobs)]
        sim.prioritise(queue_priority(self.actions.queue_order, records))
        batch = self._attach(sim.state, sim.performance)
        while not batch.done[0]:
            batch.step(self._choose(batch))

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Return allocations until the policy waits or time passes, found on a copy of the simulation."""
        now, _, _, performance = unrestricted(view)
        state = copy_state(now)
        rows = view.waiting
        priority = queue_priority(self.actions.queue_order, state.jobs[0, :-1])
        state.jobs["priority"][0, : len(priority)] = priority
        waiting_rows(state, 0)[:] = rows[np.lexsort((rows, priority[rows]))]
        events = state.clusters["num_decisions"][0]
        allocations: list[Allocation] = []
        batch = self._attach(state, performance)
        memory = batch.episode.plan.estimate_memory[:1]
        if self.observation.estimates:  # it has taken its notes; the step takes those of the next event
            memory = memory.copy()
        while not batch.done[0] and state.clusters["num_decisions"][0] == events:
            action = self._choose(batch)
            allocations += batch.allocations(0, action[0])
            batch.step(action)  # also without allocations: the allocator's estimate takes notes
            if isinstance(self.actions, AllocatorActions):
                self._memory = memory[0]
        return allocations

    def _attach(self, state: State, performance: PerformanceModel) -> ClusterBatch:
        config = EnvConfig(
            cluster=self._cluster,
            performance=performance,
            observation=self.observation,
            actions=self._episode_actions,
            num_workloads=1,
        )
        batch = ClusterBatch(config, 1, state=state)
        jobs = state.jobs[0, : state.clusters["num_jobs"][0]]
        self._utilities = self._utilities or batch.workload_cache.utilities_of(jobs)
        batch.resume(self._utilities, self._memory)
        return batch

    def _choose(self, batch: ClusterBatch) -> Any:
        try:
            action = batch.action_array(self.policy.act(batch.split(batch.observations), batch.masks))
            batch.replace_invalid(action, np.array([0]))
        except RingyardError as error:
            raise type(error)(f"{self.name}: {error}") from error
        except Exception as error:  # of a model or a function of the user
            raise PluginError(f"{self.name}: {type(error).__name__}: {error}") from error
        return action


def _with_preemption_price(actions: ActionKind, preemption_price: float, name: str) -> ActionKind:
    """Return the actions with another `preemption_price` of their allocator. `name` is used in errors."""
    if not isinstance(actions, AllocatorActions):
        raise ConfigurationError(
            f"{name} has preemption_price: {preemption_price}, and its actions are discrete; expected"
            " preemption_price: null, or an agent that scores jobs (action=scores)"
        )
    if actions.allocator.start_only is not None:
        raise ConfigurationError(
            f"{name} has preemption_price: {preemption_price}, and never preempts (action=scores_start)"
            "; expected preemption_price: null"
        )
    return replace(actions, allocator=replace(actions.allocator, preemption_price=preemption_price))


@checked("scheduler")
def load_agent(
    checkpoint: Any = None,
    name: str = "agent",
    trust: Trust = (),
    preemption_price: NonNegative | None = None,
    observation: Observation | None = None,
    action: ActionKind | None = None,
) -> AgentScheduler:
    """Load a trained agent as a scheduler. conf/scheduler/learned/agent.yaml configures it.

    Args:
        checkpoint: as in `load`.
        trust: as in `load`.
        name: name in tables.
        preemption_price: option of its allocator, see `ringyard.allocator.Allocator`. None: as in training.
        observation: of the environment that a model or function was made for. Agents have their own.
        action: actions of that environment.

    Raises:
        CheckpointError: see `load`.
        ConfigurationError: an argument has another type, `preemption_price` without preemption, or a model
            without `observation` and `action`.
    """
    is_path = checkpoint is None or isinstance(checkpoint, str | Path)
    file = find_checkpoint(None if checkpoint is None else str(checkpoint)) if is_path else None
    if file is not None and file.suffix != ".zip":
        policy, observation, action = load_policy(file, trust)
    elif observation is None or action is None:
        raise ConfigurationError(
            f"{shown(checkpoint)} does not say which environment it is for; expected load(MODEL, env), or a"
            " model.zip among the schedulers of `ringyard compare experiment=...`"
        )
    else:
        model = checkpoint if file is None else read_model(file, trust)
        policy = ModelPolicy(model, observation.flat, isinstance(action, AllocatorActions))
    if preemption_price is not None:
        action = _with_preemption_price(action, preemption_price, name)
    return AgentScheduler(policy, observation, action, name)


def load(
    checkpoint: Any = None,
    env: gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any] | EnvConfig | None = None,
    trust: Trust = (),
) -> AgentScheduler:
    """Load a trained agent: `.act(observation, mask)` in an environment, `.decide(view)` as a scheduler.

    Args:
        checkpoint: an agent.safetensors, its run folder or zoo:NAME. None: the newest agent under runs/. With
            `env` also a model of Stable-Baselines3 or sb3-contrib, its model.zip (with `trust=True`), a torch
            module or a function, see `ringyard_agents.learning.models.ModelPolicy`.
        env: environment to act in, wrapped or not, single or vector, or its `EnvConfig`. The agent's
            observation and actions must be equal to those of it. None: no check.
        trust: full names of your own classes that the agent may name. True trusts any class.

    Raises:
        CheckpointError: there is no such agent, it cannot be read, it names a class that is not trusted, or
            its observation or actions differ from those of `env`.
        ConfigurationError: an argument has another type.
    """
    config: Any = getattr(getattr(env, "unwrapped", None), "config", env)
    if not isinstance(config, EnvConfig | None):
        raise ConfigurationError(f"env is {env!r}; expected an environment of Ringyard or an EnvConfig")
    given = "agent" if checkpoint is None else checkpoint
    name = str(given if isinstance(given, str | Path) else getattr(given, "__name__", type(given).__name__))
    if config is None:
        return load_agent(checkpoint, name, trust)
    agent = load_agent(checkpoint, name, trust, observation=config.observation, action=config.actions)
    own, theirs = (_describe_interface(one.observation, one.actions) for one in (agent, config))
    parts = [part for part in own if part in theirs and own[part] != theirs[part]]
    parts = parts[:1] if "actions" in parts else parts  # all else differs with them
    differences = [f"its {part}: {own[part]}; the environment's: {theirs[part]}" for part in parts]
    if differences:
        raise CheckpointError(
            f"{agent.name} cannot act in this environment: {'; '.join(differences)}; expected an environment"
            " with the action, the observation and the cluster of its training"
        )
    agent.require_spaces(config.cluster, config.actions)
    return agent


def _describe_interface(observation: Observation, actions: ActionKind) -> dict[str, str]:
    """Return {part of observation or actions: its description}."""
    kinds = {Scores: "scores of jobs (action=scores)", Weights: "weights of features (action=weights)"}
    parts = {"actions": kinds.get(type(actions), "discrete")}
    parts["observation"] = "one row of numbers (flat=True)" if observation.flat else "blocks (flat=False)"
    parts["blocks"] = ", ".join(block.name for block in observation.blocks)
    for block in observation.blocks:
        parts[f"block {block.name}"] = ", ".join(feature.name for feature in block.features)
    if isinstance(actions, Scores):
        parts["scored GPU types"] = ", ".join(actions.type_scores) or "none"
    elif isinstance(actions, Weights):
        parts["weighted features"] = ", ".join(actions.features)
    elif isinstance(actions, Actions):
        changes = ["preempt"] if actions.preemptive else []
        for one in actions.adjustments:
            place = "stays" if one.placement is None else one.placement.name
            cap = "" if one.bandwidth_cap is None else f" cap {one.bandwidth_cap:g}"
            cap += "" if one.link_share is None else f" link share {one.link_share:g}"
            factors = f"gpus x{one.gpu_factor:g} batch x{one.batch_factor:g} cores x{one.core_factor:g}"
            changes.append(f"{place} {factors}{cap}")
        parts["starts"] = ", ".join(one.name for one in actions.starts) or "none"
        parts["changes"] = ", ".join(changes) or "none"
    return parts
