"""Everything at once: the compiled engine against its slow oracle, and the invariants."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_engine_oracle import check_invariants

from oracle.reference import ReferenceSimulator
from ringyard import Allocation, Simulator
from ringyard.errors import PlacementError
from ringyard.restart import constant
from ringyard.sim.metrics import job_times
from ringyard.state.records import Integral
from small_simulations import everything, random_allocation

RELAXED = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def decide_at_random(sim, rng, change_probability, twin=None):
    """Start, change and stop jobs at random; whatever is refused changes nothing."""
    view = sim.view()
    for job in [*view.running.tolist(), *rng.permutation(view.waiting).tolist()]:
        running = bool(view.column("status")[job] == 2)
        if running and rng.random() > change_probability:
            continue
        for _ in range(1 if running else 8):
            allocation = random_allocation(view, rng, job)
            if running and rng.random() < 0.3:
                allocation = Allocation(job)
            before = sim.state.jobs.tobytes()
            try:
                sim.apply([allocation])
            except PlacementError:
                assert sim.state.jobs.tobytes() == before
                continue
            if twin is not None:
                twin.apply([allocation])
            break


@RELAXED
@given(st.integers(0, 2**32 - 1), st.sampled_from([19.0, 7.0]))
def test_compiled_engine_equals_the_reference_with_everything_on(seed, round_seconds):
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng)
    costs = constant(2.5, 0.7)
    sim = Simulator(cluster, jobs, performance, costs, round_seconds, seed=seed, failures=failures)
    twin = ReferenceSimulator(cluster, jobs, performance, costs, round_seconds, seed, failures)
    for _ in range(250):
        if sim.done:
            break
        decide_at_random(sim, rng, 0.2, twin)
        check_invariants(sim)
        assert sim.view().running.tolist() == twin.running
        records = sim.state.jobs[0]
        for j, count in twin.contenders().items():
            assert records["contenders"][j] == pytest.approx(count, rel=1e-9)
        for j in twin.running:
            assert records["iteration_seconds"][j] == pytest.approx(twin.jobs[j].seconds, rel=1e-9)
            assert records["sharing_slowdown"][j] == pytest.approx(twin.sharing_slowdown(twin.jobs[j]))
            assert records["bandwidth_slowdown"][j] == pytest.approx(twin.bandwidth_slowdown(twin.jobs[j]))
        sim.advance()
        twin.advance()
        assert sim.now == pytest.approx(twin.now, rel=1e-9)
    records = sim.state.jobs[0]
    for j, job in enumerate(twin.jobs):
        if job.end is not None:
            assert records["end_seconds"][j] == pytest.approx(job.end, rel=1e-9)
            assert records["outcome"][j] == job.outcome
        assert bool(records["predictable"][j]) == job.predictable
        assert records["num_failures"][j] == job.failures
    integrals = sim.state.integrals[0]
    assert integrals[Integral.JOBS_IN_SYSTEM] == pytest.approx(twin.jobs_in_system_integral, rel=1e-9)
    assert integrals[Integral.BUSY_GPUS] == pytest.approx(twin.busy_gpu_integral, rel=1e-9)


@RELAXED
@given(st.integers(0, 2**32 - 1))
def test_conservation_with_everything_on(seed):
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng)
    sim = Simulator(cluster, jobs, performance, constant(1.0), 5.0, seed=seed, failures=failures)
    for _ in range(3000):
        if sim.done:
            break
        decide_at_random(sim, rng, 0.02)
        sim.advance()
        check_invariants(sim)
    times = job_times(sim.state, 0, sim.jobs)
    integrals = sim.state.integrals[0]
    records = sim.state.jobs[0, : len(jobs)]
    if sim.done:  # Little's law, exactly
        assert integrals[Integral.JOBS_IN_SYSTEM] == pytest.approx(times.jct.sum(), rel=1e-9)
        bins = sim.state.timeline[0, :, 0].sum()
        assert bins == pytest.approx(times.queueing_seconds.sum(), rel=1e-6, abs=1e-6)
    if cluster.jobs_per_gpu == 1 and sim.done:
        held = records["attained_service"].sum()
        assert integrals[Integral.BUSY_GPUS] == pytest.approx(held, rel=1e-9)
    assert (times.queueing_seconds >= -1e-6).all()
    assert integrals[Integral.BUSY_GPUS] <= cluster.num_gpus * sim.now * (1 + 1e-12)


@RELAXED
@given(st.integers(0, 2**32 - 1))
def test_what_if_is_what_happens_and_leaves_no_trace(seed):
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng)
    sim = Simulator(cluster, jobs, performance, constant(1.0), 5.0, seed=seed, failures=failures)
    straggles = performance.straggler_cv > 0
    for _ in range(25):
        if sim.done:
            return
        decide_at_random(sim, rng, 0.1)
        view = sim.view()
        for job in [*view.running.tolist(), *view.waiting.tolist()]:
            allocation = random_allocation(view, rng, job)
            try:
                predicted = view.iteration_seconds(allocation)
            except PlacementError:
                continue
            check_invariants(sim)
            fork = sim.fork()
            fork.apply([allocation])
            if not straggles:
                happened = fork.state.jobs["iteration_seconds"][0, job]
                assert predicted == pytest.approx(happened, rel=1e-12)
        sim.advance()
