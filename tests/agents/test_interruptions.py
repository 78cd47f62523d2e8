"""What is left of a command that is killed, stopped, refused the disk or run twice."""

import contextlib
import errno
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra
from test_evaluate import tasks

from attacks.interruptions import alive, complaint, differences, expect_success, start
from conftest import ROOT
from ringyard.errors import SchedulerError
from ringyard_agents import cli
from ringyard_agents.command_line import AGENT_LIBRARIES, exit_code, one_line
from ringyard_agents.evaluation import result_cache
from ringyard_agents.evaluation.evaluate import run_task
from ringyard_agents.evaluation.process_pool import run_in_processes
from ringyard_agents.evaluation.result_cache import cache_result, cached_results, fingerprints
from ringyard_agents.runs.sweep_job import read_job_records

WORDS = [
    "compare", "schedulers=[fifo_backfill,sjf,tiresias]", "seeds=8", "workload.num_jobs=200", "workers=2",
    "tensorboard=false", "name=mine",
]  # fmt: skip


def wait_for(condition):
    """Wait until it is true, for five minutes at most: machines may be busy."""
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def lines(file):
    return file.read_bytes().count(b"\n") if file.exists() else 0


@pytest.fixture
def listening():
    """SIGINT as in a terminal: what runs in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_library_that_stumbles_over_a_signal_is_no_internal_error(capsys, listening, number):
    def stumble():
        try:
            signal.raise_signal(number)
        finally:
            None._invalidate_flags_cache()  # as OmegaConf does, which has half of a config

    def drop():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        raise ImportError("partially initialized module")

    def save():
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as stop:
            signal.raise_signal(signal.SIGTERM)  # a second one
            stop.add_note("all is saved")
            raise

    class Destroyed:
        def __del__(self):
            signal.raise_signal(number)

    def lose():
        Destroyed()  # Python ignores the exception of its handler
        time.sleep(60)

    names = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(one) for one in names]
    for run, more in ((stumble, ""), (drop, ""), (lose, ""), (save, "; all is saved")):
        assert exit_code("ringyard watch", run) == 128 + number
        assert capsys.readouterr().err == f"ringyard watch: stopped by {number.name}{more}\n"
    assert before == [signal.getsignal(one) for one in names]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_stumbles_over_a_signal_was_stopped_and_has_not_failed(inside, monkeypatch, listening, number):
    ran = []

    def stumble(task):
        ran.append(task)
        try:
            signal.raise_signal(number)
        finally:
            None._invalidate_flags_cache()

    assert exit_code("ringyard compare", lambda: [*run_in_processes(stumble, [1, 2], 1)]) == 128 + number
    assert ran == [1]
    monkeypatch.setattr("ringyard_agents.evaluation.simulate.simulate", stumble)
    GlobalHydra.instance().clear()
    assert cli.main(["simulate", "-m", "seed=0,1", "name=s"]) == 128 + number
    assert [one.status for one in read_job_records(inside / "runs/s")] == ["stopped"]


EARLY = """
import signal, sys
class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == "ringyard_agents.cli":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, CtrlC())
signal.signal(signal.SIGINT, signal.default_int_handler)
from ringyard_agents.__main__ import main
main()
"""


def test_the_first_imports_end_without_a_traceback():
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", EARLY], env=settings, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert script == {"ringyard": "ringyard_agents.__main__:main"}


def test_a_signal_that_python_drops_in_a_callback_is_sent_again(capsys, listening):
    class Callback:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    def run():
        Callback()
        time.sleep(60)
        return 0

    assert exit_code("ringyard train", run) == 143
    assert capsys.readouterr().err == "ringyard train: stopped by SIGTERM\n"


KILLED = """
import signal, sys
from ringyard_agents.command_line import exit_code
signal.signal(signal.SIGINT, getattr(signal, sys.argv[2]))
sys.exit(exit_code("ringyard train", lambda: exec(f"signal.raise_signal(signal.{sys.argv[1]})")))
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [("SIGTERM SIG_IGN", 143), ("SIGTERM SIG_DFL", 143), ("SIGINT SIG_DFL", 130), ("SIGINT SIG_IGN", 0)],
)
def test_a_signal_inside_an_exec_has_the_exit_code_of_any_other(tmp_path, words, code):
    """Python remembers an interrupted `exec`, such as a dataclass runs, and kills `python -m` at its end."""
    (tmp_path / "killed.py").write_text(KILLED)
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    call = [sys.executable, "-m", "killed", *words.split()]
    done = subprocess.run(call, cwd=tmp_path, env=settings, capture_output=True, text=True)
    assert done.returncode == code, done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a comparison that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    expect_success(WORDS, folder)
    return folder / "runs"


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupted_comparison_goes_on(tmp_path, whole, number):
    kept_file = tmp_path / "runs" / "mine" / "measured.jsonl"
    running = start(WORDS, tmp_path, f"test{number}")
    wait_for(lambda: lines(kept_file) >= 3)
    running.send_signal(number)
    _, error = running.communicate(timeout=60)
    assert complaint(running.returncode, error, number) is None
    if number == signal.SIGTERM:
        assert error.splitlines()[-1].endswith("the same command with name=mine continues")
    wait_for(lambda: not alive(f"test{number}"))  # no worker lives on
    done = lines(kept_file)
    assert 3 <= done < 24
    with kept_file.open("ab") as stream:
        stream.write(b'{"key": "half a line')
    again = start(WORDS, tmp_path, "")
    out, _ = again.communicate(timeout=120)
    assert f"{done} of 24 runs were stored by an earlier command" in out
    assert differences(whole, tmp_path / "runs") == []


def test_results_are_read_back_bit_for_bit(tmp_path):
    task = tasks()[1]
    result = run_task(task)
    result = replace(result, metrics=replace(result.metrics, worst_fairness=float("nan"), makespan=0.1 + 0.2))
    file = tmp_path / "measured.jsonl"
    cache_result(file, "a", result)
    cache_result(file, "b", replace(result, workload=1))
    with file.open("ab") as stream:
        stream.write(b'{"key": "c", "label"')
    for keys in ({"a", "b", "c"}, {"a", "b", "c"}):  # the torn line has gone
        found = cached_results(file, keys)
        assert sorted(found) == ["a", "b"]
        assert lines(file) == 2
    again = found["a"]
    assert str(again.metrics) == str(result.metrics)
    assert again.bounds == result.bounds
    for field in fields(result.times):
        one, other = getattr(result.times, field.name), getattr(again.times, field.name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(np.concatenate(result.timeline), np.concatenate(again.timeline))
    written = file.read_bytes()
    for old, new in (
        ('"result": "', '"result": "AAAA'),
        ('"result"', '"results"'),
        ('"key": "a"', '"key": "c"'),
        ('"key": "a"', '"key": a'),
    ):
        file.write_bytes(written.replace(old.encode(), new.encode(), 1))
        assert sorted(cached_results(file, {"a", "b", "c"})) == ["b"]


def test_what_a_result_depends_on_is_in_its_fingerprint(tmp_path, monkeypatch):
    (tmp_path / "helper_of_mine.py").write_text("def places(): return 1\n")
    (tmp_path / "rule_of_mine.py").write_text("import helper_of_mine\ndef rule(): return helper_of_mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import rule_of_mine  # noqa: F401

    jobs, agent = tmp_path / "jobs.csv", tmp_path / "run" / "agent.json"
    agent.parent.mkdir()
    for file in (jobs, agent):
        file.write_text("a")
    plain = tasks()[1]
    scheduler = {"_target_": "rule_of_mine.rule", "checkpoint": str(agent.parent)}
    task = replace(plain, scheduler=scheduler, environment=dict(plain.environment) | {"path": str(jobs)})
    first, other = fingerprints([task, replace(task, label="other")])
    assert other == first
    changes = [
        replace(task, workload=1),
        replace(task, seed=1),
        replace(task, scheduler=scheduler | {"kappa": 2}),
        replace(task, environment=dict(task.environment) | {"limit": 1}),
    ]
    assert len({first, *fingerprints(changes)}) == 5
    for file in (jobs, agent, tmp_path / "helper_of_mine.py", tmp_path / "rule_of_mine.py"):
        before = fingerprints([task])
        with file.open("a") as stream:
            stream.write("\n")
        assert fingerprints([task]) != before, file


def die(number):
    """End this process by a signal if the number is odd."""
    if number % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_a_worker_that_dies_costs_its_task():
    with contextlib.closing(run_in_processes(die, range(5), 2)) as outcomes:
        found = dict(outcomes)
    assert [found[number] for number in (0, 2, 4)] == [0, 2, 4]
    for number in (1, 3):
        assert isinstance(found[number], SchedulerError)
        assert "killed by SIGKILL" in str(found[number])


PARENT = """
import time
from ringyard_agents.evaluation.process_pool import run_in_processes

if __name__ == "__main__":
    outcomes = run_in_processes(time.sleep, [0, 600, 600], 2)
    next(outcomes)
    print("busy", flush=True)
    time.sleep(600)
"""


def test_workers_die_with_their_parent(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RINGYARD_ATTACK": "parent"}
    parent = subprocess.Popen(
        [sys.executable, "parent.py"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    )
    assert parent.stdout.readline() == b"busy\n"
    assert len(alive("parent")) >= 3 or not Path("/proc").exists()
    parent.kill()
    parent.communicate()
    wait_for(lambda: not alive("parent"))


WARNING = """
import warnings
from ringyard.errors import ConfigurationWarning
from ringyard_agents.command_line import exit_code
from ringyard_agents.evaluation.process_pool import run_in_processes

def warn(number):
    warnings.warn("no room", ConfigurationWarning, stacklevel=2)
    warnings.warn(f"odd {number % 2}", RuntimeWarning, stacklevel=2)

if __name__ == "__main__":
    raise SystemExit(exit_code("ringyard compare", lambda: len([*run_in_processes(warn, range(6), 2)])))
"""


def test_a_warning_of_every_worker_is_one_line(tmp_path):
    (tmp_path / "parent.py").write_text(WARNING)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "parent.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 6, done.stderr
    assert done.stderr.count("no room") == done.stderr.count("ringyard compare: no room\n") == 1
    assert "RuntimeWarning: odd 1" in done.stderr


SWEEP = """
import subprocess, sys, time
from ringyard_agents.runs.sweep import _jobs_end_with_this_process

with _jobs_end_with_this_process():
    subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL)
    print("busy", flush=True)
    if sys.stdin.readline() == "Ctrl-C\\n":
        raise KeyboardInterrupt
"""


@pytest.mark.parametrize("end", ["killed", "Ctrl-C", "well"])
@pytest.mark.skipif(not Path("/proc").exists(), reason="it needs /proc")
def test_jobs_of_a_sweep_end_with_it_however_it_ends(end):
    mark = secrets.token_hex(8)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RINGYARD_ATTACK": mark}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with subprocess.Popen([sys.executable, "-c", SWEEP], env=environment, **pipes) as parent:
        assert parent.stdout.readline() == "busy\n"
        wait_for(lambda: len(alive(mark)) == 3)
        if end == "killed":
            parent.kill()
        parent.communicate(f"{end}\n")
    if end == "well":  # its launcher has waited for the jobs
        (job,) = alive(mark)
        os.kill(job, signal.SIGKILL)
    wait_for(lambda: not alive(mark))


@pytest.fixture
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


SMALL = [
    "compare",
    "schedulers=[fifo_backfill,sjf]",
    "seeds=2",
    "workload.num_jobs=20",
    "workers=1",
    "plots=false",
]
SMALL += ["tensorboard=false", "name=mine"]


def test_a_full_disk_is_one_line_and_what_was_written_stays(inside, monkeypatch, capsys):
    written = []

    def full(file, key, result):
        if len(written) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        written.append(key)
        cache_result(file, key, result)

    monkeypatch.setattr(result_cache, "cache_result", full)
    assert cli.main(SMALL) == 2
    assert capsys.readouterr().err.splitlines() == [
        "ringyard compare: No space left on device: runs/mine/measured.jsonl"
    ]
    monkeypatch.setattr(result_cache, "cache_result", cache_result)
    assert cli.main(SMALL) == 0
    assert "2 of 4 runs were stored by an earlier command" in capsys.readouterr().out
    anew = []

    def counted(file, key, result):
        anew.append(key)
        cache_result(file, key, result)

    monkeypatch.setattr(result_cache, "cache_result", counted)
    assert cli.main([*SMALL, "rerun=true"]) == 0
    assert "from before" not in capsys.readouterr().out
    assert len(anew) == 4


def test_an_error_of_the_system_says_where(inside, monkeypatch, capsys):
    no_space = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    text = "No space left on device: "
    monkeypatch.setenv("TMPDIR", str(inside))
    for full, found in (
        (str(inside), f"{inside} and {inside}"),
        ("/dev/shm", "/dev/shm"),
        ("", "standard output"),
    ):
        monkeypatch.setattr(
            shutil, "disk_usage", lambda one, full=full: SimpleNamespace(free=2**30 * (one != full))
        )
        assert one_line(no_space) == text + (
            found if full != "/dev/shm" or os.path.isdir(full) else "standard output"
        )
    assert one_line(OSError(errno.ENOSPC, no_space.strerror, "runs/a/run.json")) == text + "runs/a/run.json"
    assert one_line(OSError(errno.ECONNREFUSED, "Connection refused")) == "[Errno 111] Connection refused"
    gone = inside / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    parsed = ["traces"], ["plot", "."], ["reproduce", "ones"], ["calibrate", "a.csv"]
    for words in (SMALL, ["simulate"], ["train"], ["tune"], *parsed):
        assert cli.main(words) == 2
        assert capsys.readouterr().err.endswith(
            f"{words[0]}: the working folder has been removed; cd to another one\n"
        )


@pytest.mark.parametrize("variable", ["NUMBA_NUM_THREADS=0", "NUMBA_DISABLE_JIT=1", "MPLBACKEND=nope"])
def test_an_environment_variable_that_stops_a_library_is_named(tmp_path, variable):
    name, _, value = variable.partition("=")
    words = ["plot", "."] if name == "MPLBACKEND" else ["simulate"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "ringyard_agents", *words],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NUMBA_CACHE_DIR": str(tmp_path),
            name: value,
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert variable in done.stderr
    assert "unset it" in done.stderr
    assert "NUMBA_CACHE_DIR" not in done.stderr


def test_a_second_writer_is_told(inside, capsys):
    from ringyard_agents.runs.run_folder import locked

    with locked(Path("runs/mine")):
        assert cli.main(SMALL) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "another process is writing to runs/mine" in line
    assert not (inside / "runs").exists()


def test_output_that_nobody_reads_is_no_error(tmp_path):
    for words in (["compare", "--help"], ["traces"], ["--help"]):
        running = start(words, tmp_path, "")
        running.stdout.close()
        with running.stderr:
            assert running.stderr.read() == ""
        assert running.wait(60) in (0, 141)
    closed = subprocess.run(
        f"{sys.executable} -W ignore -m ringyard_agents traces >&- 2>&-",
        shell=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert closed.returncode == 0
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", "ringyard_agents", "traces"],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert done.returncode == 2
        assert done.stderr.splitlines() == ["ringyard traces: No space left on device: standard output"]


def test_random_wrong_command_lines(capsys):
    from attacks.command_lines import attack

    seed = random.randrange(2**31)
    assert attack(25, seed)["wrong"] == 0, f"seed {seed}: {capsys.readouterr().out}"


BASE_INSTALL = """
import sys
class NoTorch:  # not None in sys.modules, where scipy looks for it
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, NoTorch())
for name in ("stable_baselines3", "sb3_contrib", "matplotlib", "tensorboard"):
    sys.modules[name] = None
from ringyard_agents.cli import main
small = ["schedulers=[fifo_backfill,sjf]", "seeds=2", "workload.num_jobs=20", "workers=1", "name=mine"]
codes = [main(["compare", *small]), main(["train", "name=agent"]), main(["export", "mine", "mine.onnx"])]
codes += [main(["compare", "schedulers=[sjf,zoo:sharing]", "seeds=1", "workload.num_jobs=5", "workers=1"])]
codes += [main(["compare", *small, "plots=false", "tensorboard=false"])]
print(codes)
"""


def test_a_base_install_compares_and_says_what_else_is_needed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BASE_INSTALL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1] == "[0, 2, 2, 2, 0]", done.stderr
    lines = [line for line in done.stderr.splitlines() if "compiling kernels" not in line]
    assert len(lines) == 3
    assert all('pip install "ringyard[agents]"' in line for line in lines), lines
    assert os.listdir(tmp_path / "runs") == ["mine"]


def test_what_a_base_install_lacks_is_known():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {requirement.partition(">")[0].replace("-", "_") for requirement in wanted["agents"]}
    assert {"PIL" if name == "pillow" else name for name in modules} <= AGENT_LIBRARIES
