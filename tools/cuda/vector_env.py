"""`CudaVectorEnv`: many clusters stepped on a GPU, by the kernels of `ClusterVectorEnv`."""

from dataclasses import replace
from typing import Any, Unpack

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from ringyard.allocator import AllocationPlan
from ringyard.compiled import Float32Matrix, IntVector, bundle, kernel
from ringyard.errors import ActionError, ConfigurationError, PluginError, SchedulerError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env import validate_seed, workload_option
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.episode import Episode, StepOutputs, WorkloadRows
from ringyard.mdp.experiments import ConfigArguments, choose_config
from ringyard.mdp.step import BEGIN, STEP, StepConfig, all_valid, step
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.mdp.workload_cache import WorkloadCache
from ringyard.state.arrays import State
from tools.cuda.llvm import Gpu

#: from one episode of a cluster to the next, its job table's number grows by this prime
_STRIDE = 7919
#: arrays of an `AllocationPlan` that a job table determines
_TABLES = ("utility", "batch_size", "max_speed", "max_utility", "estimate_memory")
# error numbers of a step. Others are of exceptions in kernels.
_STALLED, _INVALID = 1, 2


@bundle
class CudaCall:
    """What a step on a GPU reads and writes."""

    state: State
    episode: Episode
    out: StepOutputs
    rows: WorkloadRows  #: all job tables
    tables: AllocationPlan  #: with a row for each job table in the arrays of `_TABLES`
    config: StepConfig
    actions: IntVector  #: [clusters]
    scores: Float32Matrix  #: [clusters, scores], [clusters, 0] with discrete actions
    clusters: IntVector  #: [clusters] their numbers
    workload_rows: IntVector  #: [clusters] number and row of the present job table


@kernel
def _use_next_table(call: CudaCall, b: int) -> None:
    """Let cluster `b` begin the next job table, and give the allocator the speeds of its jobs."""
    row = (call.workload_rows[b] + _STRIDE) % call.rows.records.shape[0]
    call.workload_rows[b] = row
    call.out.entries[b] = row
    plan, tables = call.episode.plan, call.tables
    for j in range(plan.utility.shape[1] if len(plan.utility) > 0 else 0):
        for size in range(plan.utility.shape[2]):
            plan.utility[b, j, size] = tables.utility[row, j, size]
            plan.batch_size[b, j, size] = tables.batch_size[row, j, size]
        for k in range(plan.estimate_memory.shape[2]):
            plan.estimate_memory[b, j, k] = tables.estimate_memory[row, j, k]
        plan.max_speed[b, j] = tables.max_speed[row, j]
        plan.max_utility[b, j] = tables.max_utility[row, j]
        plan.wanted_cores[b, j] = 0


@kernel
def step_cluster(call: CudaCall, b: int, phase: int) -> int:
    """Step cluster `b`, or begin an episode, in phase BEGIN and if the last one has ended.

    Returns 0 or an error number.
    """
    out, own, actions, scores = call.out, call.clusters[b : b + 1], call.actions, call.scores
    begins = phase == BEGIN or out.done[b] or out.truncated[b]
    if begins:
        _use_next_table(call, b)
    elif not all_valid(out, own, actions, scores):
        return _INVALID
    phase, rows, workload_rows = BEGIN if begins else STEP, call.rows, call.workload_rows
    state, episode, config = call.state, call.episode, call.config
    stalled = step(state, episode, out, phase, actions, scores, rows, workload_rows, config, own)
    if begins:
        out.rewards[b] = 0.0
        out.done[b] = False
        out.truncated[b] = False
    return _STALLED if stalled > 0 else 0


def _new_call(batch: ClusterBatch) -> CudaCall:
    """Return what a step on a GPU reads, in the arrays of a `batch`."""
    count, entries = batch.num_clusters, range(batch.config.num_workloads)
    cache = WorkloadCache(batch.config, len(entries))
    cache.rows_of(np.arange(len(entries)))  # prepares each in the row of its number
    tables: dict[str, list[NDArray[Any]]] = {name: [] for name in _TABLES}
    for entry in (*entries, *entries):  # at the first round, arrays may grow
        batch._set_utilities(0, cache.utilities[entry], cache.estimate_memory(entry))
        for name, rows in tables.items():
            rows.append(getattr(batch.episode.plan, name)[:1].copy())
    kept = {name: np.concatenate(rows[len(entries) :]) for name, rows in tables.items()}
    speeds = replace(batch.episode.plan, **kept)
    own = *batch._kernel_actions(batch._null_actions.copy()), np.arange(count), np.arange(count)
    return CudaCall(batch.state, batch.episode, batch._out, cache.rows, speeds, batch._step_config, *own)


class CudaVectorEnv(ClusterVectorEnv):
    """`ClusterVectorEnv` on a GPU. Equal seeds give the same episodes, though not those of a processor.

    Observations [num_envs, size], rewards, ends and the values of `info` are CuPy's arrays on the GPU, which
    the next step overwrites. PyTorch reads them without a copy (`torch.as_tensor(rewards)`). A step does not
    wait for the GPU. The step after the end of an episode begins the next one. Masked actions are errors.
    Logarithms and powers may differ from a processor's in the last bit.

    ## Arguments
    Args:
        num_envs: number of clusters.
        config: configuration of all clusters. None: that of `experiment` and `arguments`.
        device: number of the GPU.
        experiment: as in `ClusterEnv`.
        arguments: as in `ClusterEnv`.

    Raises:
        ConfigurationError: an argument has another type or value, there is no GPU, or the reward compares
            with equal scores.
    """

    def __init__(
        self,
        num_envs: int = 1,
        config: EnvConfig | None = None,
        device: int | Gpu = 0,
        experiment: str | None = None,
        **arguments: Unpack[ConfigArguments],
    ) -> None:
        config = choose_config(config, experiment, arguments)
        if config.reward.saved:
            raise ConfigurationError("reward=saved_jct is not for a GPU; expected reward=total_jct")
        config = replace(config, observation=replace(config.observation, flat=True))
        super().__init__(num_envs, config, AutoresetMode.NEXT_STEP)
        self._gpu = Gpu(device) if isinstance(device, int) else device
        self._call = call = _new_call(self.batch)
        out, copy = call.out, self._gpu.copy
        self._run = self._gpu.load(step_cluster, call, num_envs)
        self._actions = copy(call.scores if self.single_action_space.shape else call.actions)
        self._tables = copy(call.workload_rows)
        self._results = [copy(one) for one in (out.observations, out.rewards, out.done, out.truncated)]
        self._info = {name: copy(array) for name, array in self.batch.infos.items()}

    def action_masks(self) -> Any:
        """Return [num_envs, actions] booleans on the GPU, True where an action is valid."""
        return self._info["action_mask"]

    def reset(  # type: ignore[override]
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in all clusters.

        Args:
            seed: cluster b begins the job tables of numbers seed + b, seed + b + 7919, ..., as a ring. None
                goes on.
            options: none are known.

        Returns:
            Observations and `info`.
        """
        workload_option(options, (), self.config.num_workloads)
        self._gpu.errors[...] = 0
        if (first := validate_seed(seed)) is not None:
            numbers = (first - _STRIDE + np.arange(self.num_envs)) % self.config.num_workloads
            self._gpu.assign(self._tables, numbers)
        self._run(BEGIN)
        return self._results[0], dict(self._info)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Carry out one action in every cluster, or begin the next episode where the last one has ended.

        Args:
            actions: [num_envs, ...] numbers or scores, of PyTorch or CuPy on the GPU, or of NumPy.

        Returns:
            Observations, rewards, whether every job has ended, whether `limit_seconds` is reached (each
            [num_envs]), and `info`.

        Raises:
            ActionError: actions have another shape or type. `check` finds invalid ones.
        """
        self._gpu.assign(self._actions, actions)
        self._run(STEP)
        return (*self._results, dict(self._info))

    def check(self) -> None:
        """Wait for the GPU, and raise the error of the first cluster that has one, until `reset`.

        Raises:
            ActionError: an action is outside of the space, or masked.
            SchedulerError: see `ClusterEnv.step`.
            PluginError: an exception in a kernel.
        """
        errors = self._gpu.errors.get()
        for b in np.flatnonzero(errors).tolist():
            if errors[b] == _INVALID:
                raise ActionError(f"the action of cluster {b} is masked or outside of the space")
            if errors[b] == _STALLED:
                raise SchedulerError(f"in cluster {b} no action can start a job, or time stands still")
            raise PluginError(f"exception {errors[b]} in cluster {b}; ClusterVectorEnv has its text")
