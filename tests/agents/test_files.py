"""Files that are whole or not there, run folders with one writer, names that stay inside runs/."""

import json
import math
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard_agents.runs.atomic_write import atomic_folder, atomic_write, write_json
from ringyard_agents.runs.run_folder import (
    RunFolder,
    _resolve_run_folder,
    locked,
    register_run_folders,
    remove_if_empty,
)


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    file = tmp_path / "a.zip"
    file.write_text("old")

    def fail(failure):
        with atomic_write(file) as partial:
            assert partial.suffix == ".zip"
            partial.write_text("half")
            raise failure

    for failure in (OSError, KeyboardInterrupt):
        with pytest.raises(failure):
            fail(failure)
        assert file.read_text() == "old"
        assert os.listdir(tmp_path) == ["a.zip"]
    with atomic_write(file) as partial:
        partial.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("before", ["nothing", "a file", "a folder"])
def test_a_folder_takes_the_place_of_whatever_was_there(tmp_path, before):
    folder = tmp_path / "tensorboard"
    if before == "a file":
        folder.write_text("old")
    elif before == "a folder":
        folder.mkdir()
        (folder / "old").touch()
    with atomic_folder(folder) as partial:
        (partial / "new").touch()
    assert os.listdir(tmp_path) == ["tensorboard"]
    assert os.listdir(folder) == ["new"]


def test_a_device_is_written_to_and_a_full_one_says_so(tmp_path):
    with atomic_write(tmp_path / "null") as other, atomic_write(type(tmp_path)(os.devnull)) as device:
        other.write_text("")
        assert str(device) == os.devnull
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="No space"), atomic_write(type(tmp_path)("/dev/full")) as device:
            device.write_text("x")


@pytest.mark.parametrize("name", ["training.json", ".lock", "tensorboard"])
def test_a_run_folder_has_no_ways_out(tmp_path, name):
    outside, folder = tmp_path / "outside", tmp_path / "runs" / "theirs"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("theirs")

    def refused():
        with pytest.raises(ConfigurationError, match=f"{name} is a link"), locked(folder):
            pass
        (folder / name).unlink()

    (folder / name).symlink_to(outside)  # there is nothing yet
    refused()
    outside.mkdir()
    (folder / name).symlink_to(outside)
    refused()
    os.mkfifo(folder / name)
    refused()
    with locked(folder):
        pass


def test_one_writer_and_a_lock_that_dies_with_its_process(tmp_path):
    folder = tmp_path / "runs" / "mine"
    script = (
        "import sys, time; from pathlib import Path\n"
        "from ringyard_agents.runs.atomic_write import atomic_write\n"
        "from ringyard_agents.runs.run_folder import locked\n"
        "with locked(Path(sys.argv[1])), atomic_write(Path(sys.argv[1], 'x')) as partial:\n"
        "    partial.write_text('half'); print('locked', flush=True); time.sleep(60)\n"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    first = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, env=environment
    )
    assert first.stdout.readline() == b"locked\n"
    with pytest.raises(ConfigurationError, match=f"another process is writing to {folder}"), locked(folder):
        pass
    with locked(folder.parent):  # of another run: what is half written inside is not its business
        assert len(list(folder.glob(".partial-*"))) == 1
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with locked(folder):
        assert not list(folder.glob(".partial-*"))
        with pytest.raises(ConfigurationError), locked(folder):
            pass
        (folder / "x").write_text("done")
    assert os.listdir(folder) == ["x"]


def test_folders_that_stay_empty_go(tmp_path):
    with locked(tmp_path / "runs" / "a" / "b"):
        assert (tmp_path / "runs" / "a" / "b").is_dir()
    assert os.listdir(tmp_path) == []
    remove_if_empty(tmp_path)  # the working folder stays
    assert tmp_path.is_dir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only_says_so(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    with pytest.raises(PermissionError), locked(folder):
        pass


@pytest.mark.parametrize("name", ["mine", "a/b", "2026-01-01_00-00-00", "ü" * 127, 5])
def test_names_inside_runs(name):
    assert _resolve_run_folder(name, None) == f"runs/{name}"


@pytest.mark.parametrize(
    "name",
    ["", None, "..", "../x", "a/../../x", "/tmp/x", "a//b", "a/", ".", "./a", "a\0b", "a\nb", "ü" * 128],
)
def test_names_outside_runs_are_refused(name):
    with pytest.raises(ConfigurationError, match="name"):
        _resolve_run_folder(name, None)


def test_a_time_that_is_taken_gets_a_suffix(tmp_path, monkeypatch):
    """Of runs that start in the same second each has a folder; a chosen name is that of its folder."""
    register_run_folders()

    def folder(name="${now:%Y}", resume=None, command="train"):
        of, job = f"${{run_folder:${{name}},{resume or 'null'}}}", {"config_name": command}
        return OmegaConf.create({"name": name, "of": of, "hydra": {"job": job}}).of

    OmegaConf.register_new_resolver("now", lambda pattern: "2026", replace=True)
    with ThreadPoolExecutor(8) as pool:
        found = {one.result() for one in [pool.submit(folder) for _ in range(8)]}
    assert found == {"runs/2026", *(f"runs/2026-{number}" for number in range(2, 9))}
    assert {one.name for one in (tmp_path / "runs").iterdir()} == {Path(one).name for one in found}
    assert folder("2026") == "runs/2026"
    assert folder(resume="runs/2026-2") == "runs/2026-2"
    monkeypatch.setenv("RANK", "1")  # left in the environment by a launcher
    assert folder() == "runs/2026-9"
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert folder() == "runs"
    assert folder(command="compare") == "runs/2026-10"
    assert len(os.listdir(tmp_path / "runs")) == 10


def test_what_json_does_not_know_is_null(tmp_path):
    file = tmp_path / "a.json"
    write_json(file, {"a": math.nan, "b": [math.inf, -math.inf, np.float64(0.1)], "ü": "NaN"})
    assert json.loads(file.read_text(), parse_constant=lambda one: 1 / 0) == {
        **{"a": None, "b": [None, None, 0.1]},
        "ü": "NaN",
    }


def test_a_run_that_goes_on_stays_in_its_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    assert _resolve_run_folder("new", "mine") == "mine"
    for nowhere in ("", "nowhere", 5):
        with pytest.raises(CheckpointError, match="no run folder"):
            _resolve_run_folder("new", nowhere)


@pytest.mark.parametrize("text", ["", "[]", '{"arguments": 1}', '{"arguments": [], "resumed": 1}', "\0"])
def test_a_damaged_record_is_named_before_anything_is_replaced(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"run\.json.* is damaged"):
        RunFolder(tmp_path, "train").record(OmegaConf.create({}), {}, resumed=True)
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_single_run_does_not_write_beside_the_jobs_of_a_sweep(tmp_path):
    (tmp_path / "multirun.yaml").write_text("")
    with pytest.raises(ConfigurationError, match="has the jobs of a sweep; give another name="):
        RunFolder(tmp_path, "train").refuse_another(overwrite=False, outputs=("agent.safetensors",))
    RunFolder(tmp_path, "train").refuse_another(overwrite=False)  # as the sweep itself asks


def test_a_run_of_another_command_is_not_replaced(tmp_path):
    RunFolder(tmp_path, "train").record(OmegaConf.create({"of": "train"}), {})
    with pytest.raises(ConfigurationError, match=r"has a run of `ringyard train`.*another name="):
        RunFolder(tmp_path, "compare").record(OmegaConf.create({"of": "compare"}), {})
    assert (tmp_path / "config.yaml").read_text() == "of: train\n"
    RunFolder(tmp_path, "train").record(OmegaConf.create({"of": "again"}), {})
    assert (tmp_path / "config.yaml").read_text() == "of: again\n"
