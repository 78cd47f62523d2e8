"""Placement plans begin at the present, whatever earlier plans changed in the scratch state."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.compiled import implements
from ringyard.errors import PlacementError, SchedulerError
from ringyard.mdp.env_config import ten_gigabit_rings
from ringyard.placement import pack
from ringyard.restart import constant
from ringyard.sim.admission import ADMIT_ALL, AdmissionFilter, AdmitStart
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.state.arrays import copy_state
from small_simulations import everything, random_allocation, random_decision, random_jobs

#: what a job holds beside its GPUs, and the columns with what it asks for
ASKED = {
    "cores_per_worker": "asked_cores",
    "parameter_servers": "asked_parameter_servers",
    "cores_per_server_task": "asked_cores_per_server_task",
    "ram_per_worker": "asked_ram",
}


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


def test_a_plan_begins_at_the_present_on_the_arrays_of_one_that_is_gone():
    rng = np.random.default_rng(0)
    jobs = random_jobs(rng, 30, 16)
    sim = Simulator(Cluster.homogeneous(4, 4), jobs, ten_gigabit_rings())
    seen = set()
    while not sim.done:
        draft = PlacementPlan(sim.view())
        assert present(draft._state) == present(copy_state(sim.state))
        seen.add(id(draft._state))
        for job in sim.view().running.tolist()[::2]:
            draft.release(job)
        for job in sim.view().waiting.tolist():
            draft.place(pack(), job)
        other = PlacementPlan(sim.view())  # two at once do not share
        assert present(other._state) == present(copy_state(sim.state))
        assert draft._state is not other._state
        del draft, other
        sim.apply(random_decision(sim.view(), rng))
        sim.advance()
    assert len(seen) < 8  # arrays are used again


@pytest.mark.parametrize("seed", range(8))
def test_plans_keep_the_records_only_of_jobs_that_nothing_has_happened_to(seed):
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng, 25)
    sim = Simulator(cluster, jobs, performance, constant(2.5, 0.7), 19.0, seed, failures=failures)
    seen, kept = set(), 0
    for _ in range(400):
        if sim.done:
            break
        view = sim.view()
        draft = PlacementPlan(view)
        assert present(draft._state) == present(copy_state(sim.state))
        seen.add(id(draft._state))
        kept += len(view.waiting)
        live = [*view.running.tolist(), *view.waiting.tolist()]
        for job in rng.permutation(live).tolist()[:4]:
            if job in view.running:
                draft.release(job)
            elif rng.random() < 0.5:
                draft.place(pack(), job)
            else:
                draft.allocate(random_allocation(view, rng, job))
        for job in live:
            stops = job in view.running and rng.random() < 0.3
            with contextlib.suppress(PlacementError):
                sim.apply([Allocation(job, ()) if stops else random_allocation(view, rng, job)])
        sim.advance()
    assert kept > 50
    assert len(seen) == 1


@implements(AdmitStart)
def _below(state, b, j, places, count, of_jobs, parameters):
    first = places[0]
    for k in range(count):
        first = min(first, places[k])
    return of_jobs[j] + first < parameters[0]


@pytest.mark.parametrize("seed", [*range(6), 7])  # with the others no gated job starts
@pytest.mark.parametrize("gated", [False, True])
def test_jobs_that_start_together_do_as_one_by_one(seed, gated):
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng, 25)
    sim = Simulator(cluster, jobs, performance, constant(2.5, 0.7), 19.0, seed, failures=failures)
    numbers = rng.uniform(0, 10, len(jobs))
    gate = AdmissionFilter(_below, numbers, np.array([8.0])) if gated else ADMIT_ALL
    started = refused = 0
    for _ in range(200):
        if sim.done:
            break
        view = sim.view()
        order = rng.permutation(view.waiting)
        together, alone, expected = PlacementPlan(view), PlacementPlan(view), []
        for job in order.tolist():
            found = alone.place(pack(), job)
            place = None if found is None else found.server if found.server is not None else found.gpu_ids[0]
            if place is not None and gated and numbers[job] + place >= 8.0:
                alone.release(job)
                refused += 1
            elif found is not None:
                expected.append(found)
        assert together.start(pack(), order, gate) == expected
        holders = [one._state.slots["job"].tolist() for one in (together, alone)]
        assert holders[0] == holders[1]
        assert gated or present(together._state) == present(alone._state)  # what is given back leaves traces
        started += len(expected)
        live = [*view.running.tolist(), *view.waiting.tolist()]
        del together, alone  # the next drafts begin on their arrays
        for job in live:
            with contextlib.suppress(PlacementError):
                sim.apply([random_allocation(view, rng, job)])
        sim.advance()
    assert started
    assert bool(refused) == gated


def test_who_asks_for_the_same_is_refused_until_something_is_released():
    jobs = random_jobs(np.random.default_rng(1), 6, 4)
    sim = Simulator(Cluster.homogeneous(1, 4), jobs.shifted(np.zeros(6)), ten_gigabit_rings())
    sim.advance()
    draft = PlacementPlan(sim.view())
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
    draft = PlacementPlan(sim.view())
    assert draft.place(pack(), 0) is not None
    assert draft.place(pack(), 1) is None
    draft.release(0)  # others were refused beside it
    assert draft.place(pack(), 1) is not None
    assert draft.place(pack(), 3) is None
    assert draft.place(pack(), 2) is not None
    draft.release(2)
    assert draft._unplaced  # job 3 has no place now, as before
    assert draft.place(pack(), 3) is None
    draft.release(1)
    assert draft.place(pack(), 3) is not None
    draft.release(3)
    assert draft.allocate(Allocation(3, (0, 1, 2)))
    assert draft.place(pack(), 1) is None
    draft.release(3)
    assert draft.place(pack(), 1) is not None


@pytest.mark.parametrize("jobs", [[6], [-1], [0.0], [[0]], 0, ["a"], None])
def test_only_rows_of_jobs_start(jobs):
    sim = Simulator(
        Cluster.homogeneous(1, 4), random_jobs(np.random.default_rng(1), 6, 4), ten_gigabit_rings()
    )
    sim.advance()
    with pytest.raises(PlacementError, match="expected a list of rows of jobs"):
        PlacementPlan(sim.view()).start(pack(), jobs)


@pytest.mark.parametrize("wrong", [None, "pack", pack, ADMIT_ALL])
def test_only_rules_place_and_only_filters_admit(wrong):
    """Compiled code is entered without a look at types: anything else would crash."""
    sim = Simulator(
        Cluster.homogeneous(1, 4), random_jobs(np.random.default_rng(1), 6, 4), ten_gigabit_rings()
    )
    sim.advance()
    plan = PlacementPlan(sim.view())
    for call in (plan.place, plan.migrate, lambda rule, job: plan.start(rule, [job])):
        with pytest.raises(PlacementError, match="expected a PlacementRule"):
            call(wrong, 0)
    with pytest.raises(PlacementError, match="expected an AdmissionFilter"):
        plan.start(pack(), [0], pack())
    for job in (-1, 6):
        with pytest.raises(PlacementError, match=f"there is no job {job}; expected a row in 0..5"):
            sim.view().gpus_of(job)


def test_a_job_that_holds_something_does_not_start_again():
    jobs = JobTable.from_columns([0.0] * 3, [1, 1, 1], [60.0] * 3)
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, ten_gigabit_rings())
    sim.advance()
    draft = PlacementPlan(sim.view())
    assert len(draft.start(pack(), [])) == 0
    assert len(draft.start(pack(), [2, 0])) == 2
    with pytest.raises(PlacementError, match="job 2 holds something in this plan; release it first"):
        draft.start(pack(), [1, 2])


def filled(sizes):
    """Four servers of four GPUs, on which jobs of these sizes have started in their order."""
    count = len(sizes)
    jobs = JobTable.from_columns(np.zeros(count), np.asarray(sizes), np.full(count, 1e6))
    sim = Simulator(Cluster.homogeneous(4, 4), jobs, ten_gigabit_rings())
    sim.advance()
    sim.apply(PlacementPlan(sim.view()).start(pack(), sim.view().waiting))
    return sim


def test_a_running_job_changes_step_by_step_or_keeps_what_it_holds():
    sim = filled([4, 4, 4, 2])
    draft = PlacementPlan(sim.view())
    before = draft.jobs_of_gpu.tolist()
    assert not draft.reallocate(Allocation(3, (0, 1)))  # another's
    assert not draft.reallocate(Allocation(3, (14, 15)), Allocation(3, (0, 1)))  # the second step
    assert draft.jobs_of_gpu.tolist() == before
    assert draft._state.jobs["num_gpus"][0, 3] == 2
    assert draft.reallocate(Allocation(3, (14, 15)), Allocation(3, (13, 14)))
    assert draft.jobs_of_gpu[12:].ravel().tolist() == [-1, 3, 3, -1]


def test_a_running_job_moves_to_the_first_shape_that_finds_places_or_stays():
    sim = filled([4, 4, 4, 2])
    draft = PlacementPlan(sim.view())
    before = present(draft._state)
    assert draft.migrate(pack(), 3, [Allocation(3, tuple(range(5)))]) is None
    assert present(draft._state) == before
    found = draft.migrate(pack(), 3, [Allocation(3, tuple(range(5))), Allocation(3, (0, 1, 2))])
    assert found.gpu_ids == (12, 13, 14)
    assert draft.num_free_gpus == 1


def test_others_are_stopped_one_by_one_until_a_job_fits_or_not_at_all():
    sim = filled([4, 4, 4, 4, 8])
    draft = PlacementPlan(sim.view())
    before = present(draft._state)
    assert draft.preempt_for(pack(), 4, [2]) == []
    assert present(draft._state) == before
    allocations = draft.preempt_for(pack(), 4, iter([2, 2, 4, 0, 1]))  # 1 need not go
    assert [one.job for one in allocations] == [2, 0, 4]
    assert [one.gpu_ids for one in allocations] == [(), (), (0, 1, 2, 3, 8, 9, 10, 11)]
    sim.apply(allocations)
    assert sim.view().running.tolist() == [1, 3, 4]


def test_who_is_stopped_waits():
    sim = filled([4, 4])
    draft = PlacementPlan(sim.view())
    assert draft.preempt([0]) == [Allocation(0)]
    assert draft.num_free_gpus == 12


def test_what_starts_before_an_error_does_not_stay():
    jobs = JobTable.from_columns(np.zeros(2), np.full(2, 4), np.full(2, 1e6))
    sim = Simulator(Cluster.homogeneous(4, 4), jobs, ten_gigabit_rings())
    sim.advance()
    for _ in range(2):  # the next draft has the same arrays
        draft = PlacementPlan(sim.view())
        with pytest.raises(PlacementError, match="job 0 holds something in this plan"):
            draft.start(pack(), [0, 1, 0])
        assert draft.num_free_gpus == 16
        del draft
    assert len(PlacementPlan(sim.view()).start(pack(), [0, 1])) == 2


WITH_CORES = Cluster.of_groups(
    [{"num_servers": 2, "gpus_per_server": 2, "gpu_type": "v100", "cores_per_server": 8}]
)


def with_more_cores():
    """Job 0 has 6 cores where it asked for 2, job 1 the 5 that it asked for, on the other server."""
    jobs = JobTable.from_columns(np.zeros(2), np.ones(2, int), np.full(2, 1e6))
    sim = Simulator(WITH_CORES, replace(jobs, cores_per_worker=np.array([2, 5])), ideal())
    sim.advance()
    sim.apply([Allocation(0, (0,), 6), Allocation(1, (2,), 5)])
    return sim


def test_a_job_moves_as_it_is_and_not_as_it_asked():
    draft = PlacementPlan(with_more_cores().view())
    assert not draft.reallocate(Allocation(0, (3,)))  # 6 cores, of which 3 are free
    assert draft.migrate(pack(), 0, [Allocation(0, (0,), 9)]) is None
    assert draft.free_cores_per_server.tolist() == [2, 3]
    assert draft.reallocate(Allocation(0, (3,), 3))
    assert draft.free_cores_per_server.tolist() == [8, 0]
    assert draft.reallocate(Allocation(0, (1,)))  # with the 3 that it has by now
    assert draft.free_cores_per_server.tolist() == [5, 3]
    assert draft.migrate(pack(), 0).cores_per_worker == 3


@pytest.mark.parametrize("seed", range(6))
def test_moves_of_a_draft_can_be_carried_out(seed):
    """In random worlds; then the cluster is as the draft said."""
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng, 25)
    sim = Simulator(cluster, jobs, performance, constant(5.0), failures=failures)
    carried = 0
    for _ in range(200):
        running = sim.view().running.tolist()
        if running:
            draft, job = PlacementPlan(sim.view()), int(rng.choice(running))
            if rng.random() < 0.5:
                found = draft.migrate(pack(), job)
            else:
                tried = random_allocation(sim.view(), rng, job)
                found = tried if draft.reallocate(tried) else None
            if found is not None:
                sim.apply([found])
                held = [np.sort(one.jobs_of_gpu).tolist() for one in (draft, PlacementPlan(sim.view()))]
                assert held[0] == held[1]
                assert draft.free_cores_per_server.tolist() == sim.state.servers["free_cores"][0].tolist()
                carried += 1
        for one in random_decision(sim.view(), rng):
            with contextlib.suppress(PlacementError):  # cores, memory
                sim.apply([one])
        try:
            sim.advance()
        except SchedulerError:  # all have ended, or nobody started
            break
    assert carried > 5


@pytest.mark.parametrize("row", [-1, 2, 10**9, 1.5, "x", None])
def test_only_rows_of_jobs_are_moved(row):
    draft = PlacementPlan(filled([4, 4]).view())
    for move in (
        draft.release,
        lambda job: draft.place(pack(), job),
        lambda job: draft.migrate(pack(), job),
        lambda job: draft.preempt_for(pack(), job, [0]),
        lambda job: draft.allocate(Allocation(job, (0,))),
        lambda job: draft.reallocate(Allocation(job, (0,))),
    ):
        with pytest.raises(PlacementError, match="there is no job"):
            move(row)
    assert draft.num_free_gpus == 8


def test_a_job_that_holds_something_is_released_before_it_gets_another_place():
    draft = PlacementPlan(filled([4, 4]).view())
    before = draft.jobs_of_gpu.tolist()
    for move in (lambda: draft.allocate(Allocation(0, (8,))), lambda: draft.place(pack(), 0)):
        with pytest.raises(PlacementError, match="job 0 holds something in this plan; release it first"):
            move()
        assert draft.jobs_of_gpu.tolist() == before
    draft.release(0)
    assert draft.allocate(Allocation(0, (8, 9, 10, 11)))


def test_moves_are_of_one_job_that_can_be_moved():
    draft = PlacementPlan(filled([4, 4]).view())
    with pytest.raises(PlacementError, match=r"steps are of jobs \[0, 1\]"):
        draft.reallocate(Allocation(0, (8, 9, 10, 11)), Allocation(1, (12, 13, 14, 15)))
    with pytest.raises(PlacementError, match="shape is of job 1"):
        draft.migrate(pack(), 0, [Allocation(1)])
    with pytest.raises(PlacementError, match="job 1 holds something"):
        draft.preempt_for(pack(), 1, [0])
    assert draft.num_free_gpus == 8


def test_jobs_that_are_preempted_hold_nothing():
    draft = PlacementPlan(filled([4, 4]).view())
    with pytest.raises(PlacementError, match="list of rows"):
        draft.preempt([3])
    free = draft.num_free_gpus
    assert draft.preempt([]) == []
    assert draft.preempt([0, 1]) == [Allocation(0), Allocation(1)]
    assert draft.num_free_gpus == free + 8
