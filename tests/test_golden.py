"""Every scheduler's metrics on one workload, as they were when last looked at."""

import json

import numpy as np
import pytest

from conftest import ROOT, leaf
from ringyard import Simulator
from ringyard.mdp.experiments import experiment
from ringyard.placement import share
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.scheduler import run
from test_conformance import SCHEDULERS, small_run


def compare(name, measured, update_golden):
    file = ROOT / "tests" / "golden" / f"{name}.json"
    if update_golden:
        file.write_text(json.dumps(measured, indent=2) + "\n")
    if not file.is_file():
        pytest.skip("nothing is recorded yet; --update-golden does it")
    assert measured == pytest.approx(json.loads(file.read_text()), rel=1e-9)


def test_what_is_recorded_still_runs():
    recorded = {file.stem for file in (ROOT / "tests" / "golden").glob("*.json")}
    assert recorded - {"everything"} <= set(SCHEDULERS)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_metrics_are_as_recorded(name, update_golden):
    compare(name, small_run(leaf("scheduler", name), 0).metrics().as_dict(), update_golden)


def test_everything_at_once_is_as_recorded(update_golden):
    setting = experiment("full")
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(7))
    parts = (setting.cluster, jobs, setting.performance, setting.restart)
    sim = Simulator(*parts, seed=7, failures=setting.failures, losses=True)
    run(sim, fifo_backfill(share()), np.random.default_rng(7))
    assert sim.state.jobs["num_failures"].sum() > 0
    compare("everything", sim.metrics().as_dict(), update_golden)
