"""A few hundred malformed files, the ones that once gave tracebacks, and every wrong argument."""

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from attacks import malformed
from ringyard.errors import WorkloadError, WorkloadWarning
from ringyard.workloads import read_csv, read_helios, read_philly

HEAD = b"job_id,submit_time,gpus,duration\n"
RIGHT = HEAD + b"1,0,1,5\n2,1,2,7\n"
HELIOS = b"job_id,gpu_num,state,submit_time,duration\n"


@given(malformed.traces())
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_malformed_file_is_refused_or_read_as_a_table_that_makes_sense(tmp_path, trace):
    malformed.read(tmp_path, trace)


@pytest.mark.parametrize("name", malformed.leaves())
def test_every_argument_of_every_config_is_checked(name):
    assert malformed.misuse(*malformed.leaves()[name])["refused"] >= 0


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no readable|not a readable CSV"),
        (HEAD, "no rows"),
        (gzip.compress(RIGHT, mtime=0)[:-12], "cut short"),
        (gzip.compress(RIGHT, mtime=0)[:4], "cut short"),
        (b"PK\x03\x04" + RIGHT, "zip archive"),
        (b"PAR1" + RIGHT, "Parquet file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "pointer of Git LFS; `git lfs pull`"),
        (gzip.compress(b"jobs.csv".ljust(257, b"\0") + b"ustar" + RIGHT, mtime=0), "is a tar archive"),
        (RIGHT.decode().encode("utf-16-le"), "line 1 has a zero byte"),
        (RIGHT + b"3,\xff,1,1\n", "no UTF-8 text .line 4"),
        (RIGHT + b"3,9,\x00,1\n", "line 4 has a zero byte"),
        (RIGHT + b'3,9,"1,1\n', "not a readable CSV"),
        (RIGHT + b"\n3,9,1,1,1\n", "line 5 has 5 cells; expected 4"),
        (HEAD + b"1,0,1,5,9\n", "line 2 has 5 cells; expected 4"),
        (b"job_id,submit_time,gpus,duration,gpus\n1,0,1,5,2\n", "column 'gpus' twice"),
        (b"job_id\n1\n", "no column 'submit_time'"),
        (HEAD + b"1,0,1,5 s\n", "line 2: duration is '5 s'; expected a number, or a time such as 01:30:00"),
        (HEAD + b"1,0,1,1e400\n", "line 2: duration is '1e400'; expected a (run time of at most|number)"),
        (HEAD + b"1,0,True,5\n", "line 2: gpus is 'True'; expected a finite number"),
        (HEAD + b"1,0,1000000000000,5\n", "line 2: gpus is '1000000000000'; expected fewer than 2,147"),
    ],
)
def test_files_that_are_no_table_say_where(tmp_path, data, said):
    file = tmp_path / "jobs.csv"
    file.write_bytes(data)
    with pytest.raises(WorkloadError, match=rf"jobs\.csv: .*({said})"):
        read_csv(file)


@pytest.mark.parametrize("name", [".", "nothing.csv", "n" * 300, "a\0b"])
def test_what_is_no_file_says_so(tmp_path, name):
    with pytest.raises(WorkloadError, match=r"no such trace file|cannot be read"):
        read_csv(tmp_path / name)
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_csv("~nobody-of-this-name/jobs.csv")


def test_a_name_does_not_say_how_a_file_is_packed(tmp_path):
    for name, data in (
        ("plain.csv.gz", RIGHT),
        ("packed.csv", gzip.compress(RIGHT, mtime=0)),
        ("bom", b"\xef\xbb\xbf" + RIGHT),
    ):
        (tmp_path / name).write_bytes(data)
        assert read_csv(tmp_path / name).num_gpus.tolist() == [1, 2]


def test_large_job_ids_stay_apart(tmp_path):
    file = tmp_path / "jobs.csv"
    file.write_bytes(HEAD + b"9223372036854775806,0,1,5\n9223372036854775807,0,1,5\n")
    assert read_csv(file).job_id.tolist() == [2**63 - 2, 2**63 - 1]


def test_rows_without_a_date_are_counted(tmp_path):
    file = tmp_path / "cluster_log.csv"
    rows = [
        b"1,1,COMPLETED,2020-04-01 00:00:05,9",
        b"2,1,FAILED,never,9",
        b"3,0,COMPLETED,2020-04-01 00:00:00,9",
    ]
    file.write_bytes(HELIOS + b"\n".join([*rows, b"4,1,COMPLETED,2020-04-01 00:00:07,soon"]))
    with pytest.warns(
        WorkloadWarning,
        match=r"left out 3 of 4 jobs: 1 without GPUs \(the first is line 4\), 1 without a submission time"
        r" \(the first is line 3\), 1 without a number in duration \(the first is line 5\)",
    ):
        assert read_helios(file).job_id.tolist() == [1]
    file.write_bytes(HELIOS + b"1,1,COMPLETED,%s,9\n" % (b"9" * 30))
    with pytest.raises(WorkloadError, match="1 with a time out of range"):
        read_helios(file)


def test_time_zones_count(tmp_path):
    file = tmp_path / "cluster_log.csv"
    times = (b"2020-04-01T02:00:00+02:00", b"2020-04-01T01:00:00+00:00")
    file.write_bytes(HELIOS + b"".join(b"1,1,COMPLETED,%s,9\n" % time for time in times))
    assert read_helios(file).submit_seconds.tolist() == [0, 3600]


@pytest.mark.parametrize("text", ["{}", "3", "[3]", '[{"attempts": 3}]', '[{"attempts": {}}]', "[" * 10**5])
def test_job_logs_that_are_none(tmp_path, text):
    file = Path(tmp_path / "cluster_job_log")
    file.write_text(text)
    with pytest.raises(WorkloadError, match="cluster_job_log: "):
        read_philly(file)
