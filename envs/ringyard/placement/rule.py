"""The protocol of placement rules, and checks of what they return.

An own rule is a compiled function (`ringyard.compiled.implements`) in a `PlacementRule`:

    @implements(FindGpus)
    def _last_server(state, b, j, wanted, parameters, out):
        for s in range(state.servers.shape[1] - 1, -1, -1):
            if available_gpus(state, b, j, s) >= wanted:
                return take_free_gpus(state, b, j, s, wanted, out, 0)
        return 0

    def last_server():
        return PlacementRule(_last_server, "last_server")

Helpers are in `ringyard.placement.availability`. A yaml in conf/placement, or in a folder that RINGYARD_CONF
names, with `last_server` as `_target_` gives it a name for the command line.
"""

from dataclasses import field
from typing import Protocol

import numpy as np

from ringyard.compiled import (
    FloatVector,
    Int32Vector,
    bundle,
    error_message,
    function_address,
    interface,
    is_validated,
    kernel,
    linked_kernel,
    raise_plugin_error,
)
from ringyard.observability import Observability, check_reads
from ringyard.placement.availability import (
    find_cpu_server,
    parameter_servers_on,
    sort_ascending,
    total_demand,
)
from ringyard.resources import NUM_RESOURCES, RESOURCES
from ringyard.state.arrays import State
from ringyard.state.records import DOWN, free_on, held_per_worker

_RULE = "placement rule {function} gave job {job} "
_WRONG_NUMBER = error_message(_RULE + "{got:.0f} GPUs; expected {expected:.0f}, or 0 where it finds no place")
_NO_SUCH_GPU = error_message(_RULE + "GPU {got:.0f}; expected ids from 0 to {expected:.0f}")
_DUPLICATE = error_message(_RULE + "GPU {got:.0f} twice; expected {expected:.0f} different ones")
_DOWN = error_message(_RULE + "GPU {got:.0f} of server {there:.0f}, which is down; expected one that is up")
_BUSY = error_message(
    _RULE
    + "GPU {got:.0f}, which holds {there:.0f} jobs; expected {expected:.0f} at most (jobs_per_gpu - 1 if"
    " the rule says shares=True, else 0)"
)
_LITTLE_MEMORY = error_message(
    _RULE
    + "GPU {got:.0f} with {there:.4g} bytes of memory free; expected {expected:.4g}, which the job needs"
)
#: a message for each resource
_NEEDS = "{{expected:.0f}} {0} on server {{got:.0f}}, which has {{there:.0f}} free; expected no more"
_LITTLE_RESOURCE = tuple(error_message(_RULE + _NEEDS.format(one.unit + one.name)) for one in RESOURCES)


@kernel
def _check_servers(state: State, b: int, j: int, function: int, places: Int32Vector, count: int) -> None:
    """Raise a PluginError if a server lacks resources for the tasks at (sorted) `places`."""
    job = state.jobs[b, j]
    num_servers = 1
    for i in range(1, count):
        if state.gpus[b, places[i]].server != state.gpus[b, places[i - 1]].server:
            num_servers += 1
    rank = 0
    workers = 0
    for i in range(count):
        s = state.gpus[b, places[i]].server
        workers += 1
        if i + 1 == count or state.gpus[b, places[i + 1]].server != s:
            tasks = parameter_servers_on(job.parameter_servers, num_servers, rank)
            for r in range(NUM_RESOURCES):
                needed = total_demand(r, workers, held_per_worker(job, r), tasks, job.cores_per_server_task)
                free = free_on(state.servers[b, s], r)
                if needed > free:
                    raise_plugin_error(_LITTLE_RESOURCE[r], function, j, s, needed, free)
            rank += 1
            workers = 0


@linked_kernel
def check_places(
    state: State, b: int, j: int, function: int, shares: bool, places: Int32Vector, count: int
) -> None:
    """Sort the GPU ids that a rule found for job `j`, or raise a PluginError where they break `FindGpus`."""
    wanted = state.jobs[b, j].num_gpus
    if count != wanted:
        raise_plugin_error(_WRONG_NUMBER, function, j, count, wanted, 0.0)
    sort_ascending(places, count)
    last = state.gpus.shape[1] - 1
    if places[0] < 0:
        raise_plugin_error(_NO_SUCH_GPU, function, j, places[0], last, 0.0)
    if places[count - 1] > last:
        raise_plugin_error(_NO_SUCH_GPU, function, j, places[count - 1], last, 0.0)
    most_jobs = state.clusters[b].jobs_per_gpu - 1 if shares else 0
    needed_bytes = state.jobs[b, j].gpu_memory_bytes
    for i in range(count):
        if i > 0 and places[i] == places[i - 1]:
            raise_plugin_error(_DUPLICATE, function, j, places[i], wanted, 0.0)
        gpu = state.gpus[b, places[i]]
        if gpu.num_jobs >= DOWN:
            raise_plugin_error(_DOWN, function, j, places[i], 0.0, gpu.server)
        if gpu.num_jobs > most_jobs:
            raise_plugin_error(_BUSY, function, j, places[i], most_jobs, gpu.num_jobs)
        if gpu.free_memory_bytes < needed_bytes:
            raise_plugin_error(_LITTLE_MEMORY, function, j, places[i], needed_bytes, gpu.free_memory_bytes)
    if state.jobs[b, j].uses_host_resources:
        _check_servers(state, b, j, function, places, count)


@interface
class FindGpus(Protocol):
    """Compiled function that finds GPUs for a job.

    It reads free GPUs, slots, memory and cores from the state. It may write only `out`, `server_scratch`,
    `number_scratch` and, if it is random, the cluster's `rng`. It must return

    * exactly `wanted` GPUs, or none,
    * ids from 0 to the cluster's last GPU, each once,
    * GPUs of servers that are up, without jobs, or with fewer than `jobs_per_gpu` if the rule `shares`,
    * GPUs with the memory, on servers with the cores, that the job needs in its present shape.

    All of that is checked at each call, the last three only for rules from outside this package (for all
    with RINGYARD_CHECK=1). The same state must give the same answer, and fewer free GPUs must never make a
    job placeable.
    """

    def __call__(
        self, state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
    ) -> int:
        """Write GPU ids, and return their number: `wanted`, or 0 if there is no place.

        Args:
            state: arrays of the simulations.
            b: cluster.
            j: job. It holds no GPUs, and its record has the cores and memory that it needs.
            wanted: number of GPUs, at least 1.
            parameters: [parameters] `PlacementRule.parameters`.
            out: [gpus] receives the ids.
        """


@bundle
class PlacementRule:
    """A placement rule: a compiled function and its parameters.

    Raises:
        ObservabilityError: `find` reads more of jobs than it declares.
    """

    find: FindGpus  #: implements `FindGpus`
    name: str  #: shown in tables
    #: [parameters] float64, passed to `find`
    parameters: FloatVector = field(default_factory=lambda: np.zeros(1))
    #: may return GPUs that other jobs hold. Other rules are called only if enough GPUs are free.
    shares: bool = False
    #: what `find` may read of jobs, besides sizes and speeds
    observability: Observability = Observability.NOTHING

    def __post_init__(self) -> None:
        knows = self.observability | Observability.SIZES | Observability.SPEEDS
        check_reads(self.find, knows, f"placement rule {self.name}")


@linked_kernel
def place(state: State, b: int, j: int, rule: PlacementRule, out: Int32Vector) -> int:
    """Find GPUs for a job by a rule, or a server for a CPU-only job (`availability.find_cpu_server`).

    They go to `out` [gpus]. Return how many, 0 if there is no place. A bad rule ends in a PluginError.
    """
    wanted = state.jobs[b, j].num_gpus
    if wanted == 0:
        return find_cpu_server(state, b, j, out)
    cluster = state.clusters[b]
    if wanted > (cluster.open_gpus if rule.shares else cluster.free_gpus):
        return 0
    count = rule.find(state, b, j, wanted, rule.parameters, out)
    if count != 0 and (count != wanted or is_validated(rule.find)):
        check_places(state, b, j, function_address(rule.find), rule.shares, out, count)
    return count
