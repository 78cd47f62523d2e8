"""Loss curves of several families, and the test that tells which of them can be extrapolated."""

from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Cluster, JobTable, Observability
from ringyard.errors import ConfigurationError
from ringyard.learning_curves import EPOCHS
from ringyard.performance import ideal
from ringyard.state.records import LossCurve
from ringyard.workloads import AITurboJobs, LossCurves
from ringyard_baselines.tools.predictions import FALSE_POSITIVE_RATE, FEWEST_POINTS, REFIT_GROWTH, forecast
from ringyard_baselines.tools.predictions import LossCurves as LossPredictions
from small_simulations import arrived

HYPERBOLA = 1 - np.arange(1, 101) / 100 * 1.2 / (np.arange(1, 101) / 100 + 0.2)  # 0 after 100 epochs


def trusted(loss):
    """[looks] whether each forecast is trusted that a scheduler makes of a growing log."""
    points, made = FEWEST_POINTS, []
    while points <= len(loss):
        found = forecast(np.arange(1.0, points + 1), loss[:points])
        made.append(found.significant and found.confidence >= 0.5)
        points = int(np.ceil(points * REFIT_GROWTH))
    return np.array(made)


@pytest.mark.parametrize("level", [1.0, 0.2])
def test_flat_noisy_curves_are_trusted_no_more_often_than_stated(level):
    rng = np.random.default_rng(0)
    ever = [trusted(level + 0.03 * rng.standard_normal(100)).any() for _ in range(200)]
    assert np.mean(ever) <= FALSE_POSITIVE_RATE


@pytest.mark.parametrize("step", [0.03, 0.1])
def test_random_walks_are_trusted_no_more_often_than_stated(step):
    rng = np.random.default_rng(1)
    ever = [trusted(1 + np.cumsum(step * rng.standard_normal(100))).any() for _ in range(300)]
    assert np.mean(ever) <= FALSE_POSITIVE_RATE


def test_noisy_hyperbolas_are_trusted_and_their_ends_found():
    rng = np.random.default_rng(2)
    curves = HYPERBOLA + 0.03 * rng.standard_normal((100, 100))
    assert np.mean([trusted(loss).any() for loss in curves]) > 0.95
    half = [forecast(np.arange(1.0, 51.0), loss[:50]).left for loss in curves]
    assert 50.0 / 1.5 < np.median(half) < 1.5 * 50.0


def test_an_exact_curve_ends_where_it_reaches_its_target():
    found = forecast(np.arange(1.0, 41.0) * 10.0, HYPERBOLA[:40])
    assert found.left == pytest.approx(600.0, rel=0.15)  # within a step of the ends that are tried
    assert found.significant
    assert found.confidence > 0.9
    assert forecast(np.arange(1.0, 5.0), HYPERBOLA[:4]) == (4, np.inf, 0.0, False)


def test_a_diverging_job_loses_the_trust_that_it_had():
    rng = np.random.default_rng(3)
    loss = np.concatenate([HYPERBOLA[:60], HYPERBOLA[60] + 0.02 * np.arange(40)])
    looks = trusted(loss + 0.02 * rng.standard_normal(100))
    assert looks.any()
    assert not looks[-1]


def watched(curves, noise=1e-3):
    """Views of a simulation at each epoch of one job of each family."""
    count = len(curves)
    jobs = JobTable.from_columns([0.0] * count, [1] * count, [1000.0] * count)
    jobs = replace(jobs, loss_curve=np.array(curves), loss_noise=np.full(count, noise))
    sim = arrived(Cluster.homogeneous(1, count), jobs, ideal(), round_seconds=1000.0 / EPOCHS)
    sim.apply([Allocation(j, (j,)) for j in range(count)])
    for _ in range(EPOCHS - 1):
        yield sim.view(Observability.TRAINING_CURVES | Observability.SPEEDS)
        sim.advance()


def test_families_approach_their_target_or_do_not():
    logs = []
    for view in watched(list(LossCurve)):
        logs.append(view.training_loss)
        epochs = view.epochs_logged.tolist()
        assert [len(view.loss_log(j)[1]) for j in range(len(epochs))] == epochs
        assert [view.loss_log(j)[1][-1] if n else 1.0 for j, n in enumerate(epochs)] == logs[-1].tolist()
    logs = np.array(logs)
    assert (logs[0] == 1.0).all()
    ends = dict(zip(LossCurve, logs[-1], strict=True))
    for curve in ("HYPERBOLA", "POWER", "EXPONENTIAL", "DROPS", "OSCILLATION"):
        assert abs(ends[LossCurve[curve]]) < 0.1, curve
    assert 0.2 < ends[LossCurve.PLATEAU] < 0.7
    assert ends[LossCurve.DIVERGENCE] > logs[:, LossCurve.DIVERGENCE].min() + 0.3
    assert ends[LossCurve.FLAT] == pytest.approx(1.0, abs=0.01)
    steps = np.diff(logs[:, LossCurve.RANDOM_WALK])
    assert steps.std() == pytest.approx(1e-3, rel=0.3)
    waves = np.diff(np.sign(np.diff(logs[:, LossCurve.OSCILLATION])))
    assert (waves != 0).sum() >= 8


def test_schedulers_trust_a_log_while_it_looks_like_a_curve():
    curves = LossPredictions()
    left = [curves.iterations_left(view, np.arange(3)) for view in watched([0, 6, 7], noise=0.02)]
    known = ~np.isnan(np.array(left))
    assert known[-20:, 0].all()
    assert known[:, 1].any()
    assert not known[-1, 1]
    assert not known[:, 2].any()
    remaining = np.array(left)[50:80, 0] / (1000 - 10 * np.arange(50, 80))
    assert np.median(remaining) == pytest.approx(1.0, rel=0.5)


def test_jobs_that_are_never_predictable_have_other_curves():
    jobs = AITurboJobs(num_jobs=2000).sample(
        Cluster.homogeneous(2, 2, cores_per_server=32), np.random.default_rng(0)
    )
    never = np.isinf(jobs.predictable_from)
    assert set(jobs.loss_curve[never].tolist()) == set(list(LossCurve)[5:])
    assert set(jobs.loss_curve[~never].tolist()) == set(list(LossCurve)[:5])
    assert (0.014 <= jobs.loss_noise).all()
    assert (jobs.loss_noise <= 0.076).all()
    with pytest.raises(ConfigurationError, match="names 'sine'; expected some of hyperbola"):
        LossCurves(predictable={"sine": 1.0})
