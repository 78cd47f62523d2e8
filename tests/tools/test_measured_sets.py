"""Readers of published measurements, and what ships held against them."""

import csv
import gzip
import json
import re

import pandas as pd
import pytest
import yaml

from conftest import ROOT, shared
from ringyard.errors import ConfigurationError
from ringyard_agents.validation.shipped import predict_sets
from tools import interference
from tools.config_files import TOOLS_CONF, tool_config_files
from tools.measured_sets.sets import find_sets, measured_sets, rows_of
from tools.validation_page import validation_page


def lines_of(file):
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "rt") as text:
        return list(csv.DictReader(text))


def gavel(data, name):
    with gzip.open(data / "gavel" / f"{name}.json.gz") as file:
        return json.load(file)


def test_every_set_has_a_yaml_and_rows():
    data = shared("data", "profiles")
    assert list(measured_sets()) == list(tool_config_files("measured"))
    found, absent = find_sets(data)
    assert [one.name for one in found] == [
        name for name in list(tool_config_files("measured")) if not measured_sets()[name].collection
    ]
    assert absent == {}


def test_gavels_files():
    data = shared("data", "profiles")
    oracle = gavel(data, "oracle_throughputs_single_gpu")
    alone = rows_of("gavel_one_gpu", data).rows.set_index(["gpu_type", "model", "batch"]).seconds
    assert len(alone) == sum(len(jobs) for jobs in oracle.values())
    assert alone["v100", "resnet50_imagenet", 64] == pytest.approx(
        1 / oracle["v100"]["ResNet-50 (batch size 64)"]["null"]
    )
    pairs = rows_of("gavel_sharing", data).rows
    table = lines_of(data / "calibration" / "gavel_colocation_pairs.csv.gz")
    ran = [r for r in table if r["source"].startswith("oracle") and r["feasible"] == "1"]
    assert len(pairs) == len(ran)
    slowdown = (
        pairs.seconds.to_numpy() / alone[list(zip(pairs.gpu_type, pairs.model, pairs.batch, strict=True))]
    )
    assert sorted(1 / slowdown) == pytest.approx(sorted(float(r["norm_a"]) for r in ran), rel=1e-3)
    several = pd.concat([rows_of(name, data).rows for name in ("gavel_scaling", "gavel_scaling_v100")])
    isolated = lines_of(data / "calibration" / "gavel_isolated.csv")
    ran = [
        r for r in isolated if r["source"] == "simulation_throughputs" and float(r["samples_per_s"] or 0) > 0
    ]
    counted = [r for r in ran if int(r["num_gpus"]) > 1]
    assert len(several) == len(counted)
    rates = (
        several.placement.map(lambda text: sum(map(int, text.split("+")))) * several.batch / several.seconds
    )
    assert sorted(rates) == pytest.approx(sorted(float(r["samples_per_s"]) for r in counted), rel=1e-3)


def test_pollux_files():
    data = shared("data", "profiles")
    for kind in ("placements", "scalability"):
        files = sorted((data / "pollux" / "profiles").glob(f"*/{kind}.csv"))
        lines = [line for file in files for line in lines_of(file)]
        rows = rows_of(f"pollux_{kind}", data).rows
        assert len(rows) == len(lines)
        assert sorted(rows.seconds) == pytest.approx(sorted(float(line["step_time"]) for line in lines))
        servers = rows.placement.str.count(r"\+") + 1
        gpus = rows.placement.map(lambda text: sum(map(int, text.split("+"))))
        if kind == "placements":
            places = [line["placement"] for line in lines]
            assert sorted(servers) == sorted(map(len, places))
            assert sorted(gpus) == sorted(sum(map(int, place)) for place in places)
        else:
            assert sorted(servers) == sorted(int(line["num_nodes"]) for line in lines)
            assert sorted(gpus) == sorted(int(line["num_replicas"]) for line in lines)


def test_other_files():
    data = shared("data", "profiles")
    hkbu = rows_of("hkbu", data).rows
    table = lines_of(data / "calibration" / "hkbu_scaling_and_busbw.csv")
    times = [float(line["iter_s"]) for line in table if line["method"] == "BSP-A2A"]
    assert sorted(hkbu.seconds) == pytest.approx(sorted(times), rel=1e-3)
    aceso = rows_of("aceso", data).rows
    lines = lines_of(data / "aceso" / "collectives_v100_intranode.csv")
    kinds = {
        (r["gpus"], r["size_MiB"])
        for r in lines
        if r["collective"] == "all_reduce" and float(r["size_MiB"]) > 0
    }
    assert len(aceso) == len(kinds)
    synergy = rows_of("synergy", data).rows
    assert len(synergy) == 7 * 9 * 4  # models, core counts, memories
    three = synergy[(synergy.cores == 3) & (synergy.model == "alexnet_imagenet")]
    assert three.seconds.tolist() == pytest.approx([0.6] * 4)
    for precision in ("fp32", "fp16"):
        lines = lines_of(data / "lambda" / f"pytorch-train-throughput-{precision}.csv")
        text = [line for line in lines if re.search("V100", line["name_gpu"])]
        rows = rows_of(f"lambda_{precision}", data).rows
        assert (rows.gpu_type == "v100").sum() == 10 * len(text)
        values = [float(value) for line in lines for value in list(line.values())[4:]]
        beyond = [line for line in lines if float(line["ncf"]) > 1e9]  # eight GPUs have 0.6e9
        assert {float(line["num_gpu"]) for line in beyond} == {4, 8}
        assert len(rows) == sum(value > 0 for value in values) - len(beyond)
    one = rows_of("lambda_fp32", data).rows.query(
        "model == 'resnet50_imagenet' and note == 'LambdaCloud 8xV100 16GB'"
    )
    assert one.seconds.item() == pytest.approx(1024 / 2817)
    assert one.batch.item() == 128


def test_sets_that_calibration_reads_say_so():
    """Nothing is fitted to a set: only if the recipe of what ships does not name it."""
    recipe = yaml.safe_load((TOOLS_CONF / "calibration" / "shipped.yaml").read_text())
    used = {
        name
        for part in ("supplies", "rings")
        for one in recipe[part].values()
        for name in one.get("sets", [])
    }
    used.add(recipe["sharing"]["set"])
    used |= {f"{name}_one_gpu" for name in recipe["cited"]}
    for name, about in measured_sets().items():
        assert bool(about.fitted) == (name in used or about.tabulated), name


def test_unknown_sets_and_missing_files(tmp_path):
    with pytest.raises(ConfigurationError, match="expected one of aceso"):
        rows_of("no_such_set", tmp_path)
    with pytest.raises(ConfigurationError, match="oracle_throughputs_single_gpu"):
        rows_of("gavel_one_gpu", tmp_path)


#: mean errors of what ships, a little above what was measured
SHIPPED = {
    "aceso": 0.05,
    "gavel_one_gpu": 0.06,
    "gavel_scaling": 0.23,
    "gavel_scaling_v100": 0.27,
    "gavel_sharing": 0.08,
    "hkbu": 0.03,
    "lambda_fp16": 0.10,
    "lambda_fp32": 0.10,
    "parameter_servers": 0.15,
    "pollux_placements": 0.08,
    "pollux_scalability": 0.10,
    "restarts": 0.05,
    "synergy": 0.05,
}


def test_what_ships_is_as_good_as_the_page_says():
    predicted_sets = predict_sets(find_sets(shared("data", "profiles"))[0], ["performance=composite"], {})
    errors = {one.name: one.predicted.error.mean() for one in predicted_sets}
    assert {name: error for name, error in errors.items() if not error <= SHIPPED[name]} == {}
    plots = {one.name: f"images/shipped_{one.name}.png" for one in predicted_sets}
    text = validation_page(predicted_sets, "composite", plots).partition("\n## Measurements of your own")[0]
    written = (ROOT / "docs" / "validation.md").read_text()
    assert written.startswith(text), "type `python -m tools.validate FOLDER --out docs`"


@pytest.mark.slow
def test_the_page_of_interference_predictors_is_what_the_command_writes(tmp_path):
    page = tmp_path / "page.md"
    folder = str(shared("data", "profiles"))
    assert interference.main([folder, "--out", str(tmp_path / "weights.npz"), "--page", str(page)]) == 0
    written = (ROOT / "docs" / "interference.md").read_text()
    assert page.read_text() == written, "type `python -m tools.interference FOLDER`"
