"""Fits of the input pipeline: what was put in comes out, and Synergy's measurements as far as they go."""

import numpy as np
import pandas as pd
import pytest

from conftest import shared
from ringyard.performance.host_resources import stored_bytes
from ringyard_agents.calibration.fits import CoreCurve, core_curves
from tools.calibration.storage import fit_dataset, fit_storage
from tools.measured_sets.readers import synergy

CORES = np.array([1, 2, 3, 4, 5, 6, 9, 12, 24], dtype=float)
FITTED = [1, 3, 5, 9, 24]
IMAGES, DATASET = 1_281_167, 146e9  # of ImageNet-1k; about 146 GB (DS-Analyzer's README)


def table(rows):
    """{model: (cores, seconds of a sample)}."""
    return {
        model: (one.cores.to_numpy(float), (one.seconds / one.batch).to_numpy())
        for model, one in rows.groupby("model")
    }


def test_constants_that_were_put_in_come_out():
    curves = {
        name: CoreCurve(rate, 0.05, least) for name, rate, least in (("a", 200.0, 1e-3), ("b", 9.0, 0.03))
    }
    seconds = {name: curve.seconds(CORES) for name, curve in curves.items()} | {"flat": np.full(9, 0.2)}
    columns = {"cores": CORES, "batch": 1.0, "ram_bytes": np.nan}
    rows = pd.concat(
        [pd.DataFrame({"model": name, "seconds": one, **columns}) for name, one in seconds.items()]
    )
    found = core_curves(rows)
    for name, curve in curves.items():
        assert found[name].samples_per_core_second == pytest.approx(curve.samples_per_core_second, rel=1e-3)
        assert found[name].loading_serial_share == pytest.approx(0.05, rel=1e-2)
        assert found[name].sample_seconds == pytest.approx(curve.sample_seconds, rel=1e-6)
    assert found["flat"] == CoreCurve(np.inf, 0.0, pytest.approx(0.2))
    assert core_curves(rows[rows.model == "a"], 0.0)["a"].loading_serial_share == 0.0
    ram = np.array([0.0, 25e9, 50e9])
    stored = np.array([stored_bytes(1e5, 1e11, one) for one in ram])
    seconds = 512.0 * stored * 2 / 1e8
    batch = np.full(3, 512.0)
    assert fit_storage(batch, np.full(3, 1e5), np.full(3, 1e11), ram, seconds) == pytest.approx(5e7)
    assert fit_dataset(batch, ram, seconds, 5e7) == pytest.approx((1e5, 1e11))


def test_synergys_cores_are_predicted_between_those_fitted():
    rows = synergy(shared("data", "profiles"), 110e6)
    rows = rows[rows.ram_bytes == rows.ram_bytes.max()]
    curves = core_curves(rows[rows.cores.isin(FITTED)])
    held_out = table(rows[~rows.cores.isin(FITTED)])
    errors = [abs(seconds / curves[name].seconds(cores) - 1.0) for name, (cores, seconds) in held_out.items()]
    assert len(errors) == 7
    assert np.mean(errors) < 0.05


def test_synergys_iterations_are_predicted_in_seconds_whatever_the_ram():
    """Of the models on ImageNet: one iteration of 512 samples, 1 to 24 cores, 62.5 to 250 GB."""
    rows = synergy(shared("data", "profiles"), 110e6)
    rows = rows[~rows.model.isin(["m5_amp", "deepspeech_amp"])]
    curves = core_curves(rows)
    starved = rows[(rows.ram_bytes == rows.ram_bytes.min()) & (rows.cores >= 9)]
    starved = starved[starved.model.isin(["alexnet_imagenet", "shufflenet_v2_imagenet"])]
    sample = np.full(len(starved), DATASET / IMAGES)
    storage = fit_storage(
        starved.batch.to_numpy(float),
        sample,
        np.full(len(starved), DATASET),
        starved.ram_bytes.to_numpy(float),
        starved.seconds.to_numpy(float),
    )
    assert 100e6 < storage < 125e6  # of the 500 MB/s of a server in Synergy's configs, for one of 4 GPUs
    errors = []
    for model, one in rows.groupby("model"):
        ready = one.batch.to_numpy() * curves[model].seconds(one.cores.to_numpy(float))
        stored = np.array([stored_bytes(DATASET / IMAGES, DATASET, ram) for ram in one.ram_bytes])
        predicted = np.maximum(ready, one.batch.to_numpy() * stored / storage)
        errors.append(abs(one.seconds.to_numpy() / predicted - 1.0))
    assert np.mean(np.concatenate(errors)) < 0.05
