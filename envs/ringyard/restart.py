"""Restart cost: seconds without progress at each start after a job's first, and at a change.

A job that goes on with g GPUs pauses for `seconds + growth x log2(g) + (jump if g >= jump_gpus)`.

The logarithm is empirical. AITurbo's follow-on measured 15 models on 1, 2 and 3 GPUs. Of the forms tried, it
predicts 3 GPUs best from 1 and 2 (mean error 9 %; a power law and a linear growth 12 %), and ElasticFlow's
simulator uses it too. No public table goes beyond 3 GPUs, so its use there is an assumption.
docs/validation.md has the errors.

Other changes of a running job:

* *Parameter servers*: another number is another sharding of the parameters. Optimus' and AITurbo's public
  schedulers start new pods from a checkpoint, ElasticDL sorts the shards of a checkpoint anew, and DLRover's
  workers connect to the new servers from a checkpoint. It costs as much as a resize unless configured.
* *Cores*: a container's quota changes at once (`docker update`, Kubernetes' in-place resize), but a PyTorch
  DataLoader has to start new worker processes to use other cores. Reports go from 0.4 s (4 workers; pull
  request 1271 of metatrain) to 10 s (3 of delta-interpolator, on Windows); Synergy's public scheduler starts
  a new container. `CORES_SECONDS` is an assumption between them. The pause is at most that of a resize, and
  0 for CPU-only jobs.
* *RAM* (a container's limit) and *shares of memory bandwidth* (Intel's MBA) change at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import profile_values
from ringyard.state.records import Job, JobKind

#: seconds of a change of cores, until new workers of the input pipeline have the next batch; assumption
CORES_SECONDS = 1.0


@kernel
def pause_seconds(seconds: float, growth: float, jump: float, jump_gpus: int, gpus: int) -> float:
    """Return the seconds without progress of a job that goes on with `gpus` GPUs.

    Args:
        seconds: on one GPU, and of a CPU-only job.
        growth: seconds more at each doubling of the GPUs.
        jump: seconds more from `jump_gpus` GPUs on.
        jump_gpus: GPUs from which the jump counts.
        gpus: 0 for a CPU-only job.
    """
    pause = seconds
    if growth > 0.0 and gpus > 1:
        pause += growth * np.log2(gpus)
    if jump > 0.0 and gpus >= jump_gpus:
        pause += jump
    return pause


@kernel
def restart_pause(job: Job, gpus: int) -> float:
    """Return `pause_seconds` of a start of the job after its first, on `gpus` GPUs."""
    return pause_seconds(job.restart_seconds, job.restart_growth, job.restart_jump, job.jump_gpus, gpus)


@kernel
def resize_pause(job: Job, gpus: int) -> float:
    """Return `pause_seconds` of the running job when it goes on with `gpus` GPUs or another batch."""
    return pause_seconds(job.resize_seconds, job.resize_growth, job.resize_jump, job.jump_gpus, gpus)


@kernel
def servers_pause(job: Job, gpus: int) -> float:
    """Return `pause_seconds` of the running job when its number of parameter servers changes."""
    return pause_seconds(job.servers_seconds, job.servers_growth, job.servers_jump, job.jump_gpus, gpus)


@kernel
def cores_pause(job: Job, now: float) -> float:
    """Return the seconds without progress of the running job when its cores change at `now`.

    0 if the job started at `now`, because its workers have not started yet.
    """
    return job.cores_seconds if job.last_start_seconds < now else 0.0


@checked("restart")
@dataclass(frozen=True)
class Pause:
    """Seconds without progress, by the GPUs that a job goes on with.

    Attributes:
        seconds: on one GPU, and of a CPU-only job.
        growth: more at each doubling of the GPUs.
        jump: more from `RestartCost.jump_gpus` GPUs on.
    """

    seconds: NonNegative
    growth: NonNegative = 0.0
    jump: NonNegative = 0.0


@checked("restart")
@dataclass(frozen=True)
class DefaultGrowth:
    """Growth of models without a measured one.

    Attributes:
        growth: seconds at each doubling of the GPUs, beside the reading of the checkpoint.
        checkpoint_bytes_per_parameter: size of a checkpoint.
        storage_bytes_per_second: what it is read at; infinity: in no time.
    """

    growth: NonNegative = 0.0
    checkpoint_bytes_per_parameter: NonNegative = 0.0
    storage_bytes_per_second: Positive = 1.0

    def growth_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds at each doubling of the GPUs."""
        parameters = _replace_nan(profile_values("parameters"), profile_values("gradient_bytes") / 4.0)
        reading = self.checkpoint_bytes_per_parameter * parameters / self.storage_bytes_per_second
        growth = _replace_nan(profile_values("restart_seconds_per_doubling"), self.growth + reading)
        return _replace_nan(growth[jobs.model_ids], self.growth)


def _replace_nan(values: NDArray[np.float64], otherwise: ArrayLike) -> NDArray[np.float64]:
    """Replace NaN."""
    return np.where(np.isnan(values), otherwise, values)


def _same_for_all(jobs: JobTable, figure: float) -> NDArray[np.float64]:
    """Return one figure for all jobs [jobs]."""
    return np.broadcast_to(np.float64(figure), len(jobs))


@checked("restart")
@dataclass(frozen=True)
class RestartCost(Pause):
    """The pause at each start after the first, and when a running job changes.

    Attributes:
        default_growth: use the figures of a job's model where there are some; None: the same for all.
        resize: when a running job's GPUs or batch change; None: a restart.
        servers: when the number of its parameter servers changes; None: a resize.
        cores: seconds, when cores of its workers or parameter servers change; at most as long as a resize.
        jump_gpus: GPUs from which jumps count.

    Raises:
        ConfigurationError: negative or not finite.
    """

    default_growth: DefaultGrowth | None = None
    resize: Pause | None = None
    servers: Pause | None = None
    cores: NonNegative = CORES_SECONDS
    jump_gpus: PositiveInt = 1

    def restart_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each start after the first, on one GPU."""
        if self.default_growth is None:
            return _same_for_all(jobs, self.seconds)
        return _replace_nan(profile_values("restart_seconds")[jobs.model_ids], self.seconds)

    def restart_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that a job starts with."""
        return (
            _same_for_all(jobs, self.growth)
            if self.default_growth is None
            else self.default_growth.growth_of(jobs)
        )

    def resize_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of GPUs or batch while running, to one GPU."""
        return self.restart_seconds(jobs) if self.resize is None else _same_for_all(jobs, self.resize.seconds)

    def resize_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that a job goes on with."""
        return self.restart_growth(jobs) if self.resize is None else _same_for_all(jobs, self.resize.growth)

    @property
    def resize_jump(self) -> float:
        """Seconds more of a resize to `jump_gpus` GPUs or more."""
        return self.jump if self.resize is None else self.resize.jump

    def servers_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of the number of parameter servers, on one GPU."""
        return (
            self.resize_seconds(jobs) if self.servers is None else _same_for_all(jobs, self.servers.seconds)
        )

    def servers_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that the job has."""
        return self.resize_growth(jobs) if self.servers is None else _same_for_all(jobs, self.servers.growth)

    @property
    def servers_jump(self) -> float:
        """Seconds more on `jump_gpus` GPUs or more."""
        return self.resize_jump if self.servers is None else self.servers.jump

    def cores_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of cores."""
        seconds = np.minimum(self.cores, self.resize_seconds(jobs))
        return np.where(jobs.kind == JobKind.CPU_ONLY, 0.0, seconds)


def _optional_pause(seconds: float | None, growth: float = 0.0, jump: float = 0.0) -> Pause | None:
    return None if seconds is None else Pause(seconds, growth, jump)


@checked("restart")
def constant(
    seconds: NonNegative,
    resize_seconds: NonNegative | None = None,
    servers_seconds: NonNegative | None = None,
    cores_seconds: NonNegative = CORES_SECONDS,
) -> RestartCost:
    """Create a cost that is the same for every job on any number of GPUs.

    Args:
        seconds: of a restart.
        resize_seconds: of changing a running job's GPUs or batch; None: as a restart.
        servers_seconds: of changing the number of its parameter servers; None: as a resize.
        cores_seconds: of changing its cores; at most as long as a resize.

    Raises:
        ConfigurationError: negative or not finite.
    """
    resize, servers = _optional_pause(resize_seconds), _optional_pause(servers_seconds)
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
    """Create a cost that depends on the GPUs that a job goes on with.

    Args:
        seconds: of a restart on one GPU.
        growth: more at each doubling of the GPUs.
        jump: more from `jump_gpus` GPUs on.
        jump_gpus: of both jumps.
        resize_seconds: of changing a running job's GPUs or batch, to one GPU; None: as a restart.
        resize_growth: as `growth`.
        resize_jump: as `jump`.
        servers_seconds: of changing the number of its parameter servers, on any GPUs; None: as a resize.
        cores_seconds: of changing its cores; at most as long as a resize to one GPU.

    Raises:
        ConfigurationError: negative or not finite, or growth of a resize without its seconds.
    """
    if resize_seconds is None and (resize_growth or resize_jump):
        raise ConfigurationError(
            f"restart.resize_growth is {resize_growth}, restart.resize_jump {resize_jump}, but"
            " restart.resize_seconds is None; expected the seconds of a resize as well"
        )
    resize, servers = (
        _optional_pause(resize_seconds, resize_growth, resize_jump),
        _optional_pause(servers_seconds),
    )
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
    """Create a cost from the figures of each job's model; profiles name their sources.

    A model without `restart_seconds_per_doubling` grows by `growth` and by the time that its checkpoint takes
    to read. Both are fitted to the 15 models measured on 1, 2 and 3 GPUs (each left out once, its seconds on
    one GPU given: mean error 15 %, median 10 %). Only the quotient is measured, 0.1095 s per million
    parameters. Assumed are 12 bytes each (weights and two moments in fp32), and one GPU where a published
    figure does not say how many.

    Args:
        default_seconds: on one GPU, for models without a figure.
        resize_seconds: of changing a running job's GPUs or batch, whatever its GPUs; None: as a restart.
        growth: seconds at each doubling of the GPUs, whatever the model.
        checkpoint_bytes_per_parameter: size of a checkpoint.
        storage_bytes_per_second: what it is read at.
        servers_seconds: of changing the number of its parameter servers, on any GPUs; None: as a resize.
        cores_seconds: of changing its cores; at most as long as a resize to one GPU.

    Raises:
        ConfigurationError: negative or not finite.
    """
    return RestartCost(
        default_seconds,
        default_growth=DefaultGrowth(growth, checkpoint_bytes_per_parameter, storage_bytes_per_second),
        resize=_optional_pause(resize_seconds),
        servers=_optional_pause(servers_seconds),
        cores=cores_seconds,
    )
