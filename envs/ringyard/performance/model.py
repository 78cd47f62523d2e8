"""The protocol of performance models, and the ideal model, in which nothing slows a job.

An own model is a compiled function (`ringyard.compiled.implements`) in a `PerformanceModel`:

    @implements(IterationSeconds)
    def _spanning_seconds(job, parameters):
        return job.compute_seconds * job.sharing_slowdown + parameters[0] * (job.num_servers - 1)

    def spanning(seconds_per_server=0.1):
        return PerformanceModel(_spanning_seconds, np.array([seconds_per_server]))

`ringyard.state.records.Job` has the fields of `job`. A yaml in conf/performance, or in a folder that
RINGYARD_CONF names, with `spanning` as `_target_` gives it a name for the command line.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.compiled import (
    FloatVector,
    bundle,
    error_message,
    function_address,
    implements,
    interface,
    kernel,
    raise_plugin_error,
)
from ringyard.fabric import Fabric
from ringyard.performance.host_resources import LoadedMemory
from ringyard.performance.interference import Interference, no_interference
from ringyard.performance.plan_table import PlanTable
from ringyard.state.records import Job, Network


@kernel
def statistical_efficiency(noise_scale: float, base_batch: float, batch: float) -> float:
    """E(M) = (phi + M0) / (phi + M): effective per processed sample (Pollux eq. 6, McCandlish et al. 2018).

    phi is the noise scale in samples (inf: every sample counts fully), M0 the batch at which E is 1.
    """
    if noise_scale == np.inf:
        return 1.0
    return (noise_scale + base_batch) / (noise_scale + batch)


@kernel
def progress_per_iteration(noise_scale: float, base_batch: float, batch: float) -> float:
    """M / M0 x E(M): iterations of `base_batch` M0 that one of `batch` M is worth, by `noise_scale` phi."""
    return batch / base_batch * statistical_efficiency(noise_scale, base_batch, batch)


@interface
class IterationSeconds(Protocol):
    """Compiled function that returns the seconds of one iteration of a job.

    Before each call, the engine updates what the record says of the job's allocation (`num_gpus`,
    `num_servers`, `batch_size`, `compute_seconds`, `cores_per_worker`, ...) and of its neighbours
    (`contenders`, `sharing_slowdown`, `bandwidth_slowdown`). The function must change nothing.
    """

    def __call__(self, job: Job, parameters: FloatVector) -> float:
        """Return seconds, finite and above 0, which is checked at each call.

        Args:
            job: record of the job.
            parameters: [parameters] `PerformanceModel.parameters`.
        """


_NO_TIME = error_message(
    "performance model {function} gave job {job}, with {expected:.0f} GPUs on {there:.0f} servers, {got}"
    " seconds an iteration; expected a finite number above 0 (1e-100 to 1e100)"
)


@bundle
class Physics:
    """A performance model as kernels receive it. They call it through `iteration_seconds`."""

    seconds: IterationSeconds  #: implements `IterationSeconds`
    parameters: FloatVector  #: [parameters] passed to it


@checked("performance")
@dataclass(frozen=True)
class PerformanceModel:
    """A compiled function, its parameters, and how jobs affect their neighbours."""

    iteration_seconds: IterationSeconds  #: implements `IterationSeconds`
    parameters: Annotated[NDArray[np.float64], "one-dimensional"]  #: [parameters] float64, passed to it
    network: Network = Network.NONE  #: how `Job.contenders` is counted. NONE: not at all, which saves time.
    #: how jobs that share a GPU slow each other
    interference: Interference = field(default_factory=no_interference)
    #: network of an isolated ring between servers, for `Network.LIVE_TRANSFERS`
    between_servers: Fabric = field(default_factory=lambda: Fabric(np.inf))
    #: coefficient of variation of compute time among a job's workers, drawn at each start. The slowest
    #: worker sets the pace. Jobs with one worker have no stragglers.
    straggler_cv: Annotated[float, "[0, 1e3]"] = 0.0
    #: `Job.overlap_exponent` of every job. None: that of its profile, 1 without one.
    overlap_exponent: Annotated[float, "[1, inf)"] | None = None
    #: how far out-of-order backpropagation reorders gradients so that transfers overlap with computing: the
    #: overlap exponent is divided by 1 - this. 0: not at all, 1: the longer of the two remains.
    out_of_order_backprop: Annotated[float, "[0, 1]"] = 0.0
    #: how a gang on unlike GPUs splits its batch, unless `JobTable.batch_split` says so: "equal" (the slowest
    #: GPU sets the pace), or "by_speed" (`ringyard.state.gpu_effects.balanced_speed`; whether larger shares
    #: fit into a GPU's memory is not checked)
    batch_split: Literal["equal", "by_speed"] = "equal"
    memory: LoadedMemory = field(default_factory=LoadedMemory)  #: how `Job.bandwidth_slowdown` is counted
    plans: PlanTable | None = None  #: plans of the jobs, all of which have some. None: no job has.

    @cached_property
    def physics(self) -> Physics:
        """The model as kernels receive it."""
        return Physics(self.iteration_seconds, self.parameters)


@implements(IterationSeconds)
def one_second(job: Job, parameters: FloatVector) -> float:
    """Return one second for every `job`, whatever the `parameters`."""
    return 1.0


def ideal() -> PerformanceModel:
    """Return the model in which every job runs as long as in its trace, wherever it is placed."""
    return PerformanceModel(one_second, np.zeros(1))


@kernel
def iteration_seconds(job: Job, j: int, physics: Physics) -> float:
    """Return the seconds of an iteration of `job` in row `j`; a PluginError unless finite and above 0."""
    seconds = physics.seconds(job, physics.parameters)
    if not 1e-100 < seconds < 1e100:
        raise_plugin_error(
            _NO_TIME, function_address(physics.seconds), j, seconds, job.num_gpus, job.num_servers
        )
    return seconds
