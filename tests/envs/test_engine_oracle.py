"""The compiled engine against its slow oracle, and the invariants, on random simulations."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oracle.reference import ReferenceSimulator
from ringyard import Cluster, Simulator, ideal
from ringyard.restart import constant
from ringyard.sim.metrics import job_times
from ringyard.state.arrays import SERVERS_PER_WORD
from ringyard.state.records import DOWN, Integral, JobKind, JobStatus, Network
from small_simulations import random_decision, random_jobs, rings, small_cases

RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def held_cores(sim, job):
    """[servers] cores of a running job: its workers', and its parameter servers', dealt out."""
    cores = np.zeros(sim.cluster.num_servers, dtype=np.int64)
    record = sim.state.jobs[0, job]
    if record["kind"] == JobKind.CPU_ONLY:
        cores[record["server"]] = record["cores_per_worker"]
        return cores
    servers = sim.cluster.server_of_gpu[list(sim.view().gpus_of(job))]
    cores += np.bincount(servers, minlength=len(cores)) * record["cores_per_worker"]
    distinct = np.unique(servers)
    for task in range(record["parameter_servers"]):
        cores[distinct[task % len(distinct)]] += record["cores_per_server_task"]
    return cores


def check_invariants(sim):
    """What must hold after every event."""
    state, cluster = sim.state, sim.state.clusters[0]
    per_gpu = sim.cluster.jobs_per_gpu
    holders = state.slots["job"][0].reshape(-1, per_gpu)
    jobs = state.jobs[0, : len(sim.jobs)]
    occupied = (holders >= 0).sum(axis=1)
    up = state.servers["up"][0] != 0
    on_gpus = jobs["kind"] != JobKind.CPU_ONLY
    for j, job in enumerate(jobs):
        held = (holders == j).sum(axis=1)
        running = job["status"] == JobStatus.RUNNING
        assert held.max() <= 1  # a GPU holds a job once
        assert held.sum() == (job["num_gpus"] if running else 0)  # a gang has all its workers or none
        assert -1e-9 <= job["remaining_iterations"] <= job["total_iterations"] * (1 + 1e-12)
        if running and on_gpus[j]:
            assert job["num_servers"] == len(set(sim.cluster.server_of_gpu[held > 0]))
            assert job["min_gpus"] <= job["num_gpus"] <= job["max_gpus"]
            assert job["min_batch"] <= job["batch_size"] <= job["max_batch"]
        assert (job["server"] >= 0) == (running and not on_gpus[j])
    for s in range(sim.cluster.num_servers):
        mine = sim.cluster.server_of_gpu == s
        here = holders[mine]
        assert up[s] or (here < 0).all()  # nothing runs on a failed server
        assert state.servers["free_gpus"][0, s] == (occupied[mine] == 0).sum() * up[s]
        spanning = {j for j in here.ravel() if j >= 0 and jobs[j]["num_servers"] > 1}
        assert state.servers["spanning_jobs"][0, s] == len(spanning)
    counted = state.gpus["num_jobs"][0] % DOWN
    assert (counted == occupied).all()
    with_room = (occupied < per_gpu) & up[sim.cluster.server_of_gpu]
    assert cluster["open_gpus"] == with_room.sum() == state.servers["open_gpus"][0].sum()
    assert (state.gpus["free_memory_bytes"][0] >= 0).all()
    if sim.cluster.cores_per_server:
        held_by_all = sum(held_cores(sim, j) for j in sim.view().running)
        free = np.where(up, np.array(sim.cluster.cores_per_server), 0) - held_by_all
        assert (state.servers["free_cores"][0] == free).all()
        assert (free >= 0).all()
    assert cluster["free_gpus"] == state.servers["free_gpus"][0].sum()
    statuses = jobs["status"]
    assert cluster["num_waiting"] == (statuses == JobStatus.WAITING).sum()
    assert cluster["num_running"] == (statuses == JobStatus.RUNNING).sum()
    assert cluster["num_done"] == (statuses == JobStatus.DONE).sum()
    free = state.servers["free_gpus"][0]
    partly = free < state.servers["num_gpus"][0]
    assert cluster["fragmented_gpus"] == free[partly].sum()
    check_indices(sim)


def check_indices(sim):
    """What is kept so that little has to be looked at says what looking at everything would."""
    state, cluster = sim.state, sim.state.clusters[0]
    free = state.servers["free_gpus"][0]
    bits = state.free_bits[0].reshape(state.num_with_free.shape[1], -1)
    for number, words in enumerate(bits):
        marked = [s for s in range(len(free)) if words[s // SERVERS_PER_WORD] >> s % SERVERS_PER_WORD & 1]
        assert marked == np.flatnonzero(free == number).tolist()
        assert state.num_with_free[0, number] == len(marked)
    jobs = state.jobs[0, : len(sim.jobs)]
    ended = state.ended[0, : cluster["num_done"]]
    assert sorted(ended) == np.flatnonzero(jobs["status"] == JobStatus.DONE).tolist()
    assert (np.diff(jobs["end_seconds"][ended]) >= 0).all()
    if cluster["network"] != Network.MAX_MIN:
        rings = (jobs["status"] == JobStatus.RUNNING) & (jobs["num_servers"] > 1)
        column = "link_load" if cluster["global_links"] else "link_share"
        weights = np.where(rings, np.rint(jobs[column] * 2.0**40) / 2.0**40, 0.0)
        holders = state.slots["job"][0].reshape(-1, sim.cluster.jobs_per_gpu)
        for s in range(sim.cluster.num_servers):
            here = holders[sim.cluster.server_of_gpu == s].ravel()
            assert state.links["load"][0, s] == weights[np.unique(here[here >= 0])].sum()


@RELAXED
@given(small_cases(), st.sampled_from([0.0, 2.5]), st.sampled_from([None, 7.0]))
def test_compiled_engine_equals_the_reference(world, restart_seconds, round_seconds):
    cluster, jobs, performance, seed = world
    restart = constant(restart_seconds)
    sim = Simulator(cluster, jobs, performance, restart, round_seconds)
    reference = ReferenceSimulator(cluster, jobs, performance, restart, round_seconds)
    rng = np.random.default_rng(seed)
    for _ in range(600):
        if sim.done:
            break
        decision = random_decision(sim.view(), rng)
        sim.apply(decision)
        reference.apply(decision)
        check_invariants(sim)
        assert sim.view().waiting.tolist() == sorted(sim.view().waiting.tolist()) == reference.waiting
        assert sim.view().running.tolist() == reference.running
        for j, count in reference.contenders().items():
            assert sim.state.jobs["contenders"][0, j] == count
        sim.advance()
        reference.advance()
        assert sim.now == pytest.approx(reference.now, rel=1e-9)
    ended = sim.state.jobs["end_seconds"][0, :-1]
    for j, job in enumerate(reference.jobs):
        if job.end is not None:
            assert ended[j] == pytest.approx(job.end, rel=1e-9)
    assert sim.state.integrals[0, Integral.JOBS_IN_SYSTEM] == pytest.approx(
        reference.jobs_in_system_integral, rel=1e-9
    )
    assert sim.state.integrals[0, Integral.BUSY_GPUS] == pytest.approx(reference.busy_gpu_integral, rel=1e-9)


@RELAXED
@given(small_cases())
def test_conservation_over_a_whole_run(world):
    cluster, jobs, performance, seed = world
    sim = Simulator(cluster, jobs, performance)
    rng = np.random.default_rng(seed)
    while not sim.done:
        sim.apply(random_decision(sim.view(), rng, stop_probability=0.05))
        sim.advance()
        check_invariants(sim)
    times = job_times(sim.state, 0, sim.jobs)
    integrals = sim.state.integrals[0]
    # Little's law, exactly: the integral of the number in the system is the sum of the times in it
    assert integrals[Integral.JOBS_IN_SYSTEM] == pytest.approx(times.jct.sum(), rel=1e-9)
    held = sim.state.jobs["attained_service"][0, :-1]
    assert integrals[Integral.BUSY_GPUS] == pytest.approx(held.sum(), rel=1e-9)
    assert integrals[Integral.INVERSE_DURATION_IN_SYSTEM] == pytest.approx(times.slowdown.sum(), rel=1e-6)
    assert (times.slowdown >= 1 - 1e-9).all()
    assert (times.queueing_seconds >= -1e-6).all()
    bins_waiting = sim.state.timeline[0, :, 0].sum()
    assert bins_waiting == pytest.approx(times.queueing_seconds.sum(), rel=1e-6, abs=1e-6)


def test_fork_is_independent(rng):
    sim = Simulator(Cluster.homogeneous(2, 4), random_jobs(rng, 10, 8), rings())
    for _ in range(4):
        sim.apply(random_decision(sim.view(), rng, 0.0))
        sim.advance()
    fork = sim.fork()
    before = [array.tobytes() for array in sim.state]
    while not fork.done:
        fork.apply(random_decision(fork.view(), rng, 0.0))
        fork.advance()
    assert [array.tobytes() for array in sim.state] == before
    assert not sim.done


def test_a_job_alone_takes_its_traced_duration(rng):
    jobs = random_jobs(rng, 1, 8)
    for performance in (ideal(), rings()):
        sim = Simulator(Cluster.homogeneous(2, 4), jobs, performance)
        while not sim.done:
            gpus = tuple(range(int(jobs.num_gpus[0])))
            from ringyard import Allocation

            sim.apply([Allocation(int(j), gpus) for j in sim.view().waiting])
            sim.advance()
        assert sim.metrics().mean_jct == pytest.approx(jobs.duration_seconds[0], rel=1e-12)
