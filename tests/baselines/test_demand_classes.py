"""Jobs that are asked class by class are those that asking one by one would start."""

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


def one_by_one(jobs, demands, room):
    closed, started = set(), []
    for job in jobs.tolist():
        if demands[job] not in closed:
            found = room.place(job)
            if found is None:
                closed.add(demands[job])
            else:
                started.append(found)
    return started


def test_the_order_is_that_of_all_jobs_and_a_refused_class_is_not_asked_again(rng):
    for _ in range(200):
        demands = rng.integers(1, 6, int(rng.integers(1, 40)))
        jobs = np.sort(rng.permutation(len(demands))[: int(rng.integers(0, len(demands) + 1))])
        gpus = int(rng.integers(0, 30))
        expected, found = Room(gpus, demands), Room(gpus, demands)
        assert start_by_demand_class(jobs, demands[jobs], found.place) == one_by_one(jobs, demands, expected)
        assert found.asked == expected.asked


def test_a_long_queue_of_one_class_is_asked_once():
    room = Room(0, np.ones(1000, int))
    assert start_by_demand_class(np.arange(1000), np.ones(1000, int), room.place) == []
    assert room.asked == [0]
