"""`RestartCost`: seconds without progress at each start after a job's first, and at changes while it runs.

A job that goes on with g GPUs pauses for `seconds + growth x log2(g) + (jump if g >= jump_gpus)`. The
logarithm is the form that predicts AITurbo's measured pauses best; docs/validation.md ("Restart cost") has
the errors. Beyond 3 GPUs it is an assumption.

Other changes of a running job:

* *Parameter servers*: another number needs another sharding of the parameters, for which the schedulers of
  Optimus and AITurbo, ElasticDL and DLRover read a checkpoint. The default pause is that of a resize.
* *Cores*: the quota of a container changes at once, but a PyTorch DataLoader has to start new worker
  processes. Reports go from 0.4 s (4 workers, pull request 1271 of metatrain) to 10 s (3 workers of
  delta-interpolator, on Windows).
* *RAM* (a container's limit) and *shares of memory bandwidth* (Intel's MBA) change at once.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import profile_values
from ringyard.state.records import Job, JobKind

#: pause of a change of cores, until new workers of the input pipeline have the next batch (assumption)
CORES_SECONDS = 1.0


@kernel
def pause_seconds(seconds: float, growth: float, jump: float, jump_gpus: int, gpus: int) -> float:
    """Return the seconds without progress of a job that goes on with `gpus` GPUs, 0 if CPU-only.

    To `seconds` come those of `growth` at each doubling, and of the `jump` on `jump_gpus` or more.
    """
    pause = seconds
    if growth > 0.0 and gpus > 1:
        pause += growth * np.log2(gpus)
    if jump > 0.0 and gpus >= jump_gpus:
        pause += jump
    return pause


@kernel
def restart_pause(job: Job, gpus: int) -> float:
    """Return `pause_seconds` of `job` at a start after its first, on `gpus` GPUs."""
    return pause_seconds(job.restart_seconds, job.restart_growth, job.restart_jump, job.jump_gpus, gpus)


@kernel
def resize_pause(job: Job, gpus: int) -> float:
    """Return `pause_seconds` of the running `job` at a change of its batch or to `gpus` GPUs."""
    return pause_seconds(job.resize_seconds, job.resize_growth, job.resize_jump, job.jump_gpus, gpus)


@kernel
def servers_pause(job: Job, gpus: int) -> float:
    """Return `pause_seconds` of the running `job` on `gpus` GPUs at a change of its parameter servers."""
    return pause_seconds(job.servers_seconds, job.servers_growth, job.servers_jump, job.jump_gpus, gpus)


@kernel
def cores_pause(job: Job, now: float) -> float:
    """Return the seconds without progress of the running `job` at a change of its cores at time `now`.

    0 if the job started at `now`, because its workers have not started yet.
    """
    return job.cores_seconds if job.last_start_seconds < now else 0.0


@checked("restart")
@dataclass(frozen=True)
class Pause:
    """Seconds without progress as a function of the GPUs that a job goes on with."""

    seconds: NonNegative  #: on one GPU, and of a CPU-only job
    growth: NonNegative = 0.0  #: additional seconds at each doubling of the GPUs
    jump: NonNegative = 0.0  #: additional seconds on `RestartCost.jump_gpus` GPUs or more


@checked("restart")
@dataclass(frozen=True)
class DefaultGrowth:
    """Growth of the pause for models without a measured one."""

    #: additional seconds at each doubling of the GPUs, without the reading of the checkpoint
    growth: NonNegative = 0.0
    checkpoint_bytes_per_parameter: NonNegative = 0.0  #: size of a checkpoint
    #: rate at which a checkpoint is read. Infinity: reading takes no time.
    storage_bytes_per_second: Positive = 1.0

    def growth_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the additional seconds [jobs] at each doubling of the GPUs of `jobs`."""
        parameters = _replace_nan(profile_values("parameters"), profile_values("gradient_bytes") / 4.0)
        reading = self.checkpoint_bytes_per_parameter * parameters / self.storage_bytes_per_second
        growth = _replace_nan(profile_values("restart_seconds_per_doubling"), self.growth + reading)
        return _replace_nan(growth[jobs.model_ids], self.growth)


def _replace_nan(values: NDArray[np.float64], otherwise: ArrayLike) -> NDArray[np.float64]:
    """Return `values` with NaN replaced."""
    return np.where(np.isnan(values), otherwise, values)


def _for_all(jobs: JobTable, figure: float) -> NDArray[np.float64]:
    """Return a number for each job [jobs]."""
    return np.broadcast_to(np.float64(figure), len(jobs))


@checked("restart")
@dataclass(frozen=True)
class RestartCost(Pause):
    """Pauses of jobs at each start after the first and at changes while they run."""

    #: take the pause of a restart from the profile of each job's model, and its growth, if the profile
    #: has none, from here. None: the same pause for all jobs.
    default_growth: DefaultGrowth | None = None
    #: pause of a change of a running job's GPUs or batch. None: that of a restart.
    resize: Pause | None = None
    servers: Pause | None = None  #: pause of a change of its parameter servers. None: that of a resize.
    #: seconds of a change of cores of its workers or parameter servers, at most those of a resize
    cores: NonNegative = CORES_SECONDS
    jump_gpus: PositiveInt = 1  #: fewest GPUs with the jumps

    def restart_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the pause of `jobs` [jobs] at a start after the first, on one GPU, seconds."""
        if self.default_growth is None:
            return _for_all(jobs, self.seconds)
        return _replace_nan(profile_values("restart_seconds")[jobs.model_ids], self.seconds)

    def restart_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the additional seconds of `jobs` [jobs] at each doubling of the GPUs of a restart."""
        rule = self.default_growth
        return _for_all(jobs, self.growth) if rule is None else rule.growth_of(jobs)

    def resize_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the pause of `jobs` [jobs] at a change of GPUs or batch, on one GPU, seconds."""
        return self.restart_seconds(jobs) if self.resize is None else _for_all(jobs, self.resize.seconds)

    def resize_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the additional seconds of `jobs` [jobs] at each doubling of the GPUs of a resize."""
        return self.restart_growth(jobs) if self.resize is None else _for_all(jobs, self.resize.growth)

    @property
    def resize_jump(self) -> float:
        """Additional seconds of a resize to `jump_gpus` GPUs or more."""
        return self.jump if self.resize is None else self.resize.jump

    def servers_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the pause of `jobs` [jobs] at a change of parameter servers, on one GPU, seconds."""
        return self.resize_seconds(jobs) if self.servers is None else _for_all(jobs, self.servers.seconds)

    def servers_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the additional seconds of `jobs` [jobs] at each doubling, at a change of servers."""
        return self.resize_growth(jobs) if self.servers is None else _for_all(jobs, self.servers.growth)

    @property
    def servers_jump(self) -> float:
        """Additional seconds of a change of parameter servers on `jump_gpus` GPUs or more."""
        return self.resize_jump if self.servers is None else self.servers.jump

    def cores_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """Return the pause of `jobs` [jobs] at a change of cores, seconds."""
        seconds = np.minimum(self.cores, self.resize_seconds(jobs))
        return np.where(jobs.kind == JobKind.CPU_ONLY, 0.0, seconds)


def _pause(seconds: float | None, growth: float = 0.0, jump: float = 0.0) -> Pause | None:
    return None if seconds is None else Pause(seconds, growth, jump)


@checked("restart")
def constant(
    seconds: NonNegative,
    resize_seconds: NonNegative | None = None,
    servers_seconds: NonNegative | None = None,
    cores_seconds: NonNegative = CORES_SECONDS,
) -> RestartCost:
    """Create a cost that is equal for all jobs and numbers of GPUs.

    Args:
        seconds: pause of a restart.
        resize_seconds: pause of a change of a running job's GPUs or batch. None: that of a restart.
        servers_seconds: pause of a change of its parameter servers. None: that of a resize.
        cores_seconds: pause of a change of its cores, at most that of a resize.
    """
    resize, servers = _pause(resize_seconds), _pause(servers_seconds)
    return RestartCost(seconds, resize=resize, servers=servers, cores=cores_seconds)


@checked("restart")
def growing(
    seconds: NonNegative,
    growth: NonNegative = 0.0,
    jump: NonNegative = 0.0,
    jump_gpus: PositiveInt = 1,
    resize_seconds: NonNegative | None = None,
    resize_growth: NonNegative = 0.0,
    resize_jump: NonNegative = 0.0,
    servers_seconds: NonNegative | None = None,
    cores_seconds: NonNegative = CORES_SECONDS,
) -> RestartCost:
    """Create a cost that depends on the number of GPUs that a job goes on with.

    Args:
        seconds: pause of a restart on one GPU.
        growth: additional seconds at each doubling of the GPUs.
        jump: additional seconds on `jump_gpus` GPUs or more.
        jump_gpus: fewest GPUs with `jump` and `resize_jump`.
        resize_seconds: pause of a change of GPUs or batch, to one GPU. None: that of a restart.
        resize_growth: as `growth`, of a resize.
        resize_jump: as `jump`, of a resize.
        servers_seconds: pause of a change of parameter servers, on any GPUs. None: that of a resize.
        cores_seconds: pause of a change of cores, at most that of a resize to one GPU.

    Raises:
        ConfigurationError: a value that is negative or not finite, or `resize_growth` or `resize_jump`
            without `resize_seconds`.
    """
    if resize_seconds is None and (resize_growth or resize_jump):
        raise ConfigurationError(
            f"restart.resize_growth is {resize_growth}, restart.resize_jump {resize_jump}, but"
            " restart.resize_seconds is None; expected the seconds of a resize as well"
        )
    resize, servers = (_pause(resize_seconds, resize_growth, resize_jump), _pause(servers_seconds))
    return RestartCost(
        seconds, growth, jump, resize=resize, servers=servers, cores=cores_seconds, jump_gpus=jump_gpus
    )


@checked("restart")
def per_model(
    default_seconds: NonNegative,
    resize_seconds: NonNegative | None = None,
    growth: NonNegative = 4.34,
    checkpoint_bytes_per_parameter: NonNegative = 12.0,
    storage_bytes_per_second: Positive = 109.6e6,
    servers_seconds: NonNegative | None = None,
    cores_seconds: NonNegative = CORES_SECONDS,
) -> RestartCost:
    """Create a cost from the profile of each job's model, which names its sources.

    For a model without `restart_seconds_per_doubling`, the growth is `growth` plus the time to read its
    checkpoint, fitted to 15 models (docs/validation.md). Only the quotient is measured, 0.1095 s per million
    parameters. Assumptions: 12 bytes per parameter (weights and two moments in fp32), and one GPU where a
    publication does not say how many.

    Args:
        default_seconds: pause of a restart on one GPU, for models without a measured one.
        resize_seconds: pause of a change of GPUs or batch, on any GPUs. None: that of a restart.
        growth: additional seconds at each doubling of the GPUs, for any model.
        checkpoint_bytes_per_parameter: size of a checkpoint.
        storage_bytes_per_second: rate at which a checkpoint is read.
        servers_seconds: pause of a change of parameter servers, on any GPUs. None: that of a resize.
        cores_seconds: pause of a change of cores, at most that of a resize to one GPU.
    """
    rule = DefaultGrowth(growth, checkpoint_bytes_per_parameter, storage_bytes_per_second)
    cost = RestartCost(default_seconds, default_growth=rule, cores=cores_seconds)
    return replace(cost, resize=_pause(resize_seconds), servers=_pause(servers_seconds))
