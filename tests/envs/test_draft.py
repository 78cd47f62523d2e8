"""Drafts plan on a copy of the present, whatever earlier drafts planned on it."""

import gc

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.mdp.setting import ten_gigabit_rings
from ringyard.placement import pack
from ringyard.sim.draft import Draft
from ringyard.state.arrays import copy_state
from worlds import random_decision, random_jobs


def present(state):
    """What drafts read: live jobs, and who holds what."""
    cluster = state.clusters[0]
    first = cluster["first_waiting"]
    waiting = state.waiting[0, first : first + cluster["num_waiting"]]
    running = state.running[0, : cluster["num_running"]]
    rows = np.concatenate([waiting, running])
    arrays = (state.gpus, state.slots, state.servers, state.links, state.free_bits, state.num_with_free)
    return [
        waiting.tobytes(),
        running.tobytes(),
        state.jobs[0, rows].tobytes(),
        *(one.tobytes() for one in arrays),
    ]


def test_a_draft_begins_at_the_present_on_the_arrays_of_one_that_is_gone():
    rng = np.random.default_rng(0)
    jobs = random_jobs(rng, 30, 16)
    sim = Simulator(Cluster.homogeneous(4, 4), jobs, ten_gigabit_rings())
    seen = set()
    while not sim.done:
        draft = Draft(sim.view())
        assert present(draft._state) == present(copy_state(sim.state))
        seen.add(id(draft._state))
        for job in sim.view().running.tolist()[::2]:
            draft.release(job)
        for job in sim.view().waiting.tolist():
            draft.place(pack(), job)
        other = Draft(sim.view())  # two at once do not share
        assert present(other._state) == present(copy_state(sim.state))
        assert draft._state is not other._state
        del draft, other
        gc.collect()
        sim.apply(random_decision(sim.view(), rng))
        sim.advance()
    assert len(seen) < 8  # arrays are used again


def test_who_asks_for_the_same_is_refused_until_something_is_released():
    jobs = random_jobs(np.random.default_rng(1), 6, 4)
    sim = Simulator(Cluster.homogeneous(1, 4), jobs.shifted(np.zeros(6)), ten_gigabit_rings())
    sim.advance()
    draft = Draft(sim.view())
    placed = [job for job in range(6) if draft.place(pack(), job) is not None]
    refused = [job for job in range(6) if job not in placed]
    assert placed
    assert refused
    assert all(draft.place(pack(), job) is None for job in refused)
    for job in placed:
        draft.release(job)
    assert draft.place(pack(), refused[0]) is not None


def test_a_place_given_back_at_once_leaves_refusals_as_they_were():
    jobs = JobTable.from_columns([0.0] * 4, [3, 2, 1, 3], [60.0] * 4)
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, ten_gigabit_rings())
    sim.advance()
    draft = Draft(sim.view())
    assert draft.place(pack(), 0) is not None
    assert draft.place(pack(), 1) is None
    draft.release(0)  # others were refused beside it
    assert draft.place(pack(), 1) is not None
    assert draft.place(pack(), 3) is None
    assert draft.place(pack(), 2) is not None
    draft.release(2)
    assert draft._nowhere  # job 3 has no place now, as before
    assert draft.place(pack(), 3) is None
    draft.release(1)
    assert draft.place(pack(), 3) is not None
    draft.release(3)
    assert draft.take(Allocation(3, (0, 1, 2)))
    assert draft.place(pack(), 1) is None
    draft.release(3)
    assert draft.place(pack(), 1) is not None
