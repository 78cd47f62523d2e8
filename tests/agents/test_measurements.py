"""Measurements of users: the tidy table, and what ships held against it."""

import gzip

import numpy as np
import pandas as pd
import pytest

from conftest import CONF
from ringyard.errors import ConfigurationError
from ringyard.profiles import profile
from ringyard_agents.cli import main
from ringyard_agents.measurements import (
    COLUMNS,
    filled_columns,
    measurement_kinds,
    read_measured_rows,
    read_measured_sets,
    situations,
)
from ringyard_agents.validation.shipped import predict_rows
from tools.validation_page import validation_page

HEADER = "model,gpu_type,placement,batch,seconds"


def written(folder, *lines, name="mine.csv"):
    file = folder / name
    file.write_text("\n".join(lines) + "\n")
    return file


def test_a_table_as_people_write_it(tmp_path):
    file = written(
        tmp_path,
        f"{HEADER}_per_iteration,cores,extra",
        "resnet50,V100,1,64,0.3,4,x",
        "vgg16,RTX-2080 Ti,4+4,32,1e-1,,",
    )
    rows = read_measured_rows(file)
    assert list(rows.columns) == list(COLUMNS)
    assert rows.gpu_type.tolist() == ["v100", "rtx_2080ti"]
    assert rows.seconds.tolist() == [0.3, 0.1]
    assert rows.cores.fillna(-1).tolist() == [4, -1]
    assert filled_columns(rows) == ["model", "gpu_type", "placement", "batch", "seconds", "cores"]
    assert measurement_kinds(rows).tolist() == ["cores", "between servers"]


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        (HEADER, "resnet50,v100,1,64,-3", "mine.csv: line 3: seconds is '-3'; expected a number in (0, 1e9]"),
        (HEADER, "resnet50,v100,1,64,", "seconds is empty"),
        (HEADER, "resnet50,v100,44x,64,1", "placement is '44x'; expected GPUs on each server"),
        (HEADER, "resnet50,v100,0+4,64,1", "placement is '0+4'"),
        (HEADER, "resnet50,v100,1,many,1", "batch is 'many'"),
        (HEADER, ",v100,1,64,1", "model is empty"),
        (HEADER, "resnet50,,1,64,1", "gpu_type is empty"),
        (HEADER, "resnet50,v100,1,64,1,7,8", "line 3 has 7 cells; expected 5, one for each of"),
        (HEADER.replace("batch", "bacth"), "resnet50,v100,1,64,1", "there is no column batch"),
        (f"{HEADER},neighbours", "resnet50,v100,1,64,1,vgg16", "did you mean neighbour?"),
        (f"{HEADER},neighbour", "resnet50,v100,1,64,1,vgg16", "neighbour_batch is empty"),
        (f"{HEADER},neighbour_batch", "resnet50,v100,1,64,1,8", "neighbour is empty"),
        (f"{HEADER},cores", "resnet50,v100,1,64,1,2.5", "cores is '2.5'; expected a whole number"),
        (f"{HEADER},transfer_bytes", ",v100,1,,1,1e6", "placement is '1'; expected two GPUs or more"),
        (f"{HEADER},network", "resnet50,v100,2+2,64,1,carrier_pigeon", "expected one of"),
    ],
)  # fmt: skip
def test_a_wrong_table_says_where_and_what(tmp_path, capsys, header, row, said):
    good = "resnet50,v100,1,64,1" + "," * (header.count(",") - 4)
    file = written(tmp_path, header, good, row)
    assert main(["validate", str(file), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "mine" in error
    assert not (tmp_path / "out").exists()


def test_lines_and_columns_of_errors_are_those_of_the_file(tmp_path):
    file = tmp_path / "mine.csv"
    lines = ["", f"{HEADER}_per_iteration", '"res\nnet",v100,1,"1,024",0.1', "", "resnet50,v100,1,64,-3"]
    for encoding in ("utf-8", "utf-16"):
        file.write_bytes(gzip.compress("\r\n".join(lines).encode(encoding), mtime=0))
        with pytest.raises(
            ConfigurationError, match=r"mine\.csv: line 6: seconds_per_iteration is '-3'; expected"
        ):
            read_measured_rows(file)
    written(tmp_path, HEADER, "resnet50,v100,1,64,1,7")
    with pytest.raises(ConfigurationError, match=r"line 2 has 6 cells; expected 5, [^(]*$"):
        read_measured_rows(file)


def test_nothing_to_judge_is_bad_input(tmp_path, capsys):
    assert main(["validate", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main(["validate", str(tmp_path)]) == 2
    assert "model, gpu_type, placement, batch, seconds" in capsys.readouterr().err


def tidy_rows(tmp_path, header, *lines):
    return read_measured_rows(written(tmp_path, header, *lines))


def test_predictions_are_the_profiles_figures(tmp_path):
    """One GPU, two servers, a pair: each by the equation on paper from what the profile says."""
    header = f"{HEADER},neighbour,neighbour_batch,neighbour_placement,cores,transfer_bytes"
    lines = [
        "resnet50_imagenet,v100,1,16,1,,,",
        "resnet50_imagenet,t4,1,64,1,,,",
        "resnet50_imagenet,t4,1+1,64,1,,,",
        "resnet50_imagenet,t4,1+1,64,1,resnet50_imagenet,64,1+1",
        "resnet50_imagenet,v100,1,64,1,lstm_wikitext2,20,",
        "alexnet_imagenet,v100,1,512,1,,,,2",
        ",v100,4,,1,,,,,3e9",
        "no_such_model,v100,1,64,1,,,",
        "resnet50_imagenet,tpu,1,64,1,,,",
    ]
    commas = header.count(",")
    rows = tidy_rows(tmp_path, header, *(line + "," * (commas - line.count(",")) for line in lines))
    settings = ("network=1e9", "interconnect=1e10", "overlap_exponent=2", "contention=worst_link", "alpha=0")
    overrides = ["performance=composite", *(f"performance.{setting}" for setting in settings)]
    predicted, reasons = predict_rows(rows, overrides)
    model, beside = profile("resnet50_imagenet"), profile("lstm_wikitext2")
    v100, t4 = model.gpus["v100"], model.gpus["t4"]
    computes, ring = t4.fixed_seconds + 64 * t4.sample_seconds, model.gradient_bytes / 1e9
    loads = profile("alexnet_imagenet")
    useful = 2 / (1 + 2 * (loads.loading_serial_share or 0.0))
    sensitivity, pressure = v100.sharing[64][0], beside.gpus["v100"].sharing[20][1]
    expected = [
        v100.fixed_seconds + 16 * v100.sample_seconds,
        computes,
        (computes**2 + ring**2) ** 0.5,
        (computes**2 + (2 * ring) ** 2) ** 0.5,  # two rings on each link
        (v100.fixed_seconds + 64 * v100.sample_seconds) * (1 + sensitivity * pressure),
        512 / (useful * loads.samples_per_core_second),  # two cores are slower than the GPU
        2 * 3e9 * 3 / 4 / 1e10,
    ]
    assert predicted[:7] == pytest.approx(expected)
    assert np.isnan(predicted[7:]).all()
    assert reasons.tolist()[6:] == [
        "",
        "model no_such_model does not ship",
        "GPU type tpu does not ship",
    ]


def test_a_users_file_is_judged(tmp_path, capsys):
    figures = profile("resnet50_imagenet").gpus["v100"]
    right = figures.fixed_seconds + 32 * figures.sample_seconds
    lines = [f"resnet50_imagenet,v100,1,32,{seconds!r}" for seconds in (right, right / 1.5)]
    written(tmp_path, HEADER, *lines, "unheard_of,v100,1,32,1")
    out = tmp_path / "out"
    assert main(["validate", str(tmp_path), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    (row,) = (line.split() for line in said.splitlines() if line.split()[:1] == ["mine"])
    assert row == ["mine", "25.0%", "25.0%", "50.0%", "2", "1", "missed"]
    assert "mine: 1 left out: model unheard_of does not ship" in said
    written_rows = pd.read_csv(out / "predictions.csv", keep_default_na=False)
    assert written_rows.set.tolist() == ["mine"] * 3
    assert [one.name for one in read_measured_sets(tmp_path)] == ["mine"]  # predictions are no measurements
    assert float(written_rows.predicted[0]) == pytest.approx(right)
    assert written_rows.reason[2] == "model unheard_of does not ship"


@pytest.mark.parametrize("page", ["validation.md", "unseen/validation.md"])
def test_pages_have_the_words_that_the_command_writes(page):
    begin, heading, end = validation_page([], "composite", {}).partition("\n## Measurements of your own")
    text = (CONF.parent / "docs" / page).read_text()
    assert text.startswith(begin.rstrip())
    assert text.endswith(heading + end)


def test_what_cannot_be_judged_is_bad_input(tmp_path, capsys):
    written(tmp_path, HEADER, "unheard_of,v100,1,32,1")
    words = ["validate", str(tmp_path), "--out", str(tmp_path / "out")]
    for more, said in (
        ([], "no row has a prediction"),
        (["--performance", "x"], "--performance is 'x'"),
        (["--network", "x"], "--network is 'x'"),
    ):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_twins_are_one_situation(tmp_path):
    header = f"{HEADER},neighbour,neighbour_batch"
    rows = tidy_rows(
        tmp_path,
        header,
        "resnet50,t4,1+1+2+3,32,1,,",
        "resnet50,t4,1+1+3+2,64,1,,",
        "resnet50,t4,1+2+2+2,64,1,,",
        "resnet50,v100,1,64,1,lstm,20",
        "lstm,v100,1,20,1,resnet50,64",
        "lstm,v100,1,40,1,resnet50,64",
    )
    keys = situations(rows).tolist()
    assert keys[0] == keys[1]
    assert keys[3] == keys[4]
    assert len(set(keys)) == 4
