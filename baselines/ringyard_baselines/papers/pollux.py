"""Pollux (Qiao et al., OSDI 2021): goodput-optimal GPUs and batches by a genetic algorithm."""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Count, Positive, Whole, checked
from ringyard.cluster import Cluster
from ringyard.compiled import FloatMatrix, FloatVector, IntMatrix, IntVector, UIntVector, kernel
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.placement import PlacementRule
from ringyard.sim.allocation import Allocation
from ringyard.sim.speeds import BatchRule, SpeedTable
from ringyard.sim.view import SchedulingView
from ringyard.state.random_numbers import next_uniform
from ringyard_baselines.families.sizing import SizingScheduler
from ringyard_baselines.scheduler import Information
from ringyard_baselines.tools.targets import Target, gpu_places

__all__ = ["Pollux"]


class Choices(NamedTuple):
    """What there is to choose for n jobs.

    Attributes:
        speedup: [n, sizes + 1] goodput on so many GPUs over that of the smallest allocation.
        allowed: [n, sizes + 1] largest number of GPUs not above the index that the job may have.
        held: [n] GPUs now.
        num_gpus: of the servers that are up.
    """

    speedup: FloatMatrix
    allowed: IntMatrix
    held: IntVector
    num_gpus: int


class Search(NamedTuple):
    """How to search: generations, factor on the speed-up of jobs that change, power of the mean over jobs."""

    generations: int
    penalty: float
    power: float


@kernel
def _repair(sizes: IntVector, allowed: IntMatrix, gpus: int, rng: UIntVector) -> None:
    """Lower every size to one the job may have, then shrink random jobs until all fit."""
    count = len(sizes)
    total = 0
    for j in range(count):
        sizes[j] = allowed[j, sizes[j]]
        total += sizes[j]
    while total > gpus:
        j = int(next_uniform(rng) * count)
        if sizes[j] > 0:
            smaller = allowed[j, sizes[j] - 1]
            total -= sizes[j] - smaller
            sizes[j] = smaller


@kernel
def _weigh(choices: Choices, penalty: float, power: float, worth: FloatMatrix) -> None:
    """What each size adds to the power mean; the penalty multiplies the speed-up of a change."""
    for j in range(worth.shape[0]):
        for size in range(worth.shape[1]):
            value = choices.speedup[j, size]
            if choices.held[j] > 0 and size != choices.held[j]:
                value *= penalty
            worth[j, size] = value if power == 1.0 else max(value, 1e-2) ** power


@kernel
def _fitness(sizes: IntVector, worth: FloatMatrix, power: float) -> float:
    """Power mean of the jobs' speed-ups."""
    total = 0.0
    count = len(sizes)
    for j in range(count):
        total += worth[j, sizes[j]]
    return total / count if power == 1.0 else (total / count) ** (1.0 / power)


@kernel
def _evolve(
    population: IntMatrix,
    scores: FloatVector,
    worth: FloatMatrix,
    choices: Choices,
    search: Search,
    rng: UIntVector,
) -> int:
    """Tournament selection, uniform crossover, mutation and repair; the best individual's position.

    Args:
        population: [2 P, n] GPUs of each job; the second half holds the children.
        scores: [2 P] work space.
        worth: [n, sizes + 1] work space.
        choices: speed-ups and what is allowed.
        search: how to search.
        rng: [1] state of the random numbers.
    """
    size = population.shape[0] // 2
    count = population.shape[1]
    most = choices.speedup.shape[1] - 1
    _weigh(choices, search.penalty, search.power, worth)
    for i in range(size):
        _repair(population[i], choices.allowed, choices.num_gpus, rng)
        scores[i] = _fitness(population[i], worth, search.power)
    best = 0
    for k in range(size):
        if scores[k] > scores[best]:
            best = k
    for _ in range(search.generations):
        for i in range(size, 2 * size):
            a, b = int(next_uniform(rng) * size), int(next_uniform(rng) * size)
            c, d = int(next_uniform(rng) * size), int(next_uniform(rng) * size)
            mother = a if scores[a] >= scores[b] else b
            father = c if scores[c] >= scores[d] else d
            for j in range(count):
                population[i, j] = population[mother if next_uniform(rng) < 0.5 else father, j]
                if next_uniform(rng) * count < 1.0:
                    population[i, j] = int(next_uniform(rng) * (most + 1))
            _repair(population[i], choices.allowed, choices.num_gpus, rng)
            scores[i] = _fitness(population[i], worth, search.power)
        for i in range(size, 2 * size):  # every child fights a random parent; the best parent survives anyway
            k = int(next_uniform(rng) * size)
            if scores[i] < scores[k] or (k == best and scores[i] == scores[k]):
                continue
            for j in range(count):
                population[k, j] = population[i, j]
            scores[k] = scores[i]
            if scores[k] > scores[best] or (scores[k] == scores[best] and k < best):
                best = k
    return best


@checked("pollux")
class Pollux(SizingScheduler):
    """GPUs and batch of every job such that the cluster's goodput per fair share is largest.

    FOUND (public code): goodput = throughput x efficiency with the batch chosen among geometric sizes,
    speed-up relative to the goodput of the smallest allocation, a genetic algorithm with population 100 over
    100 generations, jobs that restart multiplied by 0.9. Not as published: throughput comes from profiles
    instead of an online fit; one objective needs no non-dominated sorting, so that selection is by
    tournament; individuals say how many GPUs a job has, where is left to the placement rule (the public code
    evolves GPUs per node and forbids two distributed jobs on one node); profiles being constant, nothing is
    computed anew while the jobs, their sizes and the servers are those for which nothing was to be changed.
    Assumed: slots of 60 s; the power
    mean with p = -1 of the paper's artifact (p = 1 is the sum of the public code).

    Args:
        placement: where jobs go.
        round_seconds: between two optimisations. Assumption.
        population: individuals.
        generations: of one optimisation.
        restart_penalty: factor on the speed-up of a running job that would change.
        power: p of the mean over jobs, not 0.
        max_gpus: most GPUs of a job, unless it asks for more.

    Raises:
        ConfigurationError: an argument out of its range.
    """

    def __init__(
        self,
        placement: PlacementRule,
        round_seconds: Positive = 60.0,
        population: Annotated[int, "[2, 2147483647]"] = 100,
        generations: Whole = 100,
        restart_penalty: Annotated[float, "(0, 1]"] = 0.9,
        power: Annotated[float, "[-100, 100]"] = -1.0,
        max_gpus: Count = 64,
    ) -> None:
        if not 0 < restart_penalty <= 1 or power == 0:
            raise ConfigurationError(
                f"pollux restart_penalty is {restart_penalty}, power {power}; expected in (0, 1] and not 0"
            )
        super().__init__(
            "pollux",
            Information.SIZES | Information.SPEEDS,
            placement,
            BatchRule.GOODPUT,
            round_seconds,
            slotted=True,
            max_gpus=max_gpus,
        )
        self._population = population
        self._search = Search(generations, float(restart_penalty), float(power))
        self._last: dict[int, NDArray[np.int64]] = {}
        self._settled: tuple[int, bytes, bytes] | None = None
        self._rng = np.random.default_rng(0)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles and population."""
        super().reset(cluster, jobs, rng)
        self._last = {}
        self._settled = None
        self._rng = rng

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """The best individual, the largest jobs placed first."""
        jobs = view.gpu_jobs
        if not len(jobs):
            return []
        held = np.where(np.isin(jobs, view.running), view.num_gpus[jobs], 0).astype(np.int64)
        situation = (view.num_gpus_up, jobs.tobytes(), held.tobytes())
        sizes = held
        if situation != self._settled:
            sizes = self._optimum(view, table, jobs, held)
        if np.array_equal(sizes, held):
            self._settled = situation
        order = np.argsort(-sizes, kind="stable")
        targets = []
        for i in order.tolist():
            job, size = int(jobs[i]), int(sizes[i])
            if size > 0:
                targets.append(Target(job, size, Allocation(job, batch_size=table.batch_of(job, size))))
        return targets

    def _optimum(
        self, view: SchedulingView, table: SpeedTable, jobs: NDArray[np.int64], held: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        speed, allowed = table.of(jobs), table.allowed_of(jobs)
        most = int(np.flatnonzero((speed > 0).any(axis=0)).max())  # of these jobs, not of those to come
        choices = Choices(
            speedup=np.ascontiguousarray(speed[:, : most + 1] / table.least_of(jobs)[:, None]),
            allowed=np.ascontiguousarray(allowed[:, : most + 1]),
            held=held,
            num_gpus=gpu_places(view, self.placement),
        )
        population = np.zeros((2 * self._population, len(jobs)), dtype=np.int64)
        population[: self._population] = self._seeds(jobs, held, most)
        rng = self._rng.integers(1, 2**63, 1).astype(np.uint64)
        scores, worth = np.zeros(len(population)), np.zeros_like(choices.speedup)
        best = _evolve(population, scores, worth, choices, self._search, rng)
        self._last = {job: population[: self._population, i].copy() for i, job in enumerate(jobs.tolist())}
        return population[best]

    def _seeds(self, jobs: NDArray[np.int64], held: NDArray[np.int64], most: int) -> NDArray[np.int64]:
        """[population, jobs] the last population, new jobs at random; the present sizes are the first."""
        rows = np.zeros((self._population, len(jobs)), dtype=np.int64)
        for i, job in enumerate(jobs.tolist()):
            last = self._last.get(job)
            rows[:, i] = (
                self._rng.integers(0, most + 1, self._population) if last is None else np.minimum(last, most)
            )
        rows[0] = held
        return rows
