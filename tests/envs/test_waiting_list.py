"""The waiting list: always in order, and no entry is moved for each job that comes or goes."""

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.sim.engine.lifecycle import preempt, start
from ringyard.state.arrays import waiting_rows
from ringyard.state.records import JobStatus

COUNT = 3000


def burst(rng, instants=1):
    """A simulator with random priorities, before the jobs of one instant or of several come."""
    submit = np.repeat(np.arange(instants) * 10.0, COUNT // instants)
    sim = Simulator(
        Cluster.homogeneous(8, 8), JobTable.from_columns(submit, np.ones(COUNT), np.full(COUNT, 1e6)), ideal()
    )
    sim.prioritise(rng.integers(0, 500, COUNT))
    sim.advance()
    return sim


def in_order(sim):
    records = sim.state.jobs[0, :COUNT]
    rows = np.flatnonzero(records["status"] == JobStatus.WAITING)
    return rows[np.lexsort((rows, records["priority"][rows]))].tolist()


def take(sim, j, gpu):
    start(sim.state, 0, j, np.array([gpu], np.int32), sim.physics)


@pytest.mark.parametrize("instants", [1, 3])
def test_jobs_that_come_at_one_instant_wait_in_order(rng, instants):
    sim = burst(rng, instants)
    for _ in range(instants - 1):
        assert waiting_rows(sim.state, 0).tolist() == in_order(sim)
        sim.advance()
    assert waiting_rows(sim.state, 0).tolist() == in_order(sim)


@pytest.mark.parametrize("reads", [1.0, 0.1])
def test_list_stays_in_order_whether_it_is_read_often_or_not(rng, reads):
    sim, on_gpu = burst(rng), {}
    for _ in range(600):
        gpu = int(rng.integers(64))
        if gpu in on_gpu:
            preempt(sim.state, 0, on_gpu.pop(gpu), sim.physics)
        else:
            on_gpu[gpu] = int(rng.choice(np.setdiff1d(np.arange(COUNT), list(on_gpu.values()))))
            take(sim, on_gpu[gpu], gpu)
        if rng.random() < reads:
            assert waiting_rows(sim.state, 0).tolist() == in_order(sim)
    assert waiting_rows(sim.state, 0).tolist() == in_order(sim)


def test_a_job_that_starts_and_returns_moves_no_other(rng):
    """Each entry was once moved: a queue of n jobs that start in another order took n x n moves."""
    sim = burst(rng)
    take(sim, 0, 0)
    preempt(sim.state, 0, 0, sim.physics)  # in the middle of the array now
    before = sim.state.waiting.copy()
    chosen = waiting_rows(sim.state, 0)[400:2600:50].tolist()
    for gpu, j in enumerate(chosen):
        take(sim, j, gpu)
    assert (sim.state.waiting != before).sum() == len(chosen)
    for j in chosen:
        preempt(sim.state, 0, j, sim.physics)
    assert (sim.state.waiting == before).all()
