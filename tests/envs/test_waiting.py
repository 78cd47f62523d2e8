"""The waiting list stays in order whoever comes and goes, at either end."""

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator, ideal

NUM_JOBS = 24


@pytest.mark.parametrize("order", ["ascending", "descending", "random"])
def test_the_waiting_list_is_in_order_of_priority_and_row(order):
    rng = np.random.default_rng(0)
    jobs = JobTable.from_columns([0.0] * NUM_JOBS, [1] * NUM_JOBS, [1e6] * NUM_JOBS)
    sim = Simulator(Cluster.homogeneous(NUM_JOBS, 1), jobs, ideal(), round_seconds=1.0)
    rows = np.arange(NUM_JOBS)
    priority = {"ascending": rows, "descending": -rows, "random": rng.integers(0, 5, NUM_JOBS)}[order]
    sim.prioritise(priority)
    sim.advance()  # descending: each comes before all others, more of them than there was room for
    for turn in range(300):
        running, waiting = sim.view().running.tolist(), sim.view().waiting.tolist()
        expected = sorted(set(rows.tolist()) - set(running), key=lambda j: (priority[j], j))
        assert waiting == expected
        stopped = [j for j in running if rng.random() < 0.4]
        started = waiting[: rng.integers(0, 6)] if turn % 3 else waiting[-1:]
        sim.apply([Allocation(j, ()) for j in stopped])
        sim.apply([Allocation(j, (j,)) for j in started])
        sim.advance()
