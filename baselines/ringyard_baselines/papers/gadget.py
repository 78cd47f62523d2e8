"""GADGET (Yu et al., INFOCOM 2022, arXiv 2202.01158): elastic rings by marginal utility, slot by slot."""

from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Positive, checked
from ringyard.placement import PlacementRule
from ringyard.sim.view import SchedulingView
from ringyard_baselines.families.sizing import SizingScheduler
from ringyard_baselines.scheduler import Information
from ringyard_baselines.tools.predictions import predicted_iterations
from ringyard_baselines.tools.speeds import BatchRule, SpeedTable
from ringyard_baselines.tools.targets import Target

__all__ = ["Gadget", "sigmoid_utility"]


def sigmoid_utility(
    done: NDArray[np.float64] | float, height: float, steepness: float, middle: float
) -> NDArray[np.float64]:
    """lambda1 / (1 + exp(-lambda2 (z - lambda3))).

    Args:
        done: z, work done.
        height: lambda1.
        steepness: lambda2, per unit of z.
        middle: lambda3, in units of z.
    """
    return np.asarray(height / (1.0 + np.exp(-steepness * (np.asarray(done) - middle))))


@checked("gadget")
class Gadget(SizingScheduler):
    """Every slot the workers go, one by one, where the utility of work done grows most.

    FOUND (the paper): slots; 0 to N_i workers in each; utility of accumulated work, a sigmoid in the
    experiments; Algorithm 1's greedy marginal utility given the work done before, capped by the work left.
    Not as published: bandwidth is not reserved (the simulator has no reservations, rings contend); the
    embedding by linear program is replaced by a placement rule. Assumed: z is the share of a job's predicted
    work, so that one steepness and middle serve all jobs (the paper draws them per job); equal heights; a
    slot of 300 s (the paper's slots have no length).

    Args:
        placement: where rings go.
        slot_seconds: length of a slot. Assumption.
        height: lambda1.
        steepness: lambda2, per whole job. Assumption.
        middle: lambda3, as a share of a job. Assumption.

    Raises:
        ConfigurationError: an argument not above 0.
    """

    def __init__(
        self,
        placement: PlacementRule,
        slot_seconds: Positive = 300.0,
        height: Positive = 1.0,
        steepness: Positive = 5.0,
        middle: Positive = 0.5,
    ) -> None:
        super().__init__(
            "gadget",
            Information.SIZES | Information.PREDICTIONS | Information.SPEEDS,
            placement,
            BatchRule.ASKED,
            slot_seconds,
            slotted=True,
        )
        self._utility = (height, steepness, middle)

    def sizes(self, view: SchedulingView, table: SpeedTable) -> list[Target]:
        """Greedy: the step with the largest gain in utility per GPU."""
        jobs = view.gpu_jobs
        left, done = predicted_iterations(view)[jobs], view.completed_iterations[jobs]
        total = np.maximum(left + done, 1e-300)
        slot = self.round_seconds or 0.0
        sizes = np.arange(table.sizes + 1)
        heap: list[tuple[float, int, int, int]] = []
        curves = []
        for i, job in enumerate(jobs.tolist()):
            speed = table.speed[table.place[job]]
            reached = done[i] + np.minimum(speed * slot, left[i])
            utility = sigmoid_utility(reached / total[i], *self._utility)
            allowed = np.concatenate([[0], sizes[speed > 0]])
            curves.append((allowed, utility[allowed]))
            heap.append(self._step(curves[i], i, 0))
        heapify(heap)
        free = view.num_gpus_up
        held = np.zeros(len(jobs), dtype=np.int64)
        order: list[int] = []
        while heap and free > 0:
            loss, i, position, more = heappop(heap)
            if loss == np.inf or more > free:
                continue
            free -= more
            held[i] += more
            if position == 1:
                order.append(i)
            heappush(heap, self._step(curves[i], i, position))
        return [Target(int(jobs[i]), int(held[i])) for i in order]

    @staticmethod
    def _step(
        curve: tuple[NDArray[np.int64], NDArray[np.float64]], i: int, position: int
    ) -> tuple[float, int, int, int]:
        """(minus the gain per GPU, job, next position, GPUs more) of growing from `position`; inf: cannot."""
        allowed, utility = curve
        if position + 1 >= len(allowed):
            return np.inf, i, position, 0
        more = int(allowed[position + 1] - allowed[position])
        return -float(utility[position + 1] - utility[position]) / more, i, position + 1, more
