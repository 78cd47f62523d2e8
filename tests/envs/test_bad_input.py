"""Wrong numbers, types and shapes in Python objects: refused with the job or the parameter by name."""

from dataclasses import fields, replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError, PlacementError, SchedulerError, WorkloadError
from ringyard.profiles import read_profile

NAN, INF = float("nan"), float("inf")


def jobs():
    return JobTable.from_columns([0.0, 1.0], [1, 2], [3.0, 4.0], [7, 8])


TEXTS = ("job_id", "vc", "user")
NUMBERS = [field.name for field in fields(JobTable) if field.name not in (*TEXTS, "past")]


@pytest.mark.parametrize("column", NUMBERS)
def test_every_column_refuses_what_it_cannot_be_and_names_the_job(column):
    values = getattr(jobs(), column)
    whole = values.dtype.kind == "i"
    wrong = [0.5, 7e9, -2.0, NAN] if whole else [NAN, -1.0, -INF]
    wrong = {"iterations": wrong[1:]}.get(column, wrong)  # NaN: not given
    for value in wrong:
        changed = values.astype(np.float64)
        changed[1] = value
        with pytest.raises(WorkloadError, match=rf"^job .* \(row 1\) has {column} .*; expected"):
            replace(jobs(), **{column: changed}).check()
    shapes = (
        () if column == "submit_seconds" else (values[:1], values[None])
    )  # it says how many jobs there are
    for odd in (values.tolist(), values.astype(str), values != 0, *shapes):
        with pytest.raises(WorkloadError, match=f"column {column} .*; expected"):
            replace(jobs(), **{column: odd}).check()


@pytest.mark.parametrize("column", TEXTS)
def test_every_column_of_texts_refuses_what_it_cannot_be(column):
    long = np.array(["x", "y" * 129])
    with pytest.raises(WorkloadError, match=rf"^job .* \(row 1\) has {column} yyy.*; expected at most 128"):
        replace(jobs(), **{column: long}).check()
    bad = (["a", "b"], np.array([True, False]), np.array(["a"]), np.array([["a", "b"]]), np.array([0.5, 1.0]))
    for odd in (*bad, np.array(["a", 3], dtype=object)):
        with pytest.raises(WorkloadError, match=f"{column} .*; expected"):
            replace(jobs(), **{column: odd}).check()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kind", 7),
        ("outcome", 99),
        ("fixed_fraction", 2.0),
        ("min_gpus", 0),
        ("min_gpus", 3),
        ("max_gpus", 1),
        ("min_batch", 9.0),
        ("parameter_servers", 1),
        ("model_ids", 10**6),
        ("cancel_seconds", 1.0),
        ("submit_seconds", 1e300),
        ("duration_seconds", INF),
        ("compute_seconds", 1e-300),
        ("memory_bandwidth", INF),
    ],
)
def test_columns_that_contradict_or_overflow(column, value):
    changed = getattr(jobs(), column).copy()
    changed[1] = value
    with pytest.raises(WorkloadError, match=r"^job 8 \(row 1\) has .*; expected"):
        replace(jobs(), **{column: changed}).check()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((["a"], [1], [1.0]), "row 0 has submit_seconds 'a'; expected a number"),
        (([0.0, 1.0], [1, 1.5], [1.0, 1.0]), "row 1 has num_gpus 1.5; expected a whole number"),
        (([0.0], [True], [1.0]), "num_gpus True"),
        (([0.0], [None], [1.0]), "num_gpus None"),
        (([0.0], [10**12], [1.0]), "num_gpus 1000000000000"),
        (([0.0, 0.0], [1, 1], [1.0, 1.0], [1, 2**63]), "row 1 has job_id 9.*; expected a whole number"),
        (([0.0, 0.0], [1, 1], [1.0, 1.0], [1, 10**30]), "row 1 has job_id 1000.*; expected a whole number"),
        (([0.0], [1], [1.0], [0.5]), "job_id 0.5"),
        ((0.0, 1, 1.0), r"submit_seconds has shape \(\)"),
        (([[0.0], [1.0, 2.0]], [1], [1.0]), "submit_seconds"),
    ],
)
def test_columns_are_taken_whole_or_not_at_all(columns, said):
    with pytest.raises(WorkloadError, match=said):
        JobTable.from_columns(*columns)


def test_half_a_core_is_not_none():
    with pytest.raises(WorkloadError, match=r"cores_per_worker 0.5; expected a whole number"):
        JobTable.cpu_only([0.0], [0.5], [1.0], [0.0])


def test_numbers_of_numpy_are_numbers():
    small = JobTable.from_columns(
        np.zeros(1, np.float32), np.ones(1, np.int8), [np.float16(2)], np.uint64([2**63 - 1])
    )
    assert small.job_id[0] == 2**63 - 1
    assert small.num_gpus.dtype == np.int64


@pytest.mark.parametrize(
    "allocation",
    [
        lambda: Allocation(0, np.array([0.0, 1.5])),
        lambda: Allocation(0, 3),
        lambda: Allocation(0, "01"),
        lambda: Allocation(0, (0, None)),
        lambda: Allocation(0, (0, 10**12)),
        lambda: Allocation(0.5, (0, 1)),
        lambda: Allocation(True, (0, 1)),
        lambda: Allocation(None, (0, 1)),
        lambda: Allocation(0, (0, 1), cores_per_worker=0.5),
        lambda: Allocation(0, (0, 1), batch_size=NAN),
        lambda: Allocation(0, (0, 1), memory_bandwidth_cap="all"),
        lambda: Allocation(0, parameter_servers=-1),
        lambda: {"job": 0, "gpu_ids": (0, 1)},
    ],
)
def test_allocations_that_are_none(allocation):
    sim = Simulator(Cluster((4,)), JobTable.from_columns([0.0], [2], [5.0]), ideal())
    sim.advance()
    with pytest.raises(PlacementError, match="; expected "):
        sim.apply([allocation()])
    sim.apply([Allocation(np.int64(0), np.array([0, 1]))])
    assert not sim.view().num_free_gpus > 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Cluster((10**12,)),
        lambda: Cluster.homogeneous(10**12, 1),
        lambda: Cluster.homogeneous(10**6, 10**3),
        lambda: Cluster((4,), jobs_per_gpu=NAN),
        lambda: Cluster((4.5,)),
        lambda: Cluster((True,)),
        lambda: Cluster("44"),
        lambda: Cluster.of_groups([{"num_servers": "2", "gpus_per_server": 1}]),
        lambda: Cluster.drawn(2, [], 0),
    ],
)
def test_clusters_too_large_or_of_the_wrong_kind_are_refused_before_memory_is_taken(make):
    with pytest.raises(ConfigurationError, match=r"^cluster.*; expected "):
        make()


def test_a_cluster_takes_lists_and_arrays():
    assert Cluster([4, 4]) == Cluster(np.array([4, 4])) == Cluster((np.int8(4), 4))
    assert hash(Cluster([4, 4])) == hash(Cluster((4, 4)))


@pytest.mark.parametrize("bad", [NAN, 0, -1.0, "1", True, INF])
def test_rounds_of_no_length(bad):
    jobs = JobTable.from_columns([0.0], [1], [1.0])
    with pytest.raises(ConfigurationError, match=r"round_seconds is .*; expected"):
        Simulator(Cluster((1,)), jobs, ideal(), round_seconds=bad)


def test_priorities_are_one_number_a_job():
    sim = Simulator(Cluster((1,)), JobTable.from_columns([0.0], [1], [1.0]), ideal())
    for bad in ([1.0, 2.0], ["first"], [NAN], 3.0):
        with pytest.raises(SchedulerError, match="expected 1 numbers"):
            sim.prioritise(bad)


PROFILE = "name: m\ngradient_bytes: 1e9\nbatch_size: 32\nsources: {}\n"
GPUS = "gpus: {v100: {fixed_seconds: 0, sample_seconds: 1e-3, source: mine}%s}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("step_coefficients: [1, 2]", "step_coefficients.*expected a longer list"),
        ("min_batch: [1]", "min_batch is"),
        ("noise_scale: .nan", "noise_scale is nan"),
        ("task: {a: 1}", "task is"),
        ("parameters: true", "parameters is True"),
        ("7: 8", "unknown field"),
        ("a: [", "cannot be read as yaml"),
        ("a: \x00", "cannot be read as yaml"),
    ],
)
def test_profiles_of_wrong_types_name_file_and_field(tmp_path, line, said):
    file = tmp_path / "m.yaml"
    file.write_text(PROFILE + GPUS % "")
    assert read_profile(file).gradient_bytes == 1e9
    file.write_text(PROFILE + GPUS % "" + line)
    with pytest.raises(ConfigurationError, match=rf"m\.yaml.*{said}"):
        read_profile(file)
    with pytest.raises(ConfigurationError, match="cannot be read as yaml"):
        read_profile(tmp_path)


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ("3", "gpus.t4: unknown field 3"),
        ("{fixed_seconds: 0, sample_seconds: 1}", "gpus.t4: field source is missing"),
        ("{fixed_seconds: 0, sample_seconds: fast, source: mine}", "gpus.t4: .*sample_seconds is 'fast'"),
        ("{fixed_seconds: 0, sample_seconds: 0, source: mine}", "gpus.t4 has 0"),
        ("{fixed_seconds: 1, sample_seconds: 1, source: mine}", "v100.fixed_seconds is 0 .* t4"),
        ("{fixed_seconds: 0, sample_seconds: 1, speed: 2, source: mine}", "gpus.t4: unknown field {'speed'}"),
        (
            "{fixed_seconds: 0, sample_seconds: 1, sharing: {0: [1, 1]}, source: mine}",
            "sharing is 0.0; expected a number in .0, inf",
        ),
        ("{fixed_seconds: 0, sample_seconds: 1, sharing: {8: [1]}, source: mine}", "sharing.*a longer list"),
        ("{fixed_seconds: 0, sample_seconds: 1, sharing: {8: [1, -1]}, source: mine}", "sharing.* is -1.0"),
    ],
)
def test_figures_of_a_gpu_type_name_file_and_type(tmp_path, figures, said):
    file = tmp_path / "m.yaml"
    file.write_text(PROFILE + GPUS % f", t4: {figures}")
    with pytest.raises(ConfigurationError, match=rf"m\.yaml.*{said}"):
        read_profile(file)


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ("gpus: 3", "gpus is 3"),
        ("gpus: {t4: {fixed_seconds: 0, sample_seconds: 1, source: mine}}", "has no v100"),
        (
            GPUS % ", h9000: {fixed_seconds: 0, sample_seconds: 1, source: mine}",
            "names 'h9000'; expected some of",
        ),
        ("", "field gpus is missing"),
    ],
)
def test_gpu_types_of_a_profile(tmp_path, gpus, said):
    file = tmp_path / "m.yaml"
    file.write_text(PROFILE + gpus)
    with pytest.raises(ConfigurationError, match=rf"m\.yaml.*{said}"):
        read_profile(file)
