"""`python -m tools.hazard`: what tenants' jobs teach, on paper and in a cluster."""

import numpy as np
import pytest

from conftest import leaf
from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.placement import consolidate
from ringyard.restart import constant
from ringyard.workloads import ModelMix, Replay
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.predictors.hazard_file import read_survival_estimate
from ringyard_baselines.classic.preemptive import las
from ringyard_baselines.policies.least_estimated import LeastEstimated
from ringyard_baselines.scheduler import run
from ringyard_baselines.tools.survival import BINS, EDGES, FEATURES, PARAMETERS
from tools.calibration.hazard import JobSamples, fit_network, marginal_rates, write_hazard_network
from tools.hazard import main


def tenants(count, seed):
    """A trace of eight users: a job of a user takes about as long as the others of that user."""
    rng = np.random.default_rng(seed)
    who = rng.integers(0, 8, count)
    typical = np.array([60.0, 100.0, 200.0, 600.0, 2000.0, 5000.0, 9000.0, 15000.0])
    submit = np.cumsum(rng.exponential(300.0, count))
    return JobTable.from_columns(
        submit - submit[0],
        rng.choice([1, 1, 2, 4], count),
        typical[who] * rng.lognormal(0.0, 0.25, count),
        user=np.array([f"user{number}" for number in who]),
    )


def lives(rng, count):
    """Jobs that end early or late, and half of them say so; some were seen again when they had run."""
    late = rng.random(count) < 0.5
    ends = np.where(late, 20000.0, 200.0) * rng.lognormal(0.0, 0.3, count)
    ages = np.where(rng.random(count) < 0.3, rng.random(count) * ends * 0.9, 0.0)
    features = rng.normal(0.0, 1.0, (count, FEATURES))
    features[:, 2] = np.where(late, 8.0, 2.0)
    return JobSamples(features, ages, ends, np.ones(count))


def test_rates_of_all_jobs_together_forgive_what_nobody_saw():
    """Jobs of which only the late ones were seen say nothing of the early bins."""
    middle = (EDGES[10] + EDGES[11]) / 2
    found = marginal_rates(
        JobSamples(
            np.zeros((400, FEATURES)), np.repeat([0.0, EDGES[10]], 200), np.full(400, middle), np.ones(400)
        )
    )
    assert (np.exp(found[:10]) < 0.01).all()
    assert np.exp(found[10]) > 1.0


def test_the_likelihood_tells_who_ends_when(rng):
    network, _, loss, without = fit_network(lives(rng, 3000), lives(rng, 500), steps=150)
    assert loss < without - 0.3
    assert {name: array.shape for name, array in network.items()} == PARAMETERS


def test_fitted_on_the_first_part_of_a_trace_it_beats_las_on_the_last(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    trace = tenants(1500, 0)
    rows = zip(trace.submit_seconds, trace.num_gpus, trace.duration_seconds, trace.user, strict=True)
    text = "\n".join(["submit_time,gpus,duration,user", *(f"{a},{b},{c},{d}" for a, b, c, d in rows)])
    (tmp_path / "trace.csv").write_text(text)
    words = ["workload=csv", "workload.path=trace.csv", "workload.window_jobs=150", "workload.part=[0,0.7]"]
    file = tmp_path / "mine" / "hazard.safetensors"
    small = ["cluster.num_servers=2", "--windows=4", "--loads", "2.0", f"--file={file}", "--source=made"]
    assert main([*words, *small]) == 0
    assert "mean loss on later jobs" in capsys.readouterr().out
    again = read_survival_estimate(file)
    later = Replay(trace, ModelMix(), window_jobs=150, load=2.0, part=(0.7, 1.0))
    jcts = []
    for seed in range(4):
        jobs = later.sample(Cluster.homogeneous(2, 4), np.random.default_rng(seed))
        jcts.append([])
        for scheduler in (las(consolidate(), 300.0), LeastEstimated(consolidate(), again)):
            sim = Simulator(Cluster.homogeneous(2, 4), jobs, ideal(), constant(30.0), scheduler.round_seconds)
            run(sim, scheduler, np.random.default_rng(0))
            jcts[-1].append(sim.metrics().mean_jct)
    ratios = np.array(jcts)[:, 1] / np.array(jcts)[:, 0]
    assert ratios.mean() < 0.85
    assert ratios.max() < 1.0


def test_loads_of_a_workload_that_has_none_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["workload=aiturbo_traces", "--loads", "2.0", "--file=mine.safetensors"]) == 2
    assert "the workload has no load" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_files(tmp_path):
    shipped = read_survival_estimate()
    assert leaf("scheduler", "allocator_hazard").allocator.estimate.parameters.tolist() == (
        shipped.parameters.tolist()
    )
    rng = np.random.default_rng(0)
    network = {name: rng.normal(size=shape) for name, shape in PARAMETERS.items()}
    write_hazard_network(tmp_path / "a.safetensors", network, {"source": "drawn"})
    expected = np.concatenate([*(network[name].astype(np.float32).ravel() for name in PARAMETERS), EDGES])
    assert read_survival_estimate(tmp_path / "a.safetensors").parameters.tolist() == expected.tolist()
    Checkpoint({}, {"kind": "agent"}).write(tmp_path / "b.safetensors")
    with pytest.raises(ConfigurationError, match="is no hazard network; expected a file of"):
        read_survival_estimate(tmp_path / "b.safetensors")
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        read_survival_estimate(tmp_path / "none")
    assert len(EDGES) == BINS + 1
