"""Whose turn it is: planned jobs that have come to the head of the queue on each of their GPUs."""

from ringyard.compiled import BoolVector, IntVector, kernel
from ringyard_baselines.papers.sjf_bco.plan import Plan

__all__ = ["find_turns"]


@kernel
def find_turns(plan: Plan, order: IntVector, waits: BoolVector, free: BoolVector, turns: IntVector) -> int:
    """Jobs that are first on all their GPUs, which are free: how many, their numbers in `turns`.

    Args:
        plan: who has which GPUs.
        order: [m] numbers of the planned jobs, in order of their planned starts: each GPU's queue.
        waits: [n] whether a job still does.
        free: [G] whether a GPU holds nothing.
        turns: [n] is filled from the beginning on.
    """
    plan.taken[:] = 0
    count = 0
    for i in order:
        if not waits[i]:
            continue
        ready = True
        for g in plan.gpus[plan.begin[i] : plan.begin[i + 1]]:
            ready = ready and free[g] and plan.taken[g] == 0
            plan.taken[g] = 1
        if ready:
            turns[count] = i
            count += 1
    return count
