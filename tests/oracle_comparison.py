"""The compiled engine against its oracle on random simulations.

`python tests/oracle_comparison.py --simulations 10000`.

Simulations are those of `random_simulations`. After each event all numbers are equal to the last bit.
"""

import argparse
import multiprocessing
import sys
import time
from functools import partial

import numpy as np

from oracle.reference import ReferenceSimulator
from random_simulations import (
    SEED,
    draw_allocation,
    draw_simulation,
    drawn_profiles,
    fresh_seed,
    one_of,
    simulator,
)
from ringyard import Allocation
from ringyard.allocator import Allocator, attained, predicted
from ringyard.errors import PlacementError, SchedulerError
from ringyard.resources import RESOURCES
from ringyard.sim.metrics import LOSS_NAMES, job_times
from ringyard.state.records import Integral, JobOutcome, JobStatus
from ringyard_baselines.policies.allocating import AllocatingScheduler

MOST_DECISIONS = 120


def decide(rng, sim, oracle, calm_order):
    """Allocations at random, carried out by both; what the engine refuses is left.

    Args:
        rng: of the decisions.
        sim: the engine.
        oracle: its oracle.
        calm_order: start what there is room for, in this order of GPUs, and leave running jobs alone; None:
            start, change and stop jobs as it comes.
    """
    records = sim.state.jobs[0, : len(sim.jobs)]
    live = np.flatnonzero((records["status"] == JobStatus.WAITING) | (records["status"] == JobStatus.RUNNING))
    order = rng.permutation(np.repeat(live, 2 if rng.random() < 0.2 else 1))
    for j in order.tolist():
        waits = records["status"][j] == JobStatus.WAITING
        if records["status"][j] == JobStatus.DONE:
            continue
        calm = calm_order is not None
        if not waits if calm else rng.random() > (0.9 if waits else 0.15):
            continue
        order = calm_order if calm else int(rng.integers(3))
        allocation = draw_allocation(rng, sim, j, records[j], order)
        try:
            sim.apply([allocation])
        except PlacementError:
            continue
        oracle.apply([allocation])


class Allocating:
    """The allocator with random options, and random scores at every decision; carried out by both."""

    def __init__(self, rng, sim):
        estimate = one_of(rng, predicted, attained)(float(rng.choice([0.0, 60.0, 600.0])))
        allocator = Allocator(
            gamma=float(rng.choice([0.0, 0.5, 1.0, 2.0])),
            size_power=float(rng.choice([0.3, 0.7, 1.0])),
            resize_price=float(rng.choice([0.0, 5.0])),
            sharing_power=float(rng.choice([0.0, 0.5])),
            migration_price=float(rng.choice([0.0, 10.0])),
            running_factor=float(rng.choice([0.1, 1.0])),
            preemption_price=float(rng.choice([0.0, 1.0])),
            estimate=estimate,
        )
        self.scheduler = AllocatingScheduler(allocator)
        known = sim.jobs.restricted_to(self.scheduler.observability)
        self.scheduler.reset(sim.cluster, known, np.random.default_rng(0))

    def __call__(self, rng, sim, oracle, calm_order):
        """See `decide`."""
        view = sim.view(self.scheduler.observability)
        plan = self.scheduler._plan_for(view, True)
        plan.score[0] = rng.uniform(-1.0, 1.0, len(plan.score[0]))
        for allocation in self.scheduler.decide(view):
            sim.apply([allocation])
            oracle.apply([allocation])


class DisagreementError(Exception):
    """Engine and oracle differ; its text says when, in what, and how to see it again."""


def equal(seed, sim, what, engine, oracle):
    if engine != oracle:
        raise DisagreementError(
            f"seed {seed} at {sim.now!r} s: {what} is {engine!r} in the engine, {oracle!r} in the oracle;"
            f" again: python tests/oracle_comparison.py --simulations 1 --seed {seed}"
        )


def compare_now(seed, sim, oracle):
    """Every number of every job and server that schedulers could notice."""
    records = sim.state.jobs[0, : len(sim.jobs)]
    equal(seed, sim, "the time", sim.now, oracle.now)
    for name, status in (("running", JobStatus.RUNNING), ("waiting", JobStatus.WAITING)):
        equal(seed, sim, name, np.flatnonzero(records["status"] == status).tolist(), getattr(oracle, name))
    servers = sim.state.servers[0]
    free = np.stack([servers[one.free] for one in RESOURCES], axis=1)
    used = np.stack([servers[one.total] for one in RESOURCES], axis=1) - free
    for s in np.flatnonzero(servers["up"]).tolist():
        equal(seed, sim, f"resources held on server {s}", tuple(used[s].tolist()), oracle.held_on(s))
        over = bool((free[s] < 0).any())
        equal(seed, sim, f"whether server {s} gave more than it has", over, False)
    contenders = oracle.contenders()
    for j in oracle.running:
        job, record = oracle.jobs[j], records[j]
        columns = {
            "contenders": contenders.get(j, record["contenders"]),
            "iteration_seconds": job.seconds,
            "sharing_slowdown": oracle.sharing_slowdown(job),
            "bandwidth_slowdown": oracle.bandwidth_slowdown(job),
            "storage_seconds_per_byte": oracle.storage_seconds_per_byte(job),
            "gpu_speed": oracle.gpu_speed(job),
            "straggler": job.straggler,
            "end_seconds": oracle.expected_end(job),
        }
        for name, value in columns.items():
            equal(seed, sim, f"{name} of job {j}", float(record[name]), float(value))


def compare_jobs(seed, sim, oracle):
    """What has become of every job."""
    for j, job in enumerate(oracle.jobs):
        record = sim.state.jobs[0, j]
        columns = {
            "outcome": job.outcome,
            "predictable": job.predictable,
            "num_failures": job.failures,
            "num_preemptions": job.preemptions,
            "num_resizes": job.resizes,
        }
        if job.end is not None:
            columns["end_seconds"] = job.end
            columns["remaining_iterations"] = job.remaining
        if job.start is not None:
            columns["first_start_seconds"] = job.start
        for name, value in columns.items():
            equal(seed, sim, f"{name} of job {j}", float(record[name]), float(value))
    integrals = sim.state.integrals[0]
    sums = [
        (Integral.JOBS_IN_SYSTEM, oracle.jobs_in_system_integral, 1e-9),
        (Integral.BUSY_GPUS, oracle.busy_gpu_integral, 1e-9),
    ]
    done = [job for job in oracle.jobs if job.end is not None]
    ended = [job for job in done if job.outcome != JobOutcome.BLOCKED]
    late = [
        job.outcome == JobOutcome.BLOCKED or job.end - job.submit > job.promised
        for job in done
        if job.promised < np.inf and sim.jobs.elapsed_seconds[job.row] == 0
    ]
    violations = sim.metrics().sla_violations
    equal(seed, sim, "late jobs", violations, float(np.mean(late)) if late else None)
    shortest = min((job.end - job.submit for job in ended if job.end > job.submit), default=1.0)
    # a life's share of GPUs is the difference of two sums since 0, of which each event rounds off a little
    rounding = MOST_DECISIONS * np.finfo(float).eps * max(integrals[Integral.FAIR_SHARE], sim.now) / shortest
    rho = oracle.fairness()
    sums += [
        (Integral.FAIRNESS, sum(rho), 1e-9 + rounding),
        (Integral.WORST_FAIRNESS, max(rho, default=0.0), 1e-9 + rounding),
    ]
    for integral, value, tolerance in sums:
        near = abs(integrals[integral] - value) <= tolerance * max(abs(value), 1.0)
        equal(
            seed,
            sim,
            integral.name,
            float(integrals[integral]),
            float(integrals[integral]) if near else value,
        )


def compare_losses(seed, sim, oracle):
    """Where the time of every job that ended has gone: equal but for rounding, and all of its time."""
    near = 1e-13 * sim.now + 1e-14  # seconds
    times = job_times(sim.state, 0, sim.jobs)
    total = times.queueing_seconds + times.work_seconds
    for name in LOSS_NAMES:
        found = getattr(times, f"lost_to_{name}")
        total = total + found
        for j, value in zip(times.rows.tolist(), found.tolist(), strict=True):
            lost = oracle.jobs[j].lost[name]
            if abs(value - lost) > near + 1e-9 * max(abs(lost), times.jct.max()):
                equal(seed, sim, f"what job {j} lost to {name}", value, lost)
    for j, value, jct in zip(times.rows.tolist(), total.tolist(), times.jct.tolist(), strict=True):
        if abs(value - jct) > near + 1e-9 * jct:
            equal(seed, sim, f"all parts of job {j}'s time", value, jct)
    if sim.done:
        kernels = float(sim.state.clusters["kernel_seconds"][0])
        if abs(kernels - oracle.kernel_seconds) > near + 1e-9 * oracle.kernel_seconds:
            equal(seed, sim, "GPU seconds with kernels", kernels, oracle.kernel_seconds)


def play(seed, allocating=False):
    """Play the simulation of a seed in engine and oracle; how many events there were.

    Args:
        seed: of the simulation, and of what is decided.
        allocating: decide as the allocator does, with random options and scores; else at random.

    Raises:
        DisagreementError: they differ.
    """
    with drawn_profiles(seed):
        try:
            return _play(seed, allocating)
        except DisagreementError as difference:
            raise DisagreementError(f"{difference}{' --allocator' if allocating else ''}") from None


def _play(seed, allocating):
    simulation = draw_simulation(seed)
    rng = np.random.default_rng([seed, 1 << 20])
    sim = simulator(simulation)
    oracle = ReferenceSimulator(*simulation)
    calm_order = one_of(rng, None, None, None, 0, 1, 2)
    decided_by = Allocating(rng, sim) if allocating else decide
    events = 0
    while not sim.done and events < MOST_DECISIONS:
        compare_now(seed, sim, oracle)
        decided_by(rng, sim, oracle, calm_order)
        compare_now(seed, sim, oracle)
        if sim.done:
            break
        stalled = []
        for each in (sim, oracle):
            try:
                each.advance()
            except SchedulerError:
                stalled.append(each)
        if sim.now == 0 and not oracle.running:  # where warm jobs go is the rule of the engine
            for j in np.flatnonzero(simulation.jobs.elapsed_seconds > 0).tolist():
                if gpus := sim.view().gpus_of(j):
                    oracle.apply([Allocation(j, gpus)])
        equal(seed, sim, "whether anything is left to happen", sim not in stalled, oracle not in stalled)
        events += not stalled
    compare_now(seed, sim, oracle)
    compare_jobs(seed, sim, oracle)
    if simulation.losses:
        compare_losses(seed, sim, oracle)
    return events


def _outcome(seed, allocating=False):
    try:
        return play(seed, allocating), None
    except DisagreementError as difference:
        return 0, str(difference)


def play_all(first, simulations, workers=2, allocating=False):
    """Play the simulations of seeds first, first + 1, ...; see `play`.

    Returns:
        How many events there were, and one line for each disagreement.
    """
    seeds = range(first, first + simulations)
    if workers == 1:
        outcomes = [_outcome(seed, allocating) for seed in seeds]
    else:
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            outcomes = pool.map(partial(_outcome, allocating=allocating), seeds, chunksize=50)
    return sum(events for events, _ in outcomes), [line for _, line in outcomes if line]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument(
        "--seed", type=int, default=None, help=f"of the first simulation; default: {SEED}, else random"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--allocator",
        action="store_true",
        help="decide as the allocator does, with random options and scores",
    )
    arguments = parser.parse_args()
    first = fresh_seed() if arguments.seed is None else arguments.seed
    print(f"{arguments.simulations} simulations from seed {first}", flush=True)
    begin = time.perf_counter()
    events, disagreements = play_all(
        first,
        arguments.simulations,
        arguments.workers if arguments.simulations > 1 else 1,
        arguments.allocator,
    )
    for line in disagreements:
        print(line)
    seconds = time.perf_counter() - begin
    print(
        f"{arguments.simulations} simulations, {events} events, {len(disagreements)} disagreements,"
        f" {seconds:.0f} s"
    )
    sys.exit(bool(disagreements))


if __name__ == "__main__":
    main()
