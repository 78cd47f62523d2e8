"""Every scheduler's metrics on one workload in which its mechanism acts, as they were when last looked at."""

import itertools
import json

import numpy as np
import pytest
from hydra import initialize_config_dir

from conftest import CONF, ROOT, composed
from ringyard import Simulator
from ringyard.mdp.experiments import experiment
from ringyard.placement import share
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import EvaluationTask, run_task
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.scheduler import run
from test_conformance import SCHEDULERS

GOLDEN = ROOT / "tests" / "golden"
#: {scheduler: experiment of conf/experiment}; `full` has everything that the others' mechanisms need
EXPERIMENTS = {
    "ada_srsf": "ada_srsf",
    "aiturbo": "aiturbo",
    "morphling": "plans",
    **dict.fromkeys(("evict_youngest", "fixed_quota", "gfs"), "spot"),
    **dict.fromkeys(("para_max", "para_min", "para_none", "para_random"), "partitioning"),
    **dict.fromkeys(("sjf_bco", "sjf_bco_ff", "sjf_bco_ls", "sjf_bco_rand"), "sjf_bco"),
}


def metrics_of(name):
    """Metrics of a scheduler on the first workload of its experiment."""
    config = composed("compare", f"experiment={EXPERIMENTS.get(name, 'full')}")
    environment = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        scheduler = to_plain(scheduler_config(SchedulerEntry.read(name)))
    return run_task(EvaluationTask(name, scheduler, environment, 0, 0)).metrics.as_dict()


def compare(name, measured, update_golden):
    file = GOLDEN / f"{name}.json"
    if update_golden:
        file.write_text(json.dumps(measured, indent=2) + "\n")
    if not file.is_file():
        pytest.skip("nothing is recorded yet; --update-golden does it")
    # Versions of Numba round differently: 1e-9 of a median JCT between 0.62 and 0.68 (`make oldest`).
    assert measured == pytest.approx(json.loads(file.read_text()), rel=1e-8)


def test_what_is_recorded_still_runs():
    recorded = {file.stem for file in GOLDEN.glob("*.json")}
    assert recorded - {"everything"} <= set(SCHEDULERS)


def test_no_two_schedulers_do_the_same():
    recorded = {file.stem: file.read_text() for file in GOLDEN.glob("*.json")}
    pairs = itertools.combinations(recorded, 2)
    assert not [pair for pair in pairs if recorded[pair[0]] == recorded[pair[1]]]


@pytest.mark.parametrize("name", SCHEDULERS)
def test_metrics_are_as_recorded(name, update_golden):
    compare(name, metrics_of(name), update_golden)


def test_everything_at_once_is_as_recorded(update_golden):
    setting = experiment("full")
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(7))
    parts = (setting.cluster, jobs, setting.performance, setting.restart)
    sim = Simulator(*parts, seed=7, failures=setting.failures, losses=True)
    run(sim, fifo_backfill(share()), np.random.default_rng(7))
    assert sim.state.jobs["num_failures"].sum() > 0
    compare("everything", sim.metrics().as_dict(), update_golden)
