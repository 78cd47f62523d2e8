"""Generated workloads: arrivals, sizes, durations and models drawn independently."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Fraction, NonNegative, Positive, PositiveInt, checked
from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.workloads.workload import CostAssignment, GeneratorBatch

_DAY = 86400.0
_HOURS = np.arange(0.0, 25.0 * 3600.0, 3600.0, dtype=np.float64)

#: random generator of one table, or of several
Draws = np.random.Generator | GeneratorBatch


@checked("workload.arrivals")
@dataclass(frozen=True)
class Arrivals:
    """Arrivals with Gamma distributed gaps, warped by the hour of the day."""

    #: coefficient of variation of the gaps. 1: Poisson arrivals, above 1: bursty, 0: evenly spaced.
    cv: Annotated[float, "[0, 1e3]"] = 1.0
    #: [24] relative rate by hour, scaled to mean 1. None: the same all day.
    hourly_factors: Sequence[Positive] | None = None

    def __post_init__(self) -> None:
        factors = self.hourly_factors
        if factors is not None and len(factors) != 24:
            raise ConfigurationError(
                f"workload.arrivals.hourly_factors has {len(factors)} numbers; expected 24, one for each hour"
            )

    def times(self, count: int, per_second: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw `count` ascending arrival times in seconds from `rng`, `per_second` jobs on average."""
        return self.times_batch(count, per_second, [rng])[0]

    def times_batch(
        self, count: int, per_second: float, generators: Sequence[np.random.Generator]
    ) -> NDArray[np.float64]:
        """Draw [generators, count] arrival times, `per_second` on average, as `times` does with each."""
        gaps, begin = np.ones((len(generators), count)), np.zeros((len(generators), 1))
        shape = self.cv**-2 if self.cv > 0 else 0.0
        for row, one in enumerate(generators):
            if self.cv > 0:
                gaps[row] = one.gamma(shape, 1.0 / shape, count)
            begin[row] = one.random() * _DAY
        times = (np.cumsum(gaps, axis=1) - gaps[:, :1]) / per_second
        if self.hourly_factors is None:
            return times
        warped = _warp_time_of_day(times + _warp_time_of_day(begin, _HOURS, self._edges), self._edges, _HOURS)
        return np.maximum.accumulate(np.maximum(warped - warped[:, :1], 0.0), axis=1)

    @cached_property
    def _edges(self) -> NDArray[np.float64]:
        """Integral of the rate factor from midnight to each hour, seconds."""
        factors = np.asarray(self.hourly_factors, dtype=np.float64)
        return np.concatenate([[0.0], np.cumsum(factors / factors.mean() * 3600.0)])


def _warp_time_of_day(
    clock: NDArray[np.float64], edges: NDArray[np.float64], others: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Map the time of day of `clock` [...], seconds, from `edges` [25] to `others` [25] of each hour."""
    days, seconds = np.divmod(clock, _DAY)
    return days * _DAY + np.interp(seconds, edges, others)


@checked("workload.sizes")
@dataclass(frozen=True)
class Sizes:
    """Numbers of GPUs that jobs ask for."""

    #: {GPUs: share of the jobs}, scaled to sum 1
    fractions: Annotated[Mapping[PositiveInt, NonNegative], "of positive sum"]

    def draw(self, count: int, max_gpus: int, rng: Draws) -> NDArray[np.int64]:
        """Draw `count` sizes of at most `max_gpus` GPUs from `rng`, by the shares of these sizes."""
        sizes = np.array([size for size in sorted(self.fractions) if size <= max_gpus], dtype=np.int64)
        shares = np.array([self.fractions[int(size)] for size in sizes], dtype=np.float64)
        if len(sizes) == 0 or not shares.sum() > 0:
            raise ConfigurationError(
                f"workload.sizes.fractions is for {sorted(self.fractions)} GPUs; expected a size of at most"
                f" {max_gpus}, which the cluster or max_gpus allows"
            )
        edges = np.cumsum(shares / shares.sum())
        return sizes[np.searchsorted(edges / edges[-1], rng.random(count), side="right")]


class Durations(Protocol):
    """A distribution of isolated run times."""

    def draw(self, num_gpus: NDArray[np.int64], rng: Any) -> NDArray[np.float64]:
        """Draw [jobs] seconds above 0 from `rng`, for jobs of `num_gpus` [jobs] GPUs."""


@checked("workload.durations")
@dataclass(frozen=True)
class LogNormalDurations:
    """exp(Normal(mu, sigma)) seconds, clipped to limits, whatever the job's GPUs."""

    draws_per_job = True  # see `GeneratorBatch`
    mu: float  #: mean of the natural log of the seconds
    sigma: NonNegative  #: standard deviation of the natural log of the seconds
    min_seconds: Positive = 1.0  #: lower limit, above 0
    max_seconds: Annotated[float, "(0, inf]"] = float("inf")  #: upper limit

    def __post_init__(self) -> None:
        if self.min_seconds > self.max_seconds:
            raise ConfigurationError(
                f"workload.durations.min_seconds is {self.min_seconds}"
                f"; expected at most max_seconds, {self.max_seconds}"
            )

    def draw(self, num_gpus: NDArray[np.int64], rng: Draws) -> NDArray[np.float64]:
        """Draw [jobs] seconds from `rng`, for jobs of `num_gpus` [jobs] GPUs."""
        return rng.lognormal(self.mu, self.sigma, len(num_gpus)).clip(self.min_seconds, self.max_seconds)


@checked("workload.durations")
@dataclass(frozen=True)
class QuantileDurations:
    """Seconds by inverse transform of measured quantiles, log-linear between them."""

    draws_per_job = True  # see `GeneratorBatch`
    probabilities: Annotated[Sequence[Fraction], "ascending"]  #: [quantiles] ascending from 0 to 1
    #: {least GPUs: [quantiles] seconds}. A job uses the largest key not above its GPUs.
    seconds_from_gpus: Mapping[PositiveInt, Annotated[Sequence[Positive], "not empty"]]

    def __post_init__(self) -> None:
        if 1 not in self.seconds_from_gpus:
            raise ConfigurationError(
                f"workload.durations.seconds_from_gpus has keys {sorted(self.seconds_from_gpus)}"
                "; expected one to be 1"
            )
        for gpus, seconds in self.seconds_from_gpus.items():
            if len(seconds) != len(self.probabilities):
                raise ConfigurationError(
                    f"workload.durations.seconds_from_gpus[{gpus}] is {list(seconds)}; expected"
                    f" {len(self.probabilities)} numbers, one per probability"
                )

    def draw(self, num_gpus: NDArray[np.int64], rng: Draws) -> NDArray[np.float64]:
        """Draw [jobs] seconds from `rng`, for jobs of `num_gpus` [jobs] GPUs."""
        draws = rng.random(len(num_gpus))
        seconds = np.zeros(len(num_gpus))
        for gpus in sorted(self.seconds_from_gpus):
            here = num_gpus >= gpus
            seconds[here] = np.interp(draws[here], self.probabilities, np.log(self.seconds_from_gpus[gpus]))
        return np.exp(seconds)


@checked("workload")
@dataclass(frozen=True)
class Synthetic:
    """Jobs with independent arrivals, sizes, durations and models."""

    num_jobs: PositiveInt  #: jobs per table
    sizes: Sizes  #: numbers of GPUs asked for
    durations: Durations  #: isolated run times
    arrivals: Arrivals | None  #: arrival process. None: all jobs arrive at 0 s (an offline batch).
    models: CostAssignment  #: costs per iteration
    load: Positive = 1.0  #: mean GPU seconds offered / (GPUs x time), above 0. It sets the arrival rate.
    max_gpus: PositiveInt | None = None  #: draw only sizes up to this. None: up to the cluster's GPUs.

    def sample(self, cluster: Cluster, rng: np.random.Generator) -> JobTable:
        """Draw the jobs of one episode on `cluster` from `rng`."""
        return self._sample(cluster, rng, [rng])

    def sample_batch(self, cluster: Cluster, generators: Sequence[np.random.Generator]) -> JobTable | None:
        """Draw all tables (`draw_tables`), or None if durations or models are not drawn one per job."""
        if not all(getattr(part, "draws_per_job", False) for part in (self.durations, self.models)):
            return None
        return self._sample(cluster, GeneratorBatch(generators), generators)

    def _sample(self, cluster: Cluster, rng: Any, generators: Sequence[np.random.Generator]) -> JobTable:
        """Jobs of a table for each generator, one after the other. `rng` is all of them together."""
        largest = min(self.max_gpus or cluster.num_gpus, cluster.num_gpus)
        count = len(generators) * self.num_jobs
        sizes = self.sizes.draw(count, largest, rng)
        durations = self.durations.draw(sizes, rng)
        submit = np.zeros(count)
        if self.arrivals is not None:
            rate = self.load * cluster.num_gpus / self._mean_gpu_seconds(largest)
            submit = self.arrivals.times_batch(self.num_jobs, rate, generators).reshape(-1)
        firsts = range(0, count, self.num_jobs)
        return self.models.assign(JobTable.from_columns(submit, sizes, durations, table_starts=firsts), rng)

    def _mean_gpu_seconds(self, largest: int) -> float:
        """Estimate the mean GPU seconds of a job from a fixed sample (the same for every seed)."""
        cache: dict[int, float] = self.__dict__.setdefault("_means", {})
        if largest not in cache:
            rng = np.random.default_rng(0)
            sizes = self.sizes.draw(200_000, largest, rng)
            cache[largest] = float((sizes * self.durations.draw(sizes, rng)).mean())
        return cache[largest]
