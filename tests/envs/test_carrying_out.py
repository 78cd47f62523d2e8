"""Many allocations at once come to the same as one after the other, each looked at in full."""

from dataclasses import fields, replace

import numpy as np
import pytest

from drawn_worlds import draw_allocation, draw_world, drawn_profiles, fresh_seed, one_of, simulator
from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.errors import PlacementError, RingyardError
from ringyard.sim.carrying_out import carry_out_plain, listed
from ringyard.state.records import JobStatus

FRESH_WORLDS = 300
NAN, INF = float("nan"), float("inf")
WRONG = (
    -1,
    0,
    1,
    2,
    True,
    10**6,
    2**31,
    2**40,
    2**50,
    2**63,
    -0.5,
    0.5,
    1.0,
    NAN,
    INF,
    "1",
    np.int64(1),
    [1],
)


def one_by_one(sim, allocations):
    """What `Simulator.apply` comes to."""
    for allocation in allocations:
        sim._apply_one(allocation)


def refusal(apply, allocations):
    """What an exception says; None: there is none."""
    try:
        apply(allocations)
    except RingyardError as error:
        return f"{type(error).__name__}: {error}"
    return None


def drawn(rng, sim):
    """A list of allocations for whoever is live, some twice, some with something wrong in them."""
    records = sim.state.jobs[0, : len(sim.jobs)]
    live = np.flatnonzero((records["status"] == JobStatus.WAITING) | (records["status"] == JobStatus.RUNNING))
    chosen = rng.permutation(np.repeat(live, int(one_of(rng, 1, 1, 2))))
    hostile = rng.random() < 0.3
    allocations = []
    for j in chosen.tolist():
        allocation = draw_allocation(rng, sim, j, records[j], int(rng.integers(3)))
        if hostile and rng.random() < 0.3:
            name = str(one_of(rng, *(field.name for field in fields(Allocation))))
            wrong = one_of(rng, *WRONG)
            few = allocation.gpu_ids[1:]
            odd_gpus = one_of(rng, (wrong,), (*few, wrong), (*allocation.gpu_ids, *few), few)
            allocation = replace(allocation, **{name: odd_gpus if name == "gpu_ids" else wrong})
        allocations.append(allocation)
    return allocations


def compare(seed):
    """Play a world; how many allocations were carried out in the compiled loop, and refused."""
    world, rng = draw_world(seed), np.random.default_rng([seed, 1])
    sim, plain, refused = simulator(world), 0, 0
    for _ in range(30):
        try:
            sim.advance()
        except RingyardError:
            break
        allocations = drawn(rng, sim)
        twin, scratch = sim.fork(), sim.fork()
        numbers = listed(allocations) if allocations else None
        if numbers is not None:
            plain += max(carry_out_plain(scratch.state, 0, numbers, 0, sim.physics), 0)
        said = refusal(sim.apply, allocations)
        assert said == refusal(lambda those, twin=twin: one_by_one(twin, those), allocations), seed
        refused += said is not None
        for name in ("jobs", "gpus", "slots", "servers", "clusters", "links"):
            assert getattr(sim.state, name).tobytes() == getattr(twin.state, name).tobytes(), (seed, name)
        if sim.done:
            break
    return plain, refused


def test_lists_are_carried_out_as_one_by_one():
    seed = fresh_seed()  # conftest.py prints it
    with drawn_profiles(seed):
        found = np.array([compare(seed + k) for k in range(FRESH_WORLDS)])
    plain, refused = found.sum(axis=0)
    assert plain > FRESH_WORLDS
    assert refused > FRESH_WORLDS / 4


def test_what_is_no_list_of_plain_numbers_is_looked_at_in_full():
    whole = Allocation(0, (0, 1), 1, 8.0, 1, 1, None, None, 10**9)
    assert listed([whole, Allocation(1)]) is not None
    odd = [replace(whole, **{name: wrong}) for name in ("job", "batch_size") for wrong in ("x", True, 2**63)]
    odd += [replace(whole, batch_size=wrong) for wrong in (NAN, -1.0)]
    odd += [replace(whole, cores_per_worker=wrong) for wrong in (-1, 2**63, 1.0)]
    odd += [replace(whole, gpu_ids=(0, wrong)) for wrong in (2**63, True, 1.0, "x")]
    for one in (*odd, None, "x"):
        assert listed([Allocation(1), one]) is None, one


@pytest.mark.parametrize("gpus", [(0, 0), (0, 4), (0, 1, 2, 3, 0), (0, -1)])
def test_those_before_a_refused_one_are_in_force(gpus):
    jobs = JobTable.from_columns([0.0, 0.0, 0.0], [1, 2, 1], [10.0, 10.0, 10.0])
    sim = Simulator(Cluster.homogeneous(1, 4), jobs, ideal())
    sim.advance()
    with pytest.raises(PlacementError):
        sim.apply([Allocation(2, (3,)), Allocation(1, gpus), Allocation(0, (2,))])
    assert sim.view().running.tolist() == [2]
