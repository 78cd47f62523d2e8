"""Cores that a process may use: affinity, quotas of control groups, and the number of workers."""

import os

import pytest

from ringyard import threads
from ringyard_agents.evaluation import process_pool

VERSION_2, VERSION_1 = "0::{path}", "9:name=systemd:/x\n5:cpuset:{path}\n4:cpu,cpuacct:{path}\n0::/"


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Make files of control groups: (line of /proc/self/cgroup, {file: text})."""

    def make(own, files):
        (tmp_path / "own").write_text(own + "\n")
        monkeypatch.setattr(threads, "_OWN_GROUPS", tmp_path / "own")
        monkeypatch.setattr(threads, "_GROUPS", tmp_path / "groups")
        for name, text in files.items():
            file = tmp_path / "groups" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")

    monkeypatch.setattr(threads, "_num_threads", None)  # of `train` in another test of this process
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    return make


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/", {"cpu.max": "200000 100000"}, 2),  # inside a container
        ("0::/", {"cpu.max": "max 100000"}, 64),
        ("0::/", {"cpu.max": "150000 100000"}, 2),  # cores that are used in part count
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/", {"cpu.max": "9900000 100000"}, 64),  # the affinity is less
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),  # of a group around it
        ("0::/a/b", {"a/cpu.max": "900000 100000", "a/b/cpu.max": "400000 50000"}, 8),
        ("0::/gone", {"cpu.max": "500000 100000"}, 5),
        ("0::/", {"cpu.max": "?"}, 64),
        (VERSION_1.format(path="/"), {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        (
            VERSION_1.format(path="/"),
            {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"},
            3,
        ),
        (
            VERSION_1.format(path="/docker/1"),
            {"cpu/docker/1/cpu.cfs_quota_us": "400000", "cpu/docker/1/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("4:cpuset:/", {"cpuset/cpu.max": "1 1"}, 64),
    ],
)
def test_quotas_of_containers_are_seen(groups, own, files, cores):
    groups(own, files)
    assert threads.usable_cores() == threads.get_num_threads() == cores


def test_without_control_groups_the_affinity_counts(groups, tmp_path):
    groups("", {})
    (tmp_path / "own").unlink()
    assert threads.usable_cores() == 64


def test_there_are_no_more_workers_than_cores(groups, monkeypatch):
    groups("0::/", {"cpu.max": "100000 100000"})
    made = []

    class Pool(process_pool.ProcessPool):
        def __init__(self, count, **options):
            made.append(count)
            super().__init__(count, **options)

    monkeypatch.setattr(process_pool, "ProcessPool", Pool)
    found = dict(process_pool.run_in_processes(abs, [-1, -2, -3], 8))
    assert (found, made) == ({-1: 1, -2: 2, -3: 3}, [1])
    assert dict(process_pool.run_in_processes(abs, [-1, -2], None)) == {-1: 1, -2: 2}
    assert made == [1]  # in this process
