"""GADGET (Yu et al., INFOCOM 2022, arXiv 2202.01158): elastic rings by marginal utility, slot by slot."""

from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard import Observability, PlacementRule, SchedulingView
from ringyard.checks import Positive, checked
from ringyard.sim.speeds import BatchRule, SpeedTable
from ringyard_baselines.policies.sizing import SizingScheduler
from ringyard_baselines.tools.predictions import expected_iterations_left
from ringyard_baselines.tools.targets import Target, num_gpu_slots

SLOT_SECONDS = 300.0  # assumption: the paper's slots have no length

_Numbers = NDArray[np.float64] | float


class GrowthStep(NamedTuple):
    """Possible growth of a job. Tuples sort by preference."""

    loss: float  #: negative gain in utility per GPU, inf if the job cannot grow
    done: float  #: share of the job that is done
    job: int  #: position of the job
    begin: int  #: position of the present size among the job's sizes
    end: int  #: position of the new size
    more: int  #: number of additional GPUs


def sigmoid_utility(
    done: _Numbers, height: _Numbers, steepness: _Numbers, midpoint: _Numbers
) -> NDArray[np.float64]:
    """Return height / (1 + exp(-steepness (done - midpoint))), lambda1 to lambda3 of the paper."""
    exponent = np.asarray(steepness * (np.asarray(done) - midpoint))
    return np.asarray(height * 0.5 * (1.0 + np.tanh(0.5 * exponent)))


class Utilities(NamedTuple):
    """Parameters of `sigmoid_utility` of each job, with work counted in worker slots."""

    heights: NDArray[np.float64]  #: [jobs] lambda1
    steepnesses: NDArray[np.float64]  #: [jobs] lambda2 x zeta, per worker slot
    midpoints: NDArray[np.float64]  #: [jobs] lambda3 / zeta, worker slots


def drawn_utilities(num_jobs: int) -> Utilities:
    """Draw utilities from the paper's ranges, uniform (assumed). Row j is the same for every workload.

    FOUND: lambda1 in [1, 100], lambda2 in (0, 1), lambda3 in [300, 3000], zeta in [50, 500].
    """
    rng = np.random.default_rng(0)
    draws = rng.uniform([1.0, 0.0, 300.0, 50.0], [100.0, 1.0, 3000.0, 500.0], (num_jobs, 4))
    height, steepness, midpoint, work = draws.T
    return Utilities(height, steepness * work, midpoint / work)


def total_utility(worker_slots: NDArray[np.float64], utilities: Utilities) -> float:
    """Return the sum over jobs of the utility of their work, [jobs] GPU seconds / seconds of a slot."""
    return float(sigmoid_utility(worker_slots, *utilities).sum())


@checked("gadget")
class Gadget(SizingScheduler):
    """GADGET of Yu et al. (INFOCOM 2022): in every slot workers go where the utility of work done grows most.

    FOUND (the paper): slots, 0 to N_i workers in each. Utility of accumulated work, a sigmoid in the
    experiments. Algorithm 1: greedy marginal utility given the work done before, capped by the work left.

    Not as published: bandwidth is not reserved, rings contend. A placement rule replaces the embedding by
    linear program, and a job may grow by as many workers at once as gain most per worker. Assumed: z is the
    share of a job's predicted work, so that one steepness and midpoint serve all jobs (the paper draws them
    per job, see `per_job_utilities`). Heights are equal. Of equal gains the job with the smallest share done
    goes first.

    Args:
        placement: where rings go.
        slot_seconds: length of a slot in seconds. Assumption.
        height: lambda1, above 0.
        steepness: lambda2, per whole job. Assumption.
        midpoint: lambda3, as a share of a job. Assumption.
        per_job_utilities: use `drawn_utilities` in place of these three.
    """

    def __init__(
        self,
        placement: PlacementRule,
        slot_seconds: Positive = SLOT_SECONDS,
        height: Positive = 1.0,
        steepness: Positive = 5.0,
        midpoint: Positive = 0.5,
        per_job_utilities: bool = False,
    ) -> None:
        observes = Observability.SIZES | Observability.PREDICTIONS | Observability.SPEEDS
        super().__init__("gadget", observes, placement, BatchRule.ASKED, slot_seconds, slotted=True)
        self._utility = (height, steepness, midpoint)
        self._per_job_utilities = per_job_utilities

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Return sizes by utility gained per GPU (`view`, `table`: see `SizingScheduler.sizes`)."""
        jobs = view.gpu_jobs
        left, done = expected_iterations_left(view, jobs), view.select(jobs).completed_iterations
        total = np.maximum(left + done, 1e-300)
        slot = self.round_seconds or 0.0
        sizes = np.arange(table.sizes + 1)
        asked = view.column("asked_gpus")[jobs]
        utilities = drawn_utilities(len(view.column("status"))) if self._per_job_utilities else None
        heap: list[GrowthStep] = []
        curves = []
        for i, job in enumerate(jobs.tolist()):
            speed = table.speed[table.place[job]]
            reached = done[i] + np.minimum(speed * slot, left[i])
            worth = self._utility
            if utilities is not None:  # those are per worker slot, these per whole job
                slots = float(total[i] / speed[asked[i]] * asked[i] / slot)
                height, steepness, midpoint = (float(column[job]) for column in utilities)
                worth = (height, steepness * slots, midpoint / slots)
            utility = sigmoid_utility(reached / total[i], *worth)
            allowed = np.concatenate([[0], sizes[speed > 0]])
            curves.append((allowed, utility[allowed], float(done[i] / total[i])))
            heap.append(best_step(*curves[i], i, 0, len(allowed) - 1))
        heapify(heap)
        free = num_gpu_slots(view, self.placement)
        held = np.zeros(len(jobs), dtype=np.int64)
        order: list[int] = []
        while heap and free > 0:
            step = heappop(heap)
            i = step.job
            if step.loss == np.inf:
                continue
            if step.more > free:  # a smaller step may fit
                heappush(heap, best_step(*curves[i], i, step.begin, step.end - 1))
                continue
            free -= step.more
            held[i] += step.more
            if step.begin == 0:
                order.append(i)
            heappush(heap, best_step(*curves[i], i, step.end, len(curves[i][0]) - 1))
        return [Target(int(jobs[i]), int(held[i])) for i in order]


def best_step(
    sizes: NDArray[np.int64], utility: NDArray[np.float64], done: float, job: int, begin: int, most: int
) -> GrowthStep:
    """Return the growth with the largest gain per GPU, the shortest of equal ones.

    `sizes` are the allowed numbers of GPUs, ascending from 0, and `utility` that at the end of the slot for
    each. `begin` is the position of the present size, `most` the last that the job, of which a share is
    `done`, may reach.
    """
    if begin >= most:
        return GrowthStep(np.inf, done, job, begin, begin, 0)
    more = sizes[begin + 1 : most + 1] - sizes[begin]
    gain = (utility[begin + 1 : most + 1] - utility[begin]) / more
    best = int(np.argmax(gain))
    return GrowthStep(-float(gain[best]), done, job, begin, begin + 1 + best, int(more[best]))
