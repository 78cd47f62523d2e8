"""Jobs are asked in their order, and none of a class that found no place."""

import numpy as np

from ringyard.sim.allocation import Allocation
from ringyard_baselines.tools.demand_classes import start_by_demand_class


class Room:
    """GPUs that are handed out while they last; notes who asked."""

    def __init__(self, gpus, demands):
        self.left, self.demands, self.asked = gpus, demands, []

    def place(self, job):
        self.asked.append(job)
        demand = int(self.demands[job])
        if demand > self.left:
            return None
        self.left -= demand
        return Allocation(job, tuple(range(self.left, self.left + demand)))


def test_jobs_are_asked_in_order_and_a_refused_class_is_not_asked_again(rng):
    for _ in range(200):
        demands = rng.integers(1, 6, int(rng.integers(1, 40)))
        jobs = np.sort(rng.permutation(len(demands))[: int(rng.integers(0, len(demands) + 1))])
        room = Room(int(rng.integers(0, 30)), demands)
        started = [one.job for one in start_by_demand_class(jobs, demands[jobs], room.place)]
        assert room.asked == sorted(room.asked)
        assert started == [job for job in room.asked if job in started]
        refused = [job for job in room.asked if job not in started]
        assert len({int(demands[job]) for job in refused}) == len(refused)
        for job in set(jobs.tolist()) - set(room.asked):
            assert any(demands[other] == demands[job] and other < job for other in refused)


def test_a_long_queue_of_one_class_is_asked_once():
    room = Room(0, np.ones(1000, int))
    assert start_by_demand_class(np.arange(1000), np.ones(1000, int), room.place) == []
    assert room.asked == [0]
