"""What a restart costs: seconds without progress at each start after a job's first, and at a resize.

On g GPUs, those that the job goes on with, it takes `seconds + growth x log2(g) + (jump if g >= jump_gpus)`.

The logarithm is found, not derived. AITurbo's follow-on measured 15 models on 1, 2 and 3 GPUs; of what was
tried, it is nearest to the 3 GPUs predicted from 1 and 2 (mean error 9 %; growth by a power 12 %, by each GPU
12 %), and ElasticFlow's simulator grows so as well. No public table goes beyond 3 GPUs: that it goes on so is
an assumption. `ringyard validate` has the errors.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Amount, Count, Positive, checked
from ringyard.compiled import kernel
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import ModelProfile, catalogue
from ringyard.state.records import Job

__all__ = [
    "Figures",
    "Pause",
    "RestartCost",
    "constant",
    "growing",
    "pause_seconds",
    "per_model",
    "resize_pause",
    "restart_pause",
]


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

    def growth_of(self, model: ModelProfile) -> float:
        """Seconds at each doubling of the GPUs."""
        if model.restart_seconds_per_doubling is not None:
            return float(model.restart_seconds_per_doubling)
        parameters = model.gradient_bytes / 4.0 if model.parameters is None else model.parameters
        size = self.checkpoint_bytes_per_parameter * parameters
        return self.growth + size / self.storage_bytes_per_second


@checked("restart")
@dataclass(frozen=True)
class RestartCost(Pause):
    """The pause at each start after the first, and at a resize.

    Attributes:
        figures: use the figures of a job's model where there are some; None: the same for all.
        resize: when a running job's GPUs or batch change; None: a restart.
        jump_gpus: GPUs from which jumps count.

    Raises:
        ConfigurationError: negative or not finite.
    """

    figures: Figures | None = None
    resize: Pause | None = None
    jump_gpus: Count = 1

    def restart_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each start after the first, on one GPU."""
        return self._by_model(jobs, self.seconds, [model.restart_seconds for model in catalogue()])

    def restart_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that a job starts with."""
        if self.figures is None:
            return np.full(len(jobs), float(self.growth))
        figures = [self.figures.growth_of(model) for model in catalogue()]
        return self._by_model(jobs, self.figures.growth, figures)

    def resize_seconds(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] of each change of GPUs or batch while running, to one GPU."""
        if self.resize is None:
            return self.restart_seconds(jobs)
        return np.full(len(jobs), float(self.resize.seconds))

    def resize_growth(self, jobs: JobTable) -> NDArray[np.float64]:
        """[jobs] seconds more at each doubling of the GPUs that a job goes on with."""
        if self.resize is None:
            return self.restart_growth(jobs)
        return np.full(len(jobs), float(self.resize.growth))

    @property
    def resize_jump(self) -> float:
        """Seconds more of a resize to `jump_gpus` GPUs or more."""
        return self.jump if self.resize is None else self.resize.jump

    def _by_model(
        self, jobs: JobTable, fallback: float, figures: list[float | None] | list[float]
    ) -> NDArray[np.float64]:
        """[jobs] figure of each job's model; the fallback where there is none."""
        if self.figures is None:
            return np.full(len(jobs), float(fallback))
        by_model = np.array([fallback if figure is None else figure for figure in figures] + [fallback])
        return by_model[jobs.model_ids]


def _resize(seconds: float | None, growth: float = 0.0, jump: float = 0.0) -> Pause | None:
    if seconds is None and (growth or jump):
        raise ConfigurationError(
            f"restart.resize_growth is {growth}, restart.resize_jump {jump}, but restart.resize_seconds is"
            " None; expected the seconds of a resize as well"
        )
    return None if seconds is None else Pause(seconds, growth, jump)


@checked("restart")
def constant(seconds: Amount, resize_seconds: Amount | None = None) -> RestartCost:
    """The same cost for every job on any number of GPUs.

    Args:
        seconds: of a restart.
        resize_seconds: of changing a running job's GPUs or batch; None: as a restart.

    Raises:
        ConfigurationError: negative or not finite.
    """
    return RestartCost(seconds, resize=_resize(resize_seconds))


@checked("restart")
def growing(
    seconds: Amount,
    growth: Amount = 0.0,
    jump: Amount = 0.0,
    jump_gpus: Count = 1,
    resize_seconds: Amount | None = None,
    resize_growth: Amount = 0.0,
    resize_jump: Amount = 0.0,
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

    Raises:
        ConfigurationError: negative or not finite, or growth of a resize without its seconds.
    """
    resize = _resize(resize_seconds, resize_growth, resize_jump)
    return RestartCost(seconds, growth, jump, resize=resize, jump_gpus=jump_gpus)


@checked("restart")
def per_model(
    default_seconds: Amount,
    resize_seconds: Amount | None = None,
    growth: Amount = 4.34,
    checkpoint_bytes_per_parameter: Amount = 12.0,
    storage_bytes_per_second: Positive = 109.6e6,
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

    Raises:
        ConfigurationError: negative or not finite.
    """
    figures = Figures(growth, checkpoint_bytes_per_parameter, storage_bytes_per_second)
    return RestartCost(default_seconds, figures=figures, resize=_resize(resize_seconds))
