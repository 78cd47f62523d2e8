"""Generators against the figures they were fitted to; readers against the files of each shape."""

import json
from dataclasses import replace

import numpy as np
import pytest

from conftest import leaf
from ringyard import Cluster, JobTable
from ringyard.errors import ConfigurationError, WorkloadError, WorkloadWarning
from ringyard.jobs import HistoricalJobs
from ringyard.workloads import (
    Arrivals,
    GadgetJobs,
    LogNormalDurations,
    ModelMix,
    Replay,
    Sizes,
    read_csv,
    read_helios,
    read_philly,
    scale_to_load,
)
from ringyard.workloads.readers import describe_trace

DAY = 86400.0


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 2.22])
def test_gaps_have_the_wanted_rate_and_variation(cv, rng):
    gaps = np.diff(Arrivals(cv=cv).times(200_000, 0.5, rng))
    assert gaps.mean() == pytest.approx(2.0, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.04)


def test_diurnal_arrivals_follow_the_clock(rng):
    factors = [0.2] * 12 + [1.8] * 12
    times = Arrivals(cv=1.0, hourly_factors=factors).times(300_000, 0.05, rng)
    assert (np.diff(times) >= 0).all()
    assert len(times) / times[-1] == pytest.approx(0.05, rel=0.03)
    # the day starts at a random hour: find the phase that separates busy from quiet halves best
    hours = (times / 3600.0) % 24
    busiest = max(np.mean((hours - shift) % 24 < 12) for shift in np.arange(0, 24, 0.25))
    assert busiest == pytest.approx(0.9, abs=0.02)


def test_log_normal_durations(rng):
    draws = LogNormalDurations(6.0, 1.5).draw(np.ones(200_000), rng)
    assert np.log(draws).mean() == pytest.approx(6.0, abs=0.02)
    assert np.log(draws).std() == pytest.approx(1.5, abs=0.02)
    held = LogNormalDurations(6.0, 3.0, 10.0, 1000.0).draw(np.ones(1000), rng)
    assert held.min() == 10.0
    assert held.max() == 1000.0


@pytest.mark.parametrize(
    ("name", "mean_gpus", "share_of_one", "median"),
    # trace_facts.csv: gpus_mean, frac_1gpu, dur_p50
    [
        ("philly_like", 1.304, 0.9317, 1144),
        ("helios_like", 6.736, 0.5184, 204),
        ("pai_like", 4.969, 0.7701, 618),
    ],
)
def test_generators_match_the_published_facts(name, mean_gpus, share_of_one, median):
    workload = leaf("workload", name, "workload.num_jobs=60000")
    jobs = workload.sample(Cluster.homogeneous(200, 8), np.random.default_rng(0))
    # the 16 commonest sizes carry most of the mass: the mean of the rest is what is missing
    assert jobs.num_gpus.mean() == pytest.approx(mean_gpus, rel=0.2)
    assert (jobs.num_gpus == 1).mean() == pytest.approx(share_of_one, abs=0.03)
    assert np.median(jobs.duration_seconds) == pytest.approx(median, rel=0.1)


def test_load_is_the_offered_load():
    workload = leaf("workload", "poisson", "workload.num_jobs=40000", "workload.load=0.7")
    cluster = Cluster.homogeneous(16, 4)
    jobs = workload.sample(cluster, np.random.default_rng(1))
    work = (jobs.num_gpus * jobs.duration_seconds).sum()
    assert work / (cluster.num_gpus * jobs.submit_seconds[-1]) == pytest.approx(0.7, rel=0.1)


def test_published_mix():
    jobs = leaf("workload", "ada_srsf").sample(Cluster.homogeneous(16, 4), np.random.default_rng(0))
    sizes, counts = np.unique(jobs.num_gpus, return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {
        1: 80,
        2: 14,
        4: 26,
        8: 30,
        16: 8,
        32: 2,
    }
    assert jobs.iterations.min() >= 1000
    assert jobs.iterations.max() <= 6000
    assert jobs.submit_seconds[-1] <= 1200


def test_models_are_drawn_by_size(rng):
    jobs = JobTable.from_columns(np.zeros(2000), [1, 8] * 1000, np.ones(2000))
    mix = ModelMix({1: {"vgg16": 1.0}, 4: {"lstm": 3.0, "resnet50": 1.0}})
    drawn = mix.assign(jobs, rng)
    assert (drawn.gradient_bytes[jobs.num_gpus == 1] == 526.4e6).all()
    large = drawn.gradient_bytes[jobs.num_gpus == 8]
    assert (large == 251.8e6).mean() == pytest.approx(0.75, abs=0.05)
    with pytest.raises(ConfigurationError, match="unknown model"):
        ModelMix({1: {"nope": 1.0}})


def table(count=100):
    submit = np.arange(count) * 10.0
    return JobTable.from_columns(submit, np.tile([1, 2, 8, 16], count // 4), np.full(count, 30.0))


def test_the_past_of_a_window_is_what_had_ended(rng):
    names = np.array(["a", "b"])
    trace = replace(table(), duration_seconds=np.arange(100) % 7 * 40.0 + 5.0, vc=np.tile(names, 50))
    with pytest.warns(WorkloadWarning, match="left out 25 of 100 jobs"):
        replay = Replay(trace, ModelMix(), window_jobs=10, load=3.0, part=(0.3, 0.6), max_gpus=8)
    kept = trace.rows(trace.num_gpus <= 8)
    starts = set()
    for _ in range(30):
        window = replay.sample(Cluster.homogeneous(4, 4), rng)
        first = int(np.flatnonzero(kept.job_id == window.job_id[0])[0])
        starts.add(first)
        assert 22 <= first
        assert first + 10 <= 45
        ends = kept.submit_seconds + kept.duration_seconds
        ended = [j for j in np.argsort(ends, kind="stable") if ends[j] <= kept.submit_seconds[first]]
        assert window.past.run_seconds.tolist() == kept.duration_seconds[ended].tolist()
        assert window.past.vc.tolist() == kept.vc[ended].tolist()
        assert window.past.num_gpus.tolist() == kept.num_gpus[ended].tolist()
        assert window.rows(slice(0, 3)).past is window.past
    assert len(starts) > 5
    assert replay.num_jobs == 10
    assert len(Replay(table(), ModelMix(), part=(0.9, 1.0)).sample(Cluster((16,)), rng)) == 10
    with pytest.raises(ConfigurationError, match=r"workload.part is \[0.5, 0.5\], which is none of 100 jobs"):
        Replay(table(), ModelMix(), part=(0.5, 0.5))
    with pytest.raises(WorkloadError, match=r"row 1 of JobTable.past has run_seconds 0.0; expected .* > 0"):
        HistoricalJobs(np.array([1, 1]), np.array([2.0, 0.0]), names, names)
    with pytest.raises(WorkloadError, match="columns of"):
        HistoricalJobs(np.array([1]), np.array([2.0]), names, names)


def test_windows(rng):
    cluster = Cluster.homogeneous(4, 4)
    window = Replay(table(), ModelMix(), window_jobs=10, start_seconds=200.0).sample(cluster, rng)
    assert len(window) == 10
    assert window.job_id[0] == 20
    assert window.submit_seconds[0] == 0
    longer = Replay(table(), ModelMix(), window_jobs=10, start_seconds=200.0, extra_seconds=1.5)
    assert (longer.sample(cluster, rng).duration_seconds == window.duration_seconds + 1.5).all()
    by_time = Replay(table(), ModelMix(), window_seconds=95.0)
    assert by_time.num_jobs == 10
    assert {len(by_time.sample(cluster, rng)) for _ in range(20)} == {10}
    with pytest.warns(WorkloadWarning, match=r"left out 50 of 100 jobs: they ask for more than 2 GPUs"):
        small = Replay(table(), ModelMix(), max_gpus=2)
    assert small.sample(cluster, rng).num_gpus.max() == 2
    with pytest.raises(WorkloadError, match="fewer"):
        Replay(table().rows(table().num_gpus > 4), ModelMix(), max_gpus=2)


def test_load_scaling_of_a_window():
    cluster = Cluster.homogeneous(4, 4)
    scaled = scale_to_load(table(), cluster, 2.0)
    work = (scaled.num_gpus * scaled.duration_seconds).sum()
    assert work / (16 * scaled.submit_seconds[-1]) == pytest.approx(2.0)


def test_helios_release_shape(tmp_path):
    file = tmp_path / "cluster_log.csv"
    file.write_text(
        "job_id,user,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration\n"
        "5,a,8,4,1,COMPLETED,2020-04-01 00:01:00,2020-04-01 00:02:00,2020-04-01 00:03:00,60\n"
        "4,a,0,4,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:00:20,2020-04-01 00:00:30,10\n"
        "3,b,1,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:10:00,600\n"
    )
    with pytest.warns(WorkloadWarning, match=r"left out 1 of 3 jobs: 1 without GPUs \(the first is line 3\)"):
        jobs = read_helios(file)
    assert jobs.job_id.tolist() == [3, 5]
    assert jobs.submit_seconds.tolist() == [0, 60]
    assert jobs.num_gpus.tolist() == [1, 8]
    assert jobs.duration_seconds.tolist() == [600, 60]


def test_philly_release_shape(tmp_path):
    detail = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}]
    log = [
        {
            "jobid": "b",
            "submitted_time": "2017-10-01 00:00:30",
            "attempts": [
                {"start_time": "2017-10-01 00:01:00", "end_time": "2017-10-01 00:02:00", "detail": detail},
                {"start_time": "2017-10-01 00:03:00", "end_time": "2017-10-01 00:03:30", "detail": detail},
            ],
        },
        {
            "jobid": "a",
            "submitted_time": "2017-10-01 00:00:00",
            "attempts": [{"start_time": "2017-10-01 00:00:05", "end_time": None, "detail": detail}],
        },
        {"jobid": "c", "submitted_time": "2017-10-01 00:00:40", "attempts": []},
    ]
    file = tmp_path / "cluster_job_log"
    file.write_text(json.dumps(log))
    with pytest.warns(
        WorkloadWarning, match="left out 2 of 3 jobs: 1 without GPUs .*, 1 without a positive run"
    ):
        jobs = read_philly(file)
    assert jobs.num_gpus.tolist() == [3]
    assert jobs.duration_seconds.tolist() == [90]
    file.write_text("{")
    with pytest.raises(WorkloadError, match="JSON"):
        read_philly(file)


def test_sources_and_reports(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_time,gpus,duration\n1,0,2,5\n2,86400,4,7\n")
    report = describe_trace("csv", str(file)).facts
    assert (report["jobs"], report["span"]) == ("2", "24.0 hours")
    assert report["GPUs per job"] == "mean 3.00, largest 4"
    with pytest.raises(ConfigurationError, match="no trace 'nope'"):
        describe_trace("nope", str(file))


def test_csv_may_be_sorted_on_demand(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_time,gpus,duration\n1,9,2,5\n2,3,4,7\n")
    with pytest.raises(WorkloadError, match="ascending"):
        read_csv(file)
    assert read_csv(file, sort=True).job_id.tolist() == [2, 1]


@pytest.mark.parametrize(
    "bad", [{"cv": -1.0}, {"hourly_factors": [1.0] * 23}, {"hourly_factors": [0.0] * 24}]
)
def test_bad_arrivals(bad):
    with pytest.raises(ConfigurationError, match="expected"):
        Arrivals(**bad)


def test_sizes_that_do_not_fit(rng):
    with pytest.raises(ConfigurationError, match="expected a size of at most 4"):
        Sizes({8: 1.0}).draw(3, 4, rng)


def test_jobs_of_gadget_outlast_their_slots(rng):
    cluster = Cluster.homogeneous(50, 4)
    jobs = GadgetJobs(num_jobs=100, slots=200, slot_seconds=300.0).sample(cluster, rng)
    assert (jobs.cancel_seconds == 60_000.0).all()
    work = jobs.duration_seconds * jobs.num_gpus / 300.0
    assert work == pytest.approx(np.round(work))
    assert (work.min() >= 1000, work.max() <= 6000) == (True, True)
    assert (set(jobs.num_gpus) <= set(range(1, 11)), set(jobs.min_gpus)) == (True, {1})
