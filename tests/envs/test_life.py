"""What happens to jobs besides running: they turn predictable, fail, are withdrawn, wait for stragglers."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, ideal
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.failures import Failures, no_failures, recorded_capacity
from ringyard.performance import composite
from ringyard.profiles import profile
from ringyard.state.records import JobOutcome
from small_simulations import arrived, specs

INF = float("inf")


def test_a_job_becomes_predictable_at_its_share_of_life():
    jobs = JobTable.from_columns([0.0, 0.0], [1, 1], [100.0, 100.0])
    jobs = replace(jobs, predictable_from=np.array([0.25, INF]), prediction_factor=np.array([1.5, 1.0]))
    sim = arrived(Cluster.homogeneous(1, 2), jobs, ideal())
    sim.apply([Allocation(0, (0,)), Allocation(1, (1,))])
    assert np.isnan(sim.view().predicted_seconds).all()
    sim.advance()
    assert sim.now == 25.0  # a decision point of its own
    assert sim.view().predicted_seconds[0] == pytest.approx(75.0 * 1.5)
    assert np.isnan(sim.view().predicted_seconds[1])
    sim.advance()
    assert sim.now == 100.0


def test_cancelled_and_failed_jobs_keep_their_ends():
    jobs = JobTable.from_columns([0.0, 0.0, 0.0, 0.0], [1, 1, 1, 1], [100.0, 100.0, 20.0, 30.0])
    jobs = replace(
        jobs,
        cancel_seconds=np.array([10.0, 12.0, INF, INF]),
        outcome=np.array([0, 0, int(JobOutcome.FAILED), int(JobOutcome.CANCELLED)]),
    )
    sim = arrived(Cluster.homogeneous(1, 3), jobs, ideal())
    sim.apply([Allocation(0, (0,)), Allocation(2, (1,)), Allocation(3, (2,))])
    ends = []
    while not sim.done:
        sim.advance()
        ends.append(sim.now)
    assert ends == [10.0, 12.0, 20.0, 30.0]  # job 1 was withdrawn while it waited
    outcomes = sim.state.jobs["outcome"][0, :4].tolist()
    assert outcomes == [JobOutcome.CANCELLED, JobOutcome.CANCELLED, JobOutcome.FAILED, JobOutcome.CANCELLED]
    assert sim.metrics().mean_jct == pytest.approx((10 + 12 + 20 + 30) / 4)


@pytest.mark.parametrize(("checkpoint", "lost"), [(INF, "all"), (1e-6, "nothing"), (7.0, "since the last")])
def test_a_failure_costs_the_progress_since_the_last_checkpoint(checkpoint, lost):
    jobs = JobTable.from_columns([0.0], [1], [1000.0])
    failures = Failures(100.0, 10.0, checkpoint)
    sim = arrived(Cluster.homogeneous(1, 1), jobs, ideal(), failures=failures, seed=3)
    begin = sim.now
    sim.apply([Allocation(0, (0,))])
    sim.advance()
    assert not sim.view().servers_up[0]
    ran = sim.now - begin
    kept = {"all": 0.0, "nothing": ran, "since the last": np.floor(ran / 7.0) * 7.0}[lost]
    assert sim.view().predicted_iterations[0] == pytest.approx(1000.0 - kept, abs=1e-5)
    assert sim.view().waiting.tolist() == [0]
    assert sim.view().num_free_gpus == 0
    failed_at = sim.now
    sim.advance()
    assert sim.view().servers_up[0]
    assert sim.now > failed_at
    assert sim.view().num_free_gpus == 1


def test_without_a_checkpoint_a_preemption_costs_as_much_as_a_failure():
    jobs = JobTable.from_columns([0.0, 12.0], [1, 1], [100.0, 1.0])
    failures = replace(no_failures(), checkpoint_seconds=5.0, checkpoint_on_preemption=False)
    sim = arrived(Cluster.homogeneous(1, 1), jobs, ideal(), failures=failures)
    sim.apply([Allocation(0, (0,))])
    sim.advance()
    sim.apply([Allocation(0, ()), Allocation(1, (0,))])
    assert sim.view().predicted_iterations[0] == 90.0  # of 88 that were left
    sim.advance()
    sim.apply([Allocation(0, (0,))])
    sim.advance()
    assert sim.now == 103.0


def test_servers_come_and_go_as_recorded(tmp_path):
    file = tmp_path / "capacity.csv"
    rows = ["x,0,1", "x,10,2", "x,30,0", "x,35,2", "x,60,end", "y,0,2", "y,9,2"]
    rows += ["z,5,0", "z,10,1", "z,20,0", "z,35,end"]
    file.write_text("\n".join(["trace,second,nodes", *rows]))
    failures = recorded_capacity(str(file), "x", 2, 8.0)
    assert failures.outages == ((30.0, 35.0), (0.0, 10.0, 30.0, 35.0))
    assert recorded_capacity(str(file), "z", 1, 8.0).outages == ((15.0, 35.0),)  # lasts over the end
    assert failures.period_seconds == 60.0
    jobs = JobTable.from_columns([0.0, 1e6], [1, 1], [1.0, 1.0])
    up, changes = [], []
    for seed in range(20):
        sim = arrived(Cluster.homogeneous(2, 1), jobs, ideal(), failures=failures, seed=seed)
        up.append(sim.view().servers_up.tolist())
        while sim.now < 100.0:
            sim.advance()
            changes.append((sim.now + sim.state.clusters["outage_offset_seconds"][0]) % 60)
    assert {tuple(one) for one in up} == {(True, True), (True, False), (False, False)}
    assert set(np.round(changes, 6) % 60) == {0.0, 10.0, 30.0, 35.0}
    for words, message in (
        ((str(file), "y", 2), r"failures.trace is 'y'; expected a series of the file that `end` closes"),
        ((str(file), "x", 3), r"failures.num_servers is 3; expected at most 2 for x"),
        (
            (str(tmp_path / "no"), "x", 2),
            r"failures.path is .* expected a CSV with columns trace, second, nodes",
        ),
    ):
        with pytest.raises(ConfigurationError, match=message):
            recorded_capacity(*words, 8.0)
    with pytest.raises(
        ConfigurationError, match=r"failures.outages has 2 rows; expected one for each of the 1"
    ):
        arrived(Cluster.homogeneous(1, 1), jobs, ideal(), failures=failures)
    with pytest.raises(
        ConfigurationError, match=r"failures.outages\[0\] is \(3.0,\); expected an even number"
    ):
        Failures(INF, 1.0, INF, outages=((3.0,),), period_seconds=9.0)


def test_failures_are_the_same_whatever_is_scheduled():
    jobs = JobTable.from_columns([0.0] * 4, [1, 1, 2, 2], [500.0] * 4)
    seen = []
    for decision in ([Allocation(0, (0,)), Allocation(1, (1,))], [Allocation(2, (0, 1))]):
        sim = arrived(
            Cluster.homogeneous(2, 2),
            jobs,
            ideal(),
            failures=Failures(200.0, 50.0, INF),
            seed=9,
            round_seconds=40.0,
        )
        sim.apply(decision)
        changes = []
        up = sim.view().servers_up.tolist()
        while sim.now < 1500:
            sim.advance()
            if sim.view().servers_up.tolist() != up:
                up = sim.view().servers_up.tolist()
                changes.append((sim.now, up))
        seen.append(changes)
    assert len(seen[0]) > 4
    assert seen[0] == seen[1]


def test_up_and_down_times_have_their_means():
    jobs = JobTable.from_columns([0.0], [1], [1e9])
    sim = arrived(
        Cluster.homogeneous(40, 1),
        jobs,
        ideal(),
        failures=Failures(300.0, 100.0, INF),
        seed=1,
        round_seconds=1e3,
    )
    up, begin = 0.0, sim.now
    for _ in range(6000):
        here, count = sim.now, int(sim.view().servers_up.sum())
        sim.advance()
        up += count * (sim.now - here)
    assert up / (40 * (sim.now - begin)) == pytest.approx(0.75, abs=0.03)


def test_stragglers_slow_gangs_alone():
    jobs = JobTable.from_columns([0.0] * 200, [4] * 100 + [1] * 100, [100.0] * 200)
    performance = composite(INF, INF, straggler_cv=0.1)
    sim = arrived(Cluster.homogeneous(100, 5), jobs, performance, seed=2)
    sim.apply([Allocation(j, tuple(range(5 * j, 5 * j + 4))) for j in range(100)])
    sim.apply([Allocation(100 + j, (5 * j + 4,)) for j in range(100)])
    pace = sim.state.jobs["iteration_seconds"][0, :200]
    assert (pace[100:] == 1.0).all()
    assert (pace[:100] >= 1.0).all()
    # the largest of four standard normals is 1.03 on average
    assert pace[:100].mean() == pytest.approx(1.1, abs=0.02)


# curves


def test_learning_curves_rise_to_the_published_metric():
    jobs = specs((1, "resnet50_imagenet"))
    sim = arrived(Cluster.homogeneous(1, 1), jobs, composite(INF, INF), round_seconds=1.0)
    sim.apply([Allocation(0, (0,))])
    metric, loss = [], []
    while not sim.done:
        metric.append(sim.view().validation_metric[0])
        loss.append(sim.view().training_loss[0])
        sim.advance()
    assert np.isnan(metric[0])
    assert loss[0] == 1.0
    own = profile("resnet50_imagenet")
    assert metric[-1] == pytest.approx(own.final_metric, abs=0.1)
    assert np.nanmean(metric[:20]) < np.nanmean(metric[-20:])
    assert np.mean(loss[:20]) > np.mean(loss[-20:])
    assert sim.view().completed_iterations[0] == pytest.approx(sim.state.jobs["total_iterations"][0, 0])


def test_waiting_for_ever_is_an_error_even_if_servers_fail():
    jobs = JobTable.from_columns([0.0], [1], [10.0])
    sim = arrived(Cluster.homogeneous(1, 1), jobs, ideal(), failures=Failures(100.0, 10.0, INF))
    with pytest.raises(SchedulerError, match="start a waiting job"):
        sim.advance()
