"""Pollux (Qiao et al., OSDI 2021): goodput-optimal GPUs and batches by a genetic algorithm."""

from typing import Annotated

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Observability, PlacementRule, SchedulingView
from ringyard.checks import NonNegativeInt, Positive, PositiveInt, checked
from ringyard.compiled import FloatMatrix, Int32Matrix, IntVector, kernel
from ringyard.errors import ConfigurationError
from ringyard.sim.speeds import BatchRule, SpeedTable
from ringyard_baselines.policies.sizing import SizingScheduler
from ringyard_baselines.tools.size_evolution import SizeOptions, evolve_sizes
from ringyard_baselines.tools.targets import Target, num_gpu_slots


@kernel
def _size_values(
    speed: FloatMatrix,
    row_of_job: IntVector,
    held: IntVector,
    penalty: float,
    power: float,
    values: FloatMatrix,
    allowed: Int32Matrix,
) -> int:
    """Write what each size of each job adds to the power mean, and return the largest size of any job.

    `speed` [rows, sizes + 1] is that of a `SpeedTable`, `row_of_job` [n] the row of each job, `held` [n] its
    present GPUs. `values` [n, sizes + 1] is filled for allowed sizes, by the speed-up over the smallest one,
    times `penalty` if the size changes. `allowed` [n, sizes + 1] is filled with the largest allowed size up
    to the index.
    """
    most = 0
    for j in range(len(row_of_job)):
        row = speed[row_of_job[j]]
        least = 0.0
        largest = 0
        for size in range(len(row)):
            if row[size] > 0:
                largest = size
                if least == 0:
                    least = row[size]
            if largest == size:
                value = row[size] / least if size > 0 else 0.0
                if held[j] > 0 and size != held[j]:
                    value *= penalty
                values[j, size] = value if power == 1.0 else max(value, 1e-2) ** power
            allowed[j, size] = largest
        most = max(most, largest)
    return most


@checked("pollux")
class Pollux(SizingScheduler):
    """Pollux of Qiao et al. (OSDI 2021): GPUs and batches that maximise the goodput per fair share.

    FOUND (public code): goodput = throughput x efficiency, with the batch chosen among geometric sizes.
    Speed-up relative to the goodput of the smallest allocation. A genetic algorithm with population 100 over
    100 generations. The speed-up of jobs that restart counts 0.9 times.

    Not as published: throughput comes from profiles, not from an online fit. Selection is by tournament,
    since one objective needs no non-dominated sorting. Individuals say how many GPUs a job has, and the
    placement rule says which (the public code evolves GPUs per node and forbids two distributed jobs on one
    node). Nothing is computed anew while jobs, sizes and servers are those for which nothing was to change.
    Assumed: slots of 60 s, and the power mean with p = -1 of the paper's artifact (the public code sums, p =
    1).

    Args:
        placement: where jobs go.
        round_seconds: seconds between two optimisations. Assumption.
        population: number of individuals, 2 or more.
        generations: number of generations of one optimisation.
        restart_penalty: factor on the speed-up of a running job that would change, in (0, 1].
        power: p of the mean over jobs, -100 to 100, not 0.
        max_gpus: largest number of GPUs of a job, unless it requests more.

    Raises:
        ConfigurationError: power is 0.
    """

    def __init__(
        self,
        placement: PlacementRule,
        round_seconds: Positive = 60.0,
        population: Annotated[int, "[2, 2147483647]"] = 100,
        generations: NonNegativeInt = 100,
        restart_penalty: Annotated[float, "(0, 1]"] = 0.9,
        power: Annotated[float, "[-100, 100]"] = -1.0,
        max_gpus: PositiveInt = 64,
    ) -> None:
        if power == 0:
            raise ConfigurationError("pollux.power is 0; expected in [-100, 0) or (0, 100]")
        sees, batches = Observability.SIZES | Observability.SPEEDS, BatchRule.GOODPUT
        super().__init__("pollux", sees, placement, batches, round_seconds, slotted=True, max_gpus=max_gpus)
        self._population = population
        self._generations = generations
        self._penalty, self._power = float(restart_penalty), float(power)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Forget profiles and population (`cluster`, `jobs`, `rng`: see `Scheduler.reset`)."""
        super().reset(cluster, jobs, rng)
        self._column_of_job: dict[int, int] = {}
        self._individuals = np.zeros((self._population, 1), np.int32)  # columns as in `_column_of_job`
        self._settled: tuple[int, bytes, bytes] | None = None
        self._rng = rng

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Return the best individual, largest jobs first (`view`, `table`: see `SizingScheduler.sizes`)."""
        jobs = view.gpu_jobs
        if not len(jobs):
            return []
        runs = np.isin(jobs, view.running, assume_unique=True)
        held = np.where(runs, view.num_gpus[jobs], 0).astype(np.int64)
        situation = (view.num_gpus_up, jobs.tobytes(), held.tobytes())
        sizes = held
        if situation != self._settled:
            values = np.zeros((len(jobs), table.sizes + 1))
            allowed = np.zeros(values.shape, np.int32)
            most = _size_values(
                table.speed, table.place[jobs], held, self._penalty, self._power, values, allowed
            )
            choices = SizeOptions(values, allowed, most, num_gpu_slots(view, self.placement), self._power)
            # [population, jobs] last sizes, random ones of new jobs. Row 0 is the present
            column = np.array([self._column_of_job.get(job, -1) for job in jobs.tolist()])
            fresh = np.flatnonzero(column < 0)
            rows = np.minimum(self._individuals[:, column], most)
            rows[:, fresh] = self._rng.integers(0, most + 1, (len(fresh), self._population)).T
            rows[0] = held
            rng = self._rng.integers(1, 2**63, 1).astype(np.uint64)
            best, self._individuals = evolve_sizes(rows, choices, self._generations, rng)
            self._column_of_job = dict(zip(jobs.tolist(), range(len(jobs)), strict=True))
            sizes = self._individuals[best].astype(np.int64)
        if np.array_equal(sizes, held):
            self._settled = situation
        batch = table.batch[table.place[jobs], sizes]
        stays = (sizes == held) & (view.select(jobs).column("batch_size") == batch)
        targets = []
        for i in np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)].tolist():
            job, size = int(jobs[i]), int(sizes[i])
            shape = None if stays[i] else Allocation(job, batch_size=float(batch[i]))
            targets.append(Target(job, size, shape))
        return targets
