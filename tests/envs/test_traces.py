"""What readers make of traces, against reads of the same files by plain csv and json."""

import csv
import gzip
import json
import warnings
from collections import Counter

import numpy as np
import pytest

from conftest import shared
from ringyard import Allocation, Cluster, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError, WorkloadError, WorkloadWarning
from ringyard.observability import Observability
from ringyard.sim.metrics import job_times
from ringyard.state.records import JobOutcome
from ringyard.workloads import read_csv, read_helios, read_pai, read_philly
from ringyard.workloads.readers import describe_trace
from ringyard_agents.evaluation.results_frame import jobs_frame
from ringyard_baselines.scheduler import Scheduler, run

COMPLETED, FAILED, CANCELLED = JobOutcome.COMPLETED, JobOutcome.FAILED, JobOutcome.CANCELLED


def plain_rows(file):
    with gzip.open(file, "rt", newline="") as stream:
        return list(csv.DictReader(stream))


#: every state in the file and how its jobs end
VENUS = {"": COMPLETED, "COMPLETED": COMPLETED, "CANCELED": CANCELLED, "FAILED": FAILED, "NODE_FAIL": FAILED}


@pytest.mark.parametrize(
    ("read", "parts", "columns", "ends"),
    [
        (read_helios, ("helios", "venus_gpu_jobs.csv.gz"), ("submit_s", "num_gpus", "duration_s"), VENUS),
        (read_philly, ("philly", "philly_jobs.csv.gz"), ("submit_s", "num_gpus", "duration_s"), None),
        (
            read_pai,
            ("alibaba_pai_v2020", "pai_gpu_tasks_sample.csv.gz"),
            ("start_s", "num_gpus_roundedup", "duration_s"),
            None,
        ),
    ],
)
def test_real_traces_are_read_as_plain_csv_reads_them(read, parts, columns, ends):
    file = shared("data", "traces", *parts)
    rows = plain_rows(file)
    submit, gpus, duration = columns
    assert {name for name in rows[0] if name in ("state", "status")} == ({"state"} if ends else set())
    kept = [row for row in rows if int(row[gpus]) > 0 and float(row[duration]) > 0]
    kept.sort(key=lambda row: float(row[submit]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jobs = read(file)
    jobs.check()
    assert jobs.job_id.tolist() == [int(row["job_id"]) for row in kept]
    first = float(kept[0][submit])
    assert jobs.submit_seconds.tolist() == [float(row[submit]) - first for row in kept]
    assert jobs.num_gpus.tolist() == [int(row[gpus]) for row in kept]
    assert jobs.duration_seconds.tolist() == [float(row[duration]) for row in kept]
    assert jobs.vc.tolist() == [row.get("vc", "") for row in kept]
    assert jobs.user.tolist() == [row.get("user", "") for row in kept]
    said = []
    if len(kept) < len(rows):
        said.append(f"left out {len(rows) - len(kept):,} of {len(rows):,} jobs")
    if ends:
        states = Counter(row["state"] for row in rows)
        assert set(states) == set(ends)
        assert jobs.outcome.tolist() == [int(ends[row["state"]]) for row in kept]
        said.append(f"{states['']:,} of {len(rows):,} jobs have no state: taken as completed")
    else:
        assert not jobs.outcome.any()
    assert [str(one.message) for one in caught] == ([f"{file}: {'; '.join(said)}"] if said else [])


@pytest.mark.parametrize(
    ("read", "parts", "keys"),
    [
        (read_helios, ("helios", "venus_gpu_jobs.csv.gz"), {"vc": ["vcvGl"], "user": ["uH3om", "u60dh"]}),
        (read_philly, ("philly", "philly_jobs.csv.gz"), {"vc": ["6214e9", "103959"]}),
        (read_pai, ("alibaba_pai_v2020", "pai_gpu_tasks_sample.csv.gz"), {"role": ["ps"]}),
    ],
)
def test_where_keeps_what_plain_csv_finds(read, parts, keys):
    file = shared("data", "traces", *parts)
    rows = plain_rows(file)
    submit = next(name for name in ("submit_s", "start_s") if name in rows[0])
    low, high = np.quantile([float(row[submit]) for row in rows], [0.2, 0.95]).tolist()
    found = [row for row in rows if all(row[name] in values for name, values in keys.items())]
    found = sorted((r for r in found if low <= float(r[submit]) < high), key=lambda r: float(r[submit]))
    where = {**keys, "submit_s": [low, high], "cluster": None}
    with pytest.warns(WorkloadWarning, match=rf"where .* keeps {len(found):,} of {len(rows):,} rows$"):
        jobs = read(file, where=where)
    assert jobs.job_id.tolist() == [int(row["job_id"]) for row in found]
    assert jobs.submit_seconds[0] == 0


def test_numbers_of_the_command_line_find_names_that_look_like_numbers():
    file = shared("data", "traces", "philly", "philly_jobs.csv.gz")
    counts = Counter(row["vc"] for row in plain_rows(file))
    with pytest.warns(WorkloadWarning, match=r"where vc=\[.*6214e9.*\] keeps"):
        jobs = read_philly(file, where={"vc": [6214e9, 103959]})
    assert Counter(jobs.vc.tolist()) == {name: counts[name] for name in ("6214e9", "103959")}


HELIOS = "job_id,cluster,vc,user,gpu_num,state,submit_time,duration\n"
STATES = {
    "COMPLETED": COMPLETED,
    "CANCELLED": CANCELLED,
    "CANCELED": CANCELLED,
    "CANCELLED by 1001": CANCELLED,
    "canceled": CANCELLED,
    "FAILED": FAILED,
    "TIMEOUT": FAILED,
    "NODE_FAIL": FAILED,
    "OUT_OF_MEMORY": FAILED,
    "OUT_OF_ME+": FAILED,  # without -P sacct cuts words
}


def helios(tmp_path, *rows):
    """A cluster_log.csv of (cluster, vc, user, gpus, state), a minute apart; ids j0, j1, ..."""
    lines = [
        f"j{i},{cluster},{vc},{user},{gpus},{state},2020-04-01 {i // 60:02d}:{i % 60:02d}:00,60"
        for i, (cluster, vc, user, gpus, state) in enumerate(rows)
    ]
    file = tmp_path / "cluster_log.csv"
    file.write_text(HELIOS + "\n".join(lines) + "\n")
    return file


def test_every_state_of_slurm(tmp_path):
    file = helios(tmp_path, *(("Venus", "a", "u", 1, state) for state in STATES))
    assert read_helios(file).outcome.tolist() == list(STATES.values())


def test_states_that_do_not_say_how_a_job_ended_are_counted(tmp_path):
    states = ("COMPLETED", "VANISHED", "RUNNING", "", "VANISHED", "Odd", "PENDING")
    rows = [("Venus", "a", "u", 1, state) for state in states]
    file = helios(tmp_path, *rows, ("Venus", "a", "u", 0, "VANISHED"))
    with pytest.warns(WorkloadWarning) as caught:
        jobs = read_helios(file)
    assert jobs.job_id.tolist() == ["j0", "j1", "j3", "j4", "j5"]
    assert not jobs.outcome.any()
    (said,) = [str(one.message).partition("cluster_log.csv: ")[2] for one in caught]
    assert said == (
        "left out 3 of 8 jobs: 1 without GPUs (the first is line 9), 2 that had not ended (the first is"
        " line 4); 1 of 5 jobs have no state and 3 of 5 jobs have a state that is not known, 'VANISHED' (2),"
        " 'Odd' (1): taken as completed"
    )


def test_philly_log_has_ids_tenants_and_ends(tmp_path):
    attempt = {"start_time": "2017-10-01 00:00:00", "end_time": "2017-10-01 00:01:00"}
    attempt["detail"] = [{"gpus": ["a"]}]
    log = [
        {
            "jobid": f"application_{i}",
            "vc": vc,
            "user": user,
            "status": status,
            "submitted_time": f"2017-10-0{1 + i} 00:00:00",
            "attempts": [attempt],
        }
        for i, (vc, user, status) in enumerate(
            [("ab", "u1", "Pass"), ("6214e9", "u2", "Killed"), ("ab", "u2", "Failed"), ("ab", None, "Pass")]
        )
    ]
    file = tmp_path / "cluster_job_log"
    file.write_text(json.dumps(log))
    jobs = read_philly(file)
    assert jobs.job_id.tolist() == [job["jobid"] for job in log]
    assert jobs.vc.tolist() == ["ab", "6214e9", "ab", "ab"]
    assert jobs.user.tolist() == ["u1", "u2", "u2", ""]
    assert jobs.outcome.tolist() == [COMPLETED, CANCELLED, FAILED, COMPLETED]
    with pytest.warns(WorkloadWarning, match=r"where vc=ab, submit_s=\[2017-10-02,null\] keeps 2 of 4 rows"):
        jobs = read_philly(file, where={"vc": "ab", "submit_s": ["2017-10-02", None]})
    assert jobs.job_id.tolist() == ["application_2", "application_3"]
    assert jobs.submit_seconds.tolist() == [0, 86400]


def test_pai_tasks_of_one_job_share_its_id(tmp_path):
    file = tmp_path / "pai.csv"
    rows = ("7,ps,0,1,5,Terminated", "7,worker,1,2,5,Failed", "9,worker,2,1,5,Running")
    file.write_text("job_id,role,start_s,num_gpus_roundedup,duration_s,status\n" + "\n".join(rows))
    with pytest.warns(WorkloadWarning, match=r"left out 1 of 3 jobs: 1 that had not ended"):
        jobs = read_pai(file)
    assert jobs.job_id.tolist() == [7, 7]
    assert jobs.outcome.tolist() == [COMPLETED, FAILED]


def test_where_comes_before_rows_are_counted_and_names_rows_of_the_file(tmp_path):
    file = helios(
        tmp_path,
        ("Venus", "a", "u1", 0, "COMPLETED"),
        ("Earth", "a", "u1", 1, "COMPLETED"),
        ("Venus", "b", "u2", 0, "COMPLETED"),
        ("Venus", "b", "u1", 2, "CANCELED"),
    )
    with pytest.warns(WorkloadWarning) as caught:
        jobs = read_helios(file, where={"cluster": "Venus", "vc": "b"})
    assert jobs.job_id.tolist() == ["j3"]
    (said,) = [str(one.message).partition("cluster_log.csv: ")[2] for one in caught]
    assert said == (
        "where cluster=Venus, vc=b keeps 2 of 4 rows; left out 1 of 2 jobs: 1 without GPUs (the first is"
        " line 4)"
    )
    for window, there in (
        ([60, None], ["j1", "j3"]),
        (["2020-04-01 00:01:00", "2020-04-01T00:03:00"], ["j1"]),
        (["2020-04-01T02:01:00+02:00", 181.0], ["j1", "j3"]),
    ):
        with pytest.warns(WorkloadWarning, match="keeps"):
            assert read_helios(file, where={"submit_s": window}).job_id.tolist() == there


CSV = "job_id,submit_time,gpus,duration,team,who\n"


def user_file(tmp_path, *ids):
    rows = [f"{one},{10 * i},1,5,{'ab'[i % 2]},{i}" for i, one in enumerate(ids)]
    file = tmp_path / "jobs.csv"
    file.write_text(CSV + "\n".join(rows) + "\n")
    return file


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"tenant": "c"}, r"where\.tenant: no row has team 'c'; expected some of 'a' \(2\), 'b' \(1\)$"),
        ({"user": ["0", 9]}, r"where\.user: no row has who 9; expected some of '0' \(1\), '1'"),
        (
            {"cluster": "x"},
            r"where\.cluster is given, but there is no column 'cluster'; expected one of job_id, sub",
        ),
        ({"vc": "b"}, r"where\.vc is called workload\.reader\.where\.tenant now"),
        ({"queue": "x"}, r"where\.queue is given, but there is no column 'queue'"),
        (
            {"tenant": "b", "submit_s": [15, None]},
            r"no row meets where tenant=b, submit_s=\[15,null\] \(rows that meet each alone: tenant 1,"
            " submit_s 1; submit_s goes from 0 to 20",
        ),
        ({"submit_s": [3, 2]}, r"where\.submit_s is \[3, 2\]; expected \[from, to\], from before to"),
        ({"submit_s": [3]}, r"where\.submit_s is \[3\]; expected a longer list"),
        ({"submit_s": 3}, r"where\.submit_s is 3; expected a list"),
        ({"submit_s": ["2020-04-01", None]}, r"where\.submit_s is '2020-04-01'; expected seconds"),
        ({"vc": []}, r"where\.vc is \[\]; expected"),
        ({"vc": {"a": 1}}, r"where\.vc is \{'a': 1\}; expected"),
        ("vc", r"where is 'vc'; expected a mapping"),
    ],
)
def test_where_that_selects_nothing_says_what_there_is(tmp_path, where, said):
    file = user_file(tmp_path, 1, 2, 3)
    with pytest.raises((ConfigurationError, WorkloadError), match=said):
        read_csv(file, tenant="team", user="who", where=where)


def test_dates_that_are_none(tmp_path):
    file = helios(tmp_path, ("Venus", "a", "u", 1, "COMPLETED"))
    with pytest.raises(ConfigurationError, match=r"submit_s is 'May'; expected seconds, or a date"):
        read_helios(file, where={"submit_s": ["May", None]})


IDS = ["job-17", "0007", "7", "18446744073709551616", " x", "NA", '"a,b"', "1.50", "ü"]


def test_ids_of_csv_files_stay_as_they_are(tmp_path):
    jobs = read_csv(user_file(tmp_path, *IDS), tenant="team", user="who")
    assert jobs.job_id.tolist() == [
        "job-17",
        "0007",
        "7",
        "18446744073709551616",
        "x",
        "NA",
        "a,b",
        "1.50",
        "ü",
    ]
    assert jobs.vc.tolist() == ["a", "b"] * 4 + ["a"]
    assert jobs.user.tolist() == [str(i) for i in range(9)]
    whole = read_csv(user_file(tmp_path, -3, 2**63 - 1, 0))
    assert (whole.job_id.dtype, whole.job_id.tolist()) == (np.int64, [-3, 2**63 - 1, 0])
    assert whole.vc.tolist() == [""] * 3
    with pytest.warns(WorkloadWarning, match="where job_id=0007 keeps 1 of 9 rows"):
        assert read_csv(user_file(tmp_path, *IDS), where={"job_id": "0007"}).job_id.tolist() == ["0007"]


def test_long_numbers_are_not_rounded(tmp_path):
    file = user_file(tmp_path, 2**63 - 2, 2**63 - 1)
    with pytest.warns(WorkloadWarning, match="keeps 1 of 2"):
        assert read_csv(file, where={"job_id": 2**63 - 1}).job_id.tolist() == [2**63 - 1]


def test_ids_that_tell_no_jobs_apart(tmp_path):
    file = user_file(tmp_path, "a", "b", "a")
    with pytest.raises(WorkloadError, match=r"line 4: job_id is 'a', as in line 2; .*job_id=null numbers"):
        read_csv(file)
    assert read_csv(file, job_id=None).job_id.tolist() == [0, 1, 2]
    with pytest.raises(WorkloadError, match="line 3: job_id is ''; expected an id for each job"):
        read_csv(user_file(tmp_path, "a", "", "c"))
    with pytest.raises(WorkloadError, match=r"line 3: job_id is 'xxx.*; expected at most 128 characters"):
        read_csv(user_file(tmp_path, "a", "x" * 129))
    with pytest.raises(WorkloadError, match="no column 'name'"):
        read_csv(file, job_id="name")


def test_jobs_that_are_added_leave_ids_alone():
    helpers = JobTable.cpu_only([0.5, 1.5], [1, 1], [9.0, 9.0], [0.0, 0.0])

    def merged(ids):
        return JobTable.from_columns([0.0, 1.0], [1, 1], [5.0, 5.0], ids).merged(helpers).job_id.tolist()

    assert merged([3, 9]) == [3, 10, 9, 11]
    assert merged(["added-0", "x"]) == ["added-0", "_added-0", "x", "_added-1"]
    assert merged([0, 2**63 - 1]) == ["0", "added-0", str(2**63 - 1), "added-1"]


def test_text_columns_refuse_what_is_none():
    mixed = JobTable.from_columns([0.0, 1.0], [1, 1], [5.0, 5.0], ["a", 1], ["v", ""], ["", "u"])
    assert (mixed.job_id.tolist(), mixed.vc.tolist(), mixed.user.tolist()) == (
        ["a", "1"],
        ["v", ""],
        ["", "u"],
    )
    with pytest.raises(WorkloadError, match=r"row 0 has vc 3; expected text"):
        JobTable.from_columns([0.0], [1], [5.0], vc=[3])
    with pytest.raises(WorkloadError, match=r"row 0 has job_id None; expected text"):
        JobTable.from_columns([0.0, 0.0], [1, 1], [5.0, 5.0], [None, "a"])
    with pytest.raises(WorkloadError, match=r"column user has shape \(1,\); expected \(2,\)"):
        JobTable.from_columns([0.0, 0.0], [1, 1], [5.0, 5.0], user=["a"])


class Turns(Scheduler):
    """Starts one job of each user in turn; knows nothing but who submitted what."""

    name = "turns"
    observability = Observability.NOTHING
    round_seconds = None

    def decide(self, view):
        """The waiting job whose user has had the fewest jobs, if there is a free GPU."""
        if not view.num_free_gpus or not len(view.waiting):
            return []
        started = view.user[np.isfinite(view.column("first_start_seconds"))]
        had = Counter(started.tolist())
        job = min(view.waiting.tolist(), key=lambda row: had[str(view.user[row])])
        return [Allocation(job, (int(np.flatnonzero(view.gpu_is_free)[0]),))]


def test_schedulers_see_tenants_and_metrics_tell_them_apart(rng):
    users = ["a", "a", "a", "b", "b", ""]
    jobs = JobTable.from_columns(
        np.zeros(6), np.ones(6, np.int64), [8.0, 4.0, 2.0, 6.0, 1.0, 3.0], list("uvwxyz"), ["v"] * 6, users
    )
    assert jobs.restricted_to(Observability.NOTHING).user.tolist() == users
    sim = Simulator(Cluster.homogeneous(1, 1), jobs, ideal())
    run(sim, Turns(), rng)
    times = job_times(sim.state, 0, sim.jobs)
    order = times.job_id[np.argsort(times.start_seconds)].tolist()
    assert order == ["u", "x", "z", "v", "y", "w"]  # a, b and the unnamed in turn, then a, b, a
    frame = jobs_frame("turns", 0, times)
    assert dict(zip(frame["job_id"], frame["user"], strict=True)) == dict(zip("uvwxyz", users, strict=True))
    assert set(frame["vc"]) == {"v"}


def test_reports_say_who_is_in_a_file(tmp_path):
    file = helios(
        tmp_path,
        ("Venus", "a", "u1", 1, "FAILED"),
        ("Venus", "b", "", 1, "CANCELED"),
        ("V", "a", "u1", 1, "x"),
    )
    report = describe_trace("helios", str(file))
    assert set(report.columns["state"][1][3:].split(", ")) == {"completed (1)", "failed (1)", "cancelled (1)"}
    assert report.columns["vc"] == ("tenant", "2: a (2), b (1)")
    assert report.columns["user"] == ("user", "1: u1 (2)")
    assert "a state that is not known, 'x' (1)" in report.facts["notes"]
