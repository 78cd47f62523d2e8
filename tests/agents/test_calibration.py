"""`ringyard calibrate`: known constants are found again."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from conftest import CONF
from ringyard.config_folder import USER_FOLDERS_VARIABLE, config_files, config_folder
from ringyard.errors import ConfigurationError
from ringyard.fabric import network
from ringyard.profiles import read_profile
from ringyard_agents.calibration.command import cross_validate, fit_constants
from ringyard_agents.calibration.fits import (
    ComputeLine,
    ComputeTime,
    GpuFactor,
    derive_compute_times,
    fit_line,
    fit_restart_growth,
)
from ringyard_agents.cli import main
from ringyard_agents.config.compose import scheduler_names
from ringyard_agents.evaluation.selection import benchmark_experiments
from ringyard_agents.measurements import gpus_per_server, tidy
from tools.calibration.shipped import fit_gpu_factors

MODELS = {"mynet": (ComputeLine(0.03, 0.002), 2.5, 4e8), "small": (ComputeLine(0.01, 0.0005), 1.3, 5e7)}
BANDWIDTH = {1: 8e9, 2: 1e9, 4: 1.5e9}
LATENCY = 2e-4


def seconds(model, placement, batch):
    """The equation on paper; inside a server GPUs get `BANDWIDTH[1]`."""
    line, exponent, gradient_bytes = MODELS[model]
    servers = gpus_per_server(placement)
    gpus, compute = sum(servers), line.fixed + line.sample * batch
    if gpus == 1:
        return compute
    ring = 2 * (gpus - 1) * (gradient_bytes / gpus / BANDWIDTH[len(servers)] + LATENCY)
    return (compute**exponent + ring**exponent) ** (1 / exponent)


@pytest.fixture(scope="module")
def measured():
    places = ("1", "2", "4", "1+1", "2+2", "1+3", "3+1", "1+1+1+1", "4+4+4+4")
    rows = [
        {"model": model, "gpu_type": "a100", "placement": place, "batch": batch}
        | {"seconds": seconds(model, place, batch), "network": "net", "interconnect": "bus"}
        for model in MODELS
        for place in places
        for batch in (16, 32, 64, 128)
    ]
    return tidy(pd.DataFrame(rows), "measured")


BYTES = {model: gradient_bytes for model, (_, _, gradient_bytes) in MODELS.items()}


def test_known_constants_are_found_again(measured):
    rings = fit_constants(measured, BYTES)
    for model, (line, exponent, _) in MODELS.items():
        assert rings.lines[model, "a100"] == pytest.approx(line, rel=0.02)
        assert rings.exponents[model] == pytest.approx(exponent, rel=0.05)
    assert rings.networks["net"].bytes_per_second == pytest.approx({2: 1e9, 4: 1.5e9}, rel=0.05)
    assert rings.interconnects["bus"].bytes_per_second == pytest.approx({2: 8e9, 4: 8e9}, rel=0.1)


def test_held_out_rows_are_predicted_and_twins_stay_together(measured):
    judged = cross_validate(measured, BYTES)
    assert judged.error.notna().all()
    assert judged.error.mean() < 0.02
    wrong = measured.assign(seconds=measured.seconds.mask(measured.placement.isin(["1+3", "3+1"]), 9.0))
    errors = cross_validate(wrong, BYTES).error[wrong.placement.isin(["1+3", "3+1"]) & (wrong.batch == 16)]
    assert errors.min() > 0.5  # neither of two twins has told of the other


def test_lines_have_small_relative_errors_and_no_negative_figure():
    batch = np.array([1.0, 10.0, 1000.0])
    assert fit_line(batch, 0.02 + 0.003 * batch) == pytest.approx(ComputeLine(0.02, 0.003))
    assert fit_line(np.array([8.0]), np.array([0.8])) == pytest.approx(ComputeLine(1e-5, 0.1), rel=1e-3)
    assert min(fit_line(batch, np.array([0.5, 0.4, 0.3]))) >= 0


def test_gpu_types_are_derived_over_the_fewest_factors():
    one = {"": GpuFactor("", 2.0, ("a", "b"), 0.1)}
    chains = {"t4": {"from": "rtx_6000"}, "rtx_6000": {"from": "v100"}, "k80": {"from": "v100"}}
    known = {
        "v100": ComputeTime(ComputeLine(0.1, 0.01), "measured"),
        "t4": ComputeTime(ComputeLine(0.3, 0.07), "measured"),
    }
    types = ["v100", "k80", "t4", "rtx_6000"]
    found = derive_compute_times(known, "", chains, dict.fromkeys(chains, one), types)
    assert found["t4"].line == ComputeLine(0.3, 0.07)
    assert found["k80"].line == pytest.approx(ComputeLine(0.1, 0.02))
    assert found["rtx_6000"].line == pytest.approx(ComputeLine(0.1, 0.02))
    assert found["k80"].source.startswith("derived: v100")
    below = derive_compute_times({"t4": known["t4"]}, "", chains, dict.fromkeys(chains, one), types)
    assert below["v100"].line == pytest.approx(ComputeLine(0.3, 0.07 / 4))


def test_factors_say_how_wrong_they_are_on_models_left_out():
    factors = fit_gpu_factors({"a": 2.0, "b": 8.0, "c": 4.0}, {"a": "vision", "b": "vision"})
    assert factors[""].factor == pytest.approx(4.0)
    assert factors["vision"].factor == pytest.approx(4.0)
    assert factors["vision"].error == pytest.approx((3.0 + 0.75) / 2)


def test_restarts_grow_by_doublings():
    assert fit_restart_growth([2, 4, 8], [13, 16, 19], 10) == pytest.approx(3.0)


def csv_of(tmp_path, text):
    file = tmp_path / "measured.csv"
    file.write_text(text)
    return str(file)


def test_the_command_writes_what_the_simulator_reads(tmp_path, measured, monkeypatch, capsys):
    pairs = "mynet,a100,1,16,0.1,small,32,,\nsmall,a100,1,32,0.05,mynet,16,,\n"
    more = "mynet,a100,1,16,0.5,,,1,\nmynet,a100,1,16,0.26,,,2,\nmynet,a100,1,16,,,,,20\n"
    head = "model,gpu_type,placement,batch,seconds,neighbour,neighbour_batch,cores,restart_seconds\n"
    alone = measured[["model", "gpu_type", "placement", "batch", "seconds"]].to_csv(header=False, index=False)
    file = csv_of(tmp_path, head + alone.replace("\n", ",,,,\n") + pairs + more)
    out = tmp_path / "out"
    given = [f"--gradient-bytes={model}={number}" for model, number in BYTES.items()]
    assert main(["calibrate", file, "--out", str(out), "--network=net", *given]) == 0
    said = capsys.readouterr().out
    assert "held out: mean error" in said
    assert (out / "held_out.png").stat().st_size > 1000
    rows = pd.read_csv(out / "held_out.csv")
    assert {"predicted", "error"} <= set(rows.columns)
    profile = read_profile(out / "profiles" / "mynet.yaml")
    assert profile.gpus["a100"].sample_seconds == pytest.approx(0.002, rel=0.02)
    assert profile.gpus["v100"].derived
    assert profile.gpus["a100"].sharing.keys() == {16.0}
    assert profile.restart_seconds == 20
    assert profile.samples_per_core_second == pytest.approx(16 / 0.5 * 1.0358, rel=0.03)

    (use,) = (line.partition(": ")[2] for line in said.splitlines() if line.startswith("use them"))
    words = use.replace("ringyard", f"{sys.executable} -m ringyard_agents") + " name=printed"
    ran = subprocess.run(words, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "measured.csv" in (tmp_path / "runs/printed/config.yaml").read_text()
    monkeypatch.setenv(USER_FOLDERS_VARIABLE, str(out))
    assert config_files("profiles")["mynet"] == out / "profiles" / "mynet.yaml"
    assert config_files("network")["net"] == out / "network" / "net.yaml"
    assert config_files("network")["ethernet_10g"].is_relative_to(config_folder())


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("x,t4,1,8,0.1", [], "--gradient-bytes x="),
        ("x,t4,1,8,0.1", ["--gradient-bytes", "x"], "NAME=BYTES"),
        ("x,abacus,1,8,0.1", ["--gradient-bytes", "x=1e6"], "abacus"),
        ("x,t4,1,8,-1", [], "seconds"),
        ("../x,t4,1,8,0.1", ["--gradient-bytes", "../x=1e6"], "becomes the name of a yaml"),
        ("x,t4,4,8,0.1", ["--gradient-bytes", "x=1e6", "--network", "a/b"], "network is 'a/b'"),
        ("x,t4,1,8,0.1", ["--gradient-bytes", "x=1e6", "--gradient-bytes", "y=1e6"], "names 'y'"),
        ("x,t4,1,8,0.1", ["--gradient-bytes", "x=1e6", "--gradient-bytes", "x=2e6"], "once for each model"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, text, words, said):
    file = csv_of(tmp_path, f"model,gpu_type,placement,batch,seconds\n{text}\n")
    assert main(["calibrate", file, "--out", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_few_rows_with_pairs_are_fitted(tmp_path, capsys):
    head = "model,gpu_type,placement,batch,seconds,neighbour,neighbour_batch\n"
    pair = "123,a100,1,32,0.15,123,32\n"
    words = ["--out", str(tmp_path / "out"), "--gradient-bytes", "123=1e8"]
    assert main(["calibrate", csv_of(tmp_path, head + "123,a100,1,32,0.1,,\n" + pair), *words]) == 0
    profile = read_profile(tmp_path / "out" / "profiles" / "123.yaml")
    ((sensitivity, pressure),) = profile.gpus["a100"].sharing.values()
    assert profile.name == "123"  # text, although it looks like a number
    assert sensitivity * pressure == pytest.approx(0.5, rel=0.05)
    capsys.readouterr()
    assert main(["calibrate", csv_of(tmp_path, head + pair), *words]) == 2
    assert "measure it isolated on one GPU" in capsys.readouterr().err


def test_what_is_given_and_restarts_beside_seconds_are_in_the_profile(tmp_path):
    rows = "resnet50,v100,1,32,0.1,10\nresnet50,v100,4,32,0.12,14\n"
    file = csv_of(tmp_path, f"model,gpu_type,placement,batch,seconds,restart_seconds\n{rows}")
    words = ["--out", str(tmp_path / "out"), "--gradient-bytes", "resnet50=7e7"]
    assert main(["calibrate", file, *words]) == 0
    profile = read_profile(tmp_path / "out" / "profiles" / "resnet50.yaml")
    assert profile.gradient_bytes == 7e7
    assert (profile.restart_seconds, profile.restart_seconds_per_doubling) == (10, 2)
    assert profile.compute_seconds > 0.05


def test_shipped_lines_stay_without_rows_on_one_gpu(tmp_path):
    file = csv_of(tmp_path, "model,gpu_type,placement,batch,seconds\nresnet50_imagenet,v100,4,64,0.3\n")
    out = tmp_path / "out"
    assert main(["calibrate", file, "--out", str(out)]) == 0
    found = read_profile(out / "profiles" / "resnet50_imagenet.yaml").gpus["v100"]
    shipped = read_profile(CONF / "profiles" / "resnet50_imagenet.yaml").gpus["v100"]
    assert (found.fixed_seconds, found.sample_seconds) == (shipped.fixed_seconds, shipped.sample_seconds)
    assert found.source.startswith("Gavel")


def test_memory_of_a_new_model_is_assumed_so_that_what_ran_fits(tmp_path):
    rows = "x,t4,1,32,0.2\nx,t4,1,64,0.3\nx,a100,1,128,0.3\n"
    file = csv_of(tmp_path, f"model,gpu_type,placement,batch,seconds\n{rows}")
    words = ["calibrate", file, "--out", str(tmp_path / "out"), "--gradient-bytes", "x=1e8"]
    assert main(words) == 0
    profile = read_profile(tmp_path / "out" / "profiles" / "x.yaml")
    assert profile.fixed_memory_bytes == 4e8
    assert profile.sample_memory_bytes == pytest.approx((16e9 - 4e8) / 64, rel=1e-4)
    assert profile.fixed_memory_bytes + 64 * profile.sample_memory_bytes <= 16e9
    assert all(
        str(profile.sources[f"{one}_memory_bytes"]).startswith("assumed") for one in ("fixed", "sample")
    )


def test_yamls_of_another_hand_are_replaced_only_if_asked(tmp_path, capsys):
    file = csv_of(tmp_path, "model,gpu_type,placement,batch,seconds\nx,t4,1,32,0.2\n")
    mine = tmp_path / "out" / "profiles" / "x.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("name: x\n")
    words = ["calibrate", file, "--out", str(tmp_path / "out"), "--gradient-bytes", "x=1e8"]
    assert main(words) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert mine.read_text() == "name: x\n"
    assert main([*words, "--overwrite"]) == 0
    assert main(words) == 0  # its own are replaced
    assert read_profile(mine).fixed_seconds == pytest.approx(1e-5, rel=0.01)  # one batch: all per sample
    assert main(["calibrate", str(tmp_path / "nofile.csv")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert main(["calibrate", str(tmp_path)]) == 2
    assert "`python -m tools.calibrate FOLDER --out conf`" in capsys.readouterr().err


def test_own_schedulers_experiments_and_networks_are_found_by_name(monkeypatch, tmp_path):
    for group in ("scheduler", "experiment", "network"):
        (tmp_path / group).mkdir()
    (tmp_path / "scheduler" / "mine.yaml").write_text((CONF / "scheduler" / "sjf.yaml").read_text())
    (tmp_path / "experiment" / "ours.yaml").write_text((CONF / "experiment" / "sharing.yaml").read_text())
    (tmp_path / "network" / "broken.yaml").write_text("{{")
    (tmp_path / "network" / "other.yaml").write_text("latency_seconds: 1")
    monkeypatch.setenv(USER_FOLDERS_VARIABLE, str(tmp_path))
    assert "mine" in scheduler_names()
    assert "ours" in benchmark_experiments()
    for name in ("broken", "other"):
        with pytest.raises(ConfigurationError, match=f"{name}.yaml"):
            network(name)
    monkeypatch.setenv(USER_FOLDERS_VARIABLE, str(tmp_path / "network"))
    with pytest.raises(ConfigurationError, match="expected folders with"):
        config_files("network")


def test_own_folders_must_be_there(monkeypatch, tmp_path):
    monkeypatch.setenv(USER_FOLDERS_VARIABLE, str(tmp_path / "gone"))
    with pytest.raises(ConfigurationError, match="gone"):
        config_files("profiles")
