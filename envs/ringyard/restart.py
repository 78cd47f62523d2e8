"""What a restart costs: seconds without progress at each start after a job's first, and at a change.

On g GPUs, those that the job goes on with, it takes `seconds + growth x log2(g) + (jump if g >= jump_gpus)`.

The logarithm is found, not derived. AITurbo's follow-on measured 15 models on 1, 2 and 3 GPUs; of what was
tried, it is nearest to the 3 GPUs predicted from 1 and 2 (mean error 9 %; growth by a power 12 %, by each GPU
12 %), and ElasticFlow's simulator grows so as well. No public table goes beyond 3 GPUs: that it goes on so is
an assumption. docs/validation.md has the errors.

What else can change while a job runs:

* *Parameter servers*: parameters are sharded over them; another number is another sharding. Optimus' and
  AITurbo's public schedulers delete the job's pods and start new ones from its checkpoint, ElasticDL sorts
  the shards of a checkpoint anew, DLRover's workers write a checkpoint and connect to the new servers. It
  costs as much as a resize, unless said otherwise.
* *Cores*: a container's quota changes at once and without a restart (`docker update`, Kubernetes' in-place
  resize), but a PyTorch DataLoader starts its worker processes when it is iterated: to use other cores, it
  starts new ones. Reports of what that takes at each epoch go from 0.4 s (4 workers; pull request 1271 of
  metatrain) to 10 s (3 of delta-interpolator; on Windows, and on Linux nothing was noticed); Synergy's
  public scheduler even ends the container and starts another. `CORES_SECONDS` is an assumption between
  them. It never takes longer than a resize, and a CPU-only job, of which no such workers are known, takes
  no time.
* *RAM* (a container's limit) and *shares of memory bandwidth* (Intel's MBA: the kernel writes registers of
  the cores) change at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.checks import Amount, Count, Positive, checked
from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import figures
from ringyard.state.records import Job, JobKind

#: of a change of cores, until the new workers of the input pipeline have the next batch ready; assumption
CORES_SECONDS = 1.0


@kernel
def pause_seconds(seconds: float, growth: float, jump: float, jump_gpus: int, gpus: int) -> float:
    """Seconds without progress of a job that goes on with so many GPUs; 0: CPU-only."""
    pause = seconds
    if growth > 0.0 and gpus > 1:
        pause += growth * np.log2(gpus)
    if jump > 0.0 and gpus >= jump_gpus:
        pause += jump
    return pause


@kernel
def restart_pause(job: Job, gpus: int) -> float:
    """`pause_seconds` of the job at a start after its first, on so many GPUs."""
    return pause_seconds(job.restart_seconds, job.restart_growth, job.restart_jump, job.jump_gpus, gpus)


@kernel
def resize_pause(job: Job, gpus: int) -> float:
    """`pause_seconds` of the running job when it goes on with so many GPUs, or with another batch."""
    return pause_seconds(job.resize_seconds, job.resize_growth, job.resize_jump, job.jump_gpus, gpus)


@kernel
def servers_pause(job: Job, gpus: int) -> float:
    """`pause_seconds` of the running job when it goes on with another number of parameter servers."""
    return pause_seconds(job.servers_seconds, job.servers_growth, job.servers_jump, job.jump_gpus, gpus)


@kernel
def cores_pause(job: Job, now: float) -> float:
    """Seconds without progress of the running job, from now on, when it goes on with other cores.

    0 if it began to run as it does at this very moment: it has not started its workers yet.
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

    seconds: Amount
    growth: Amount = 0.0
    jump: Amount = 0.0


@checked("restart")
@dataclass(frozen=True)
class Figures:
    """How the figures of a job's model are used.

    Attributes:
        growth: seconds at each doubling of the GPUs, of a model without a figure: this, and as long as its
            checkpoint takes to read.
        checkpoint_bytes_per_parameter: size of a checkpoint.
        storage_bytes_per_second: what it is read at; infinity: in no time.
    """

    growth: Amount = 0.0
    checkpoint_bytes_per_parameter: Amount = 0.0
    storage_bytes_per_second: Positive = 1.0

    def growth_of(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds at each doubling of the GPUs."""
        parameters = _or_else(figures("parameters"), figures("gradient_bytes") / 4.0)
        reading = self.checkpoint_bytes_per_parameter * parameters / self.storage_bytes_per_second
        growth = _or_else(figures("restart_seconds_per_doubling"), self.growth + reading)
        return _or_else(growth[jobs.model_ids], self.growth)


def _or_else(values: NDArray[np.float64], otherwise: ArrayLike) -> NDArray[np.float64]:
    """[...] the values, and others where they are NaN."""
    return np.where(np.isnan(values), otherwise, values)


def _alike(jobs: JobTable, figure: float) -> NDArray[np.float64]:
    """[jobs] the same for all."""
    return np.broadcast_to(np.float64(figure), len(jobs))


@checked("restart")
@dataclass(frozen=True)
class RestartCost(Pause):
    """The pause at each start after the first, and when a running job changes.

    Attributes:
        figures: use the figures of a job's model where there are some; None: the same for all.
        resize: when a running job's GPUs or batch change; None: a restart.
        servers: when the number of its parameter servers changes; None: a resize.
        cores: seconds, when cores of its workers or parameter servers change; at most as long as a resize.
        jump_gpus: GPUs from which jumps count.

    Raises:
        ConfigurationError: negative or not finite.
    """

    figures: Figures | None = None
    resize: Pause | None = None
    servers: Pause | None = None
    cores: Amount = CORES_SECONDS
    jump_gpus: Count = 1

    def restart_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each start after the first, on one GPU."""
        if self.figures is None:
            return _alike(jobs, self.seconds)
        return _or_else(figures("restart_seconds")[jobs.model_ids], self.seconds)

    def restart_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that a job starts with."""
        return _alike(jobs, self.growth) if self.figures is None else self.figures.growth_of(jobs)

    def resize_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of GPUs or batch while running, to one GPU."""
        return self.restart_seconds(jobs) if self.resize is None else _alike(jobs, self.resize.seconds)

    def resize_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that a job goes on with."""
        return self.restart_growth(jobs) if self.resize is None else _alike(jobs, self.resize.growth)

    @property
    def resize_jump(self) -> float:
        """Seconds more of a resize to `jump_gpus` GPUs or more."""
        return self.jump if self.resize is None else self.resize.jump

    def servers_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of the number of parameter servers, on one GPU."""
        return self.resize_seconds(jobs) if self.servers is None else _alike(jobs, self.servers.seconds)

    def servers_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that the job has."""
        return self.resize_growth(jobs) if self.servers is None else _alike(jobs, self.servers.growth)

    @property
    def servers_jump(self) -> float:
        """Seconds more on `jump_gpus` GPUs or more."""
        return self.resize_jump if self.servers is None else self.servers.jump

    def cores_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of cores."""
        seconds = np.minimum(self.cores, self.resize_seconds(jobs))
        return np.where(jobs.kind == JobKind.CPU_ONLY, 0.0, seconds)


def _pause(seconds: float | None, growth: float = 0.0, jump: float = 0.0) -> Pause | None:
    return None if seconds is None else Pause(seconds, growth, jump)


@checked("restart")
def constant(
    seconds: Amount,
    resize_seconds: Amount | None = None,
    servers_seconds: Amount | None = None,
    cores_seconds: Amount = CORES_SECONDS,
) -> RestartCost:
    """The same cost for every job on any number of GPUs.

    Args:
        seconds: of a restart.
        resize_seconds: of changing a running job's GPUs or batch; None: as a restart.
        servers_seconds: of changing the number of its parameter servers; None: as a resize.
        cores_seconds: of changing its cores; at most as long as a resize.

    Raises:
        ConfigurationError: negative or not finite.
    """
    resize, servers = _pause(resize_seconds), _pause(servers_seconds)
    return RestartCost(seconds, resize=resize, servers=servers, cores=cores_seconds)


@checked("restart")
def growing(
    seconds: Amount,
    growth: Amount = 0.0,
    jump: Amount = 0.0,
    jump_gpus: Count = 1,
    resize_seconds: Amount | None = None,
    resize_growth: Amount = 0.0,
    resize_jump: Amount = 0.0,
    servers_seconds: Amount | None = None,
    cores_seconds: Amount = CORES_SECONDS,
) -> RestartCost:
    """The same cost for every job, by the GPUs that it goes on with.

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
    resize, servers = _pause(resize_seconds, resize_growth, resize_jump), _pause(servers_seconds)
    return RestartCost(
        seconds, growth, jump, resize=resize, servers=servers, cores=cores_seconds, jump_gpus=jump_gpus
    )


@checked("restart")
def per_model(
    default_seconds: Amount,
    resize_seconds: Amount | None = None,
    growth: Amount = 4.34,
    checkpoint_bytes_per_parameter: Amount = 12.0,
    storage_bytes_per_second: Positive = 109.6e6,
    servers_seconds: Amount | None = None,
    cores_seconds: Amount = CORES_SECONDS,
) -> RestartCost:
    """The figures of each job's model (its profile names the source), grown with its GPUs.

    A model without `restart_seconds_per_doubling` grows by `growth` and by the time that its checkpoint takes
    to read, fitted to the 15 models that were measured on 1, 2 and 3 GPUs (each left out once, its seconds on
    one GPU given: mean error 15 %, median 10 %). Measured is only the quotient, 0.1095 s per million
    parameters; 12 bytes each (weights and two moments in fp32) are an assumption, and so is that a published
    figure whose number of GPUs is not said is of one.

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
        figures=Figures(growth, checkpoint_bytes_per_parameter, storage_bytes_per_second),
        resize=_pause(resize_seconds),
        servers=_pause(servers_seconds),
        cores=cores_seconds,
    )
