"""ONES' search, limits, gate and moves, worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import digamma
from scipy.stats import beta

from ringyard import Cluster, JobTable, Simulator
from ringyard.placement import pack
from ringyard.restart import constant
from ringyard.sim.allocation import Allocation
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.sim.speeds import BatchRule, speed_table
from ringyard.state.records import JobStatus
from ringyard.workloads import OnesJobs
from ringyard.workloads.papers import ONES_TASKS
from ringyard_baselines.papers.ones.deployment import (
    Deployment,
    gpus_by_job,
    gpus_of_running_jobs,
    jobs_blocked_as_whole,
    jobs_blocked_in_parts,
)
from ringyard_baselines.papers.ones.evolution import evolve
from ringyard_baselines.papers.ones.progress import BetaProgress, _digamma, _tanh, earlier_job_rows
from ringyard_baselines.papers.ones.scheduler import Ones
from ringyard_baselines.papers.ones.schedules import FREE, ClusterGpus, SearchJobs, Workspace, fill
from small_simulations import elastic, perfect, simulated

GPUS, PARENTS = 12, 8


def search(rng, switch_seconds=0.0):
    """Jobs, machine, work space and a filled population of parents, drawn."""
    count = int(rng.integers(2, 9))
    limit = rng.integers(1, 9, count)
    left = np.where(rng.random(count) < 0.3, np.nan, rng.uniform(1, 100, count))
    sizes = np.arange(GPUS + 1)
    jobs = SearchJobs(
        fewest=np.ones(count, dtype=np.int64),
        held=np.zeros(count, dtype=np.int64),
        current_limit=np.minimum(limit, rng.integers(1, 9, count)),
        limit=limit,
        mutable=(~np.isnan(left)).astype(np.int64),
        left=left,
        place=np.arange(count),
        speed=np.tile(sizes**0.8, (count, 1)),
        padding=rng.permutation(count),
        sequence=np.arange(count),
    )
    machine = ClusterGpus(
        np.full(GPUS, FREE), np.repeat(np.arange(3), 4), np.ones(GPUS, dtype=np.int64), 4, switch_seconds
    )
    population = np.full((PARENTS, GPUS), FREE)
    for parent in population:
        fill(parent, jobs._replace(padding=rng.permutation(count)), machine.up, np.zeros(count, np.int64))
    return jobs, machine, population, Workspace.empty(PARENTS, GPUS, count)


def score(genome, jobs):
    held = np.bincount(genome[genome >= 0], minlength=len(jobs.left))
    known = (held > 0) & ~np.isnan(jobs.left)
    return sum(held[j] * jobs.left[j] / jobs.speed[j, held[j]] for j in np.flatnonzero(known))


def test_evolution_keeps_limits_and_its_best_score_never_gets_worse(rng):
    improved = 0
    for _ in range(30):
        jobs, machine, population, work = search(rng)
        jobs = jobs._replace(current_limit=jobs.limit)  # else parents padded to R shrink first
        before = min(score(parent, jobs) for parent in population)
        for _ in range(4):
            evolve(population, jobs, machine, 0.5, 0.3, work, rng.integers(1, 2**63, 1, np.uint64))
            scores = [score(parent, jobs) for parent in population]
            assert scores == sorted(scores)
            assert scores[0] <= before + 1e-9
            improved += scores[0] < before - 1e-9
            before = scores[0]
            for parent in population:
                held = np.bincount(parent[parent >= 0], minlength=len(jobs.limit))
                assert (held <= jobs.limit).all()
                changes = np.count_nonzero(np.diff(parent[parent >= 0])) + 1
                assert changes == np.count_nonzero(held)  # one block each
    assert improved > 10


def test_a_switching_cost_keeps_who_runs():
    one = np.array([1, 1])
    jobs = SearchJobs(
        fewest=one,
        held=np.array([2, 0]),
        current_limit=2 * one,
        limit=2 * one,
        mutable=one,
        left=np.array([100.0, 90.0]),
        place=np.arange(2),
        speed=np.tile([0.0, 1.0, 2.0], (2, 1)),
        padding=np.array([1, 0]),
        sequence=np.array([0, 1]),
    )
    for seconds, stays in ((0.0, 1), (4.0, 1), (6.0, 0)):  # 10 GPU seconds less, 2 GPUs x seconds more
        machine = ClusterGpus(np.zeros(2, np.int64), np.zeros(2, np.int64), one, 2, seconds)
        population = np.array([[0, 0], [0, 0], [1, 1], [1, 1]])
        work, seed = Workspace.empty(4, 2, 2), np.array([5], dtype=np.uint64)
        evolve(population, jobs, machine, 0.0, 0.0, work, seed)
        assert population[0].tolist() == [stays, stays]


def test_the_gate_opens_for_a_whole_schedule_or_for_its_parts():
    held = {0: (0, 1), 1: (2, 3)}
    wanted = {0: (0,), 1: (1, 2, 3), 2: (4,)}
    assert jobs_blocked_as_whole(wanted, held, too_recent=True) == {0, 1}  # only starts on free GPUs are left
    assert jobs_blocked_as_whole(wanted, held, too_recent=False) == set()
    assert jobs_blocked_in_parts(wanted, held, [0]) == {0, 1}  # job 1 wants a GPU of job 0
    assert jobs_blocked_in_parts(wanted, held, [1]) == {1}
    assert jobs_blocked_as_whole({0: (0, 1), 2: (3,)}, held, too_recent=True) == {0, 1, 2}


def running(places):
    """A cluster of 6 GPUs where elastic jobs run on these GPUs: the simulator and a way to move them."""
    jobs = elastic([len(gpus) for gpus in places], [1000.0] * len(places))
    costs = constant(30.0, resize_seconds=2.4)
    sim = Simulator(Cluster.homogeneous(1, 6), jobs, perfect(), costs)
    sim.advance()
    sim.apply([Allocation(job, gpus) for job, gpus in enumerate(places)])
    sim.state.clusters["wake_seconds"][0] = 50.0
    sim.advance()
    return sim


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([(0, 1)], {0: (2, 3)}),
        ([(0,)], {0: (5,)}),
        ([(0, 1), (2, 3)], {0: (1, 2), 1: (3, 4)}),
        ([(0, 1), (2, 3)], {0: (2, 3), 1: (0, 1)}),  # they change places
        ([(0, 1, 2), (3, 4, 5)], {0: (3, 4, 5), 1: (0, 1, 2)}),
    ],
)
def test_moves_are_elastic(before, after):
    sim = running(before)
    view = sim.view()
    plan = Deployment(
        PlacementPlan(view), gpus_of_running_jobs(view), speed_table(view, BatchRule.PER_GPU), True
    )
    plan.migrate(after)
    sim.apply(plan.allocations)
    for job, gpus in after.items():
        assert sim.view().gpus_of(job) == gpus
        assert sim.state.jobs["pause_ends_seconds"][0, job] == pytest.approx(52.4)
    assert sim.state.jobs["num_preemptions"].sum() == 0


def test_a_job_moves_through_more_gpus_if_it_may_not_have_fewer():
    jobs = elastic([2], [1000.0], low=2)  # up to 4
    sim = Simulator(Cluster.homogeneous(1, 6), jobs, perfect(), constant(30.0, resize_seconds=2.4))
    sim.advance()
    sim.apply([Allocation(0, (0, 1))])
    view = sim.view()
    plan = Deployment(
        PlacementPlan(view), gpus_of_running_jobs(view), speed_table(view, BatchRule.PER_GPU), True
    )
    plan.migrate({0: (2, 3)})
    assert [one.gpu_ids for one in plan.allocations] == [(0, 1, 2, 3), (2, 3)]


def test_moves_that_are_not_elastic_are_restarts():
    sim = running([(0, 1)])
    view = sim.view()
    plan = Deployment(
        PlacementPlan(view), gpus_of_running_jobs(view), speed_table(view, BatchRule.PER_GPU), False
    )
    plan.migrate({0: (2, 3)})
    sim.apply(plan.allocations)
    assert sim.state.jobs["pause_ends_seconds"][0, 0] == pytest.approx(80.0)


def limits(scheduler, completed, held, ran, status=None):
    """Present limits of jobs that ask for 4 GPUs each, of 16."""
    count = len(held)
    columns = {
        "min_gpus": np.ones(count, np.int64),
        "max_gpus": np.full(count, 16),
        "asked_gpus": np.full(count, 4),
        "status": np.array(status or [JobStatus.RUNNING] * count),
        "run_seconds": np.array(ran),
        "updated_seconds": np.zeros(count),
        "num_gpus": np.array(held),
        "first_start_seconds": np.zeros(count),
        "kind": np.zeros(count, np.int64),
    }
    view = SimpleNamespace(
        column=columns.__getitem__,
        num_gpus=np.array(held),
        now=0.0,
        select=lambda rows: SimpleNamespace(column=lambda name: columns[name][rows]),
        cluster=SimpleNamespace(num_gpus=16),
    )
    return scheduler._limits(view, np.arange(count), np.array(completed)).tolist(), view


def same_jobs(count):
    return JobTable.from_columns([0.0] * count, [1] * count, [1.0] * count)


def test_limits_grow_from_the_second_epoch_on_and_shrink_for_the_largest():
    scheduler = Ones(pack())
    scheduler.reset(Cluster.homogeneous(4, 4), same_jobs(3), np.random.default_rng(0))
    assert limits(scheduler, [1.0, 2.0, 2.0], [1, 1, 2], [1.0] * 3)[0] == [1, 2, 2]
    assert scheduler._limit.tolist() == [1, 2, 2]
    assert limits(scheduler, [1.0, 2.0, 3.0], [1, 2, 2], [1.0] * 3)[0] == [1, 4, 4]
    scheduler._limit[:] = [1, 1, 8]
    # 8 of 16 GPUs, three times the median's time: 2 x 8 / (3 + 1)
    assert limits(scheduler, [1.0, 1.0, 9.0], [1, 1, 8], [10.0, 10.0, 30.0])[0] == [1, 1, 4]
    assert scheduler._limit[2] == 16  # R itself stays
    assert limits(scheduler, [1.0, 1.0, 9.0], [1, 1, 8], [10.0, 30.0, 10.0])[0] == [1, 1, 16]


def test_the_limit_of_a_stopped_job_halves_while_it_waits():
    scheduler = Ones(pack())
    scheduler.reset(Cluster.homogeneous(4, 4), same_jobs(2), np.random.default_rng(0))
    _, view = limits(scheduler, [5.0, 5.0], [8, 1], [1.0, 1.0])
    scheduler._limit[:] = [9, 1]
    found = []
    for _ in range(4):
        scheduler._halve(view, [0, 1])
        found.append(scheduler._limit.tolist())
    assert found == [[4, 1], [2, 1], [1, 1], [1, 1]]
    scheduler._limit[0] = 4  # it resumes within its limit, and may have no more than that before it runs
    waits = [JobStatus.WAITING, JobStatus.RUNNING]
    assert limits(scheduler, [5.0, 1.0], [4, 1], [1.0, 1.0], waits)[0] == [4, 1]


def test_an_epoch_is_the_data_set_where_it_is_known():
    jobs = OnesJobs(num_jobs=200).sample(Cluster.homogeneous(16, 4), np.random.default_rng(0))
    samples = jobs.dataset_bytes / jobs.sample_bytes
    epochs = jobs.iterations * jobs.batch_size / samples
    runs = {(float(size), float(one)) for task in ONES_TASKS for size in task.runs for one in task.runs[size]}
    assert set(zip(samples.tolist(), np.round(epochs, 9).tolist(), strict=True)) == runs
    scheduler = Ones(pack(), epoch_unit="data_set")
    unknown = replace(jobs, dataset_bytes=np.where(np.arange(200) < 100, jobs.dataset_bytes, np.inf))
    scheduler.reset(Cluster.homogeneous(16, 4), unknown, np.random.default_rng(0))
    assert scheduler._epoch_samples[:100].tolist() == samples[:100].tolist()
    assert np.isnan(scheduler._epoch_samples[100:]).all()


def test_the_predictor_has_seen_the_artifacts_590_epochs():
    rows = earlier_job_rows()
    assert rows.shape == (590, 6)
    assert np.isfinite(rows).all()
    assert (rows[:, 2] / rows[:, 5]).max() == pytest.approx(69)  # epochs of the longest


def test_the_predictors_tanh_is_the_librarys():
    x = np.concatenate([np.linspace(-50, 50, 10001), [-1e-9, 1e300, -np.inf]])
    np.testing.assert_allclose([_tanh(one) for one in x], np.tanh(x), rtol=0, atol=1e-14)


def test_who_holds_which_gpus():
    assert gpus_by_job(np.array([3, -1, 0, 3])) == {0: (2,), 3: (0, 3)}
    assert gpus_by_job(np.array([[3, 1], [-1, -1], [1, -1]])) == {1: (0, 2), 3: (0,)}  # two places on each
    assert gpus_by_job(np.full(3, FREE)) == {}


def test_the_predictors_digamma_is_the_librarys():
    x = np.concatenate([np.geomspace(1e-3, 1e3, 1000), [1.0, 6.0, 6.5]])
    np.testing.assert_allclose([_digamma(one) for one in x], digamma(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("epochs", "progress"), [(0.25, 0.1), (4.0, 0.1), (4.0, 0.3)])
def test_the_predictor_maximises_the_likelihood_of_the_progress(epochs, progress):
    """Rows that are all alike: b is where the density Beta(epochs, b) at the progress is largest."""
    likeliest = minimize_scalar(lambda b: -beta.logpdf(progress, epochs, b), bounds=(1.0, 200.0)).x
    predictor = BetaProgress(epochs=1000, learning_rate=0.02, weight_decay=1e-9)
    predictor.reset(np.random.default_rng(3))
    features = np.ones((64, 5))
    predictor.fit(features, np.full(64, epochs), np.full(64, progress))
    assert predictor.beta(features[:1], np.full(1, epochs))[0] == pytest.approx(likeliest, rel=0.01)
    assert predictor._network.shape == (64 * (5 + 1) + 64 + 1,)  # 5 inputs, 64 units, 1 output, and biases


class Watched(BetaProgress):
    """A predictor that remembers what it was fitted to."""

    def fit(self, features, epochs, progress):
        """Remember the rows of the fit."""
        self.seen = np.column_stack([features, progress])
        super().fit(features, epochs, progress)


@pytest.mark.parametrize("earlier", [True, False])
def test_fits_begin_with_the_artifacts_rows_or_with_those_of_the_first_jobs(earlier):
    predictor = Watched()
    scheduler = Ones(pack(), predictor, epoch_seconds=10.0, round_seconds=5.0, earlier_jobs=earlier)
    simulated(
        scheduler, Cluster.homogeneous(1, 2), elastic([1, 1, 1], [50.0, 60.0, 300.0], high=1), perfect()
    )
    rows = predictor.seen
    assert (len(rows) >= 590) == earlier
    assert (rows[:, 2] >= 1.0).all()  # after an epoch or more
    assert ((rows[:, 5] > 0.0) & (rows[:, 5] <= 1.0)).all()
