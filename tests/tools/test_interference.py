"""`python -m tools.interference`: interference networks of measured pairs."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from conftest import shared
from ringyard.errors import ConfigurationError
from ringyard.profiles import profile
from ringyard_agents.measurements import tidy
from ringyard_baselines.papers.interference_aware.networks import (
    REFERENCES,
    InterferenceNetworks,
    ProfiledJob,
    job_profiles,
)
from tools import interference
from tools.calibration.interference import left_out_errors, measured_pairs

MINE = [("vgg16", 32.0), ("bert_base_squad", 8.0), ("a3c_pong", 1.0), ("gnmt", 16.0)]
#: sensitivity and pressure of each of MINE, then of each of REFERENCES
STRENGTHS = [(0.2, 2.0), (0.9, 0.4), (0.5, 1.0), (0.7, 0.7), (0.3, 1.9), (0.8, 0.5), (0.5, 0.5), (0.4, 2.1)]


def table(jobs, strengths=STRENGTHS):
    """Jobs alone on a V100 for a second an iteration, and beside one another."""
    rows = [{"model": model, "batch": batch, "seconds": 1.0} for model, batch in jobs]
    for (own, mine), (other, theirs) in product(zip(jobs, strengths, strict=False), repeat=2):
        beside = {"neighbour": other[0], "neighbour_batch": other[1], "seconds": 1.0 + mine[0] * theirs[1]}
        rows.append({"model": own[0], "batch": own[1], **beside})
    return pd.DataFrame(rows).assign(gpu_type="v100", placement="1")


def test_profiles_are_speeds_beside_the_references_and_reference_jobs_are_in_no_pair():
    pairs, profiles = measured_pairs(
        tidy(table(MINE + list(REFERENCES)), "mine"), np.random.default_rng(0), "mine"
    )
    assert {(job.model, job.samples) for job in profiles} == set(MINE)
    assert len(pairs.own) == len(MINE) ** 2
    sensitivity, pressure = np.array(STRENGTHS[4:]).T
    expected = job_profiles(0.2 * pressure, 2.0 * sensitivity)
    assert profiles[ProfiledJob("v100", "vgg16", 32.0)] == pytest.approx(expected)
    one = [tuple(models) for models in pairs.models].index(("bert_base_squad", "vgg16"))
    assert pairs.similarity[one] == pytest.approx(1 / (1 + 0.9 * 2.0))
    assert pairs.performance[one] == pytest.approx(1 / (1 + pairs.computing[one] * 0.9 * 2.0))


def test_a_table_without_the_reference_jobs_names_them():
    with pytest.raises(ConfigurationError, match=r"mine: no two jobs .* resnet50_imagenet with 32 samples"):
        measured_pairs(tidy(table(MINE), "mine"), np.random.default_rng(0), "mine")


def test_weights_and_profiles_are_written_and_read(tmp_path, capsys):
    file = tmp_path / "pairs.csv"
    table(MINE + list(REFERENCES)).to_csv(file, index=False)
    assert interference.main([str(file), "--out", str(tmp_path / "mine.npz")]) == 0
    said = capsys.readouterr().out
    assert "vgg16" in said
    assert "guess the mean" in said
    assert "mine.npz" in said
    networks = InterferenceNetworks.load(tmp_path / "mine.npz")
    assert {(job.model, job.samples) for job in networks.profiles} == set(MINE)
    own = networks.profiles[ProfiledJob("v100", "bert_base_squad", 8.0)]
    other = networks.profiles[ProfiledJob("v100", "vgg16", 32.0)]
    assert networks.similarity(own, other) == pytest.approx(1 / (1 + 0.9 * 2.0), abs=0.1)  # it saw the pair
    assert interference.main([str(tmp_path / "none.csv")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_shipped_networks_know_the_measured_profiles_of_the_models_that_share():
    profiles = InterferenceNetworks.load().profiles
    for name in ("resnet18_cifar10", "resnet50_imagenet", "transformer_multi30k", "lstm_wikitext2"):
        speeds = profiles[ProfiledJob("v100", name, profile(name).batch_size)]
        assert ((speeds > 0) & (speeds <= 1)).all()


@pytest.mark.slow
def test_left_out_models_are_predicted_better_than_by_the_mean():
    from tools.measured_sets.readers import gavel_one_gpu, gavel_pairs

    folder = shared("data", "profiles", "gavel").parent
    rows = pd.concat([gavel_one_gpu(folder), gavel_pairs(folder)], ignore_index=True)
    pairs, profiles = measured_pairs(rows, np.random.default_rng(0), "gavel")
    shipped = InterferenceNetworks.load().profiles
    assert shipped.keys() == profiles.keys()
    assert all(shipped[job] == pytest.approx(speeds, abs=1e-6) for job, speeds in profiles.items())
    errors = left_out_errors(pairs).groupby(["model", "gpu_type"])[["IASP", "IAPP", "mean"]].mean()
    assert len(errors) == 21
    assert (errors.IASP < 0.6 * errors["mean"]).all()
    assert (errors.IAPP < 0.6 * errors["mean"]).all()
