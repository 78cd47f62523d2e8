"""The fit of constants of execution plans."""

import sys

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT

sys.path.insert(0, str(ROOT))  # `tools` is not installed

from ringyard.performance.execution_plans import Plan, plan_constants, plan_models, plan_seconds, plan_work
from tools.calibration.plans import fit_plans, plan_priors

PLACES = [
    (Plan(2), (2,)),
    (Plan(4), (2, 2)),
    (Plan(4), (1, 1, 1, 1)),
    (Plan(4, zero=2), (2, 2)),
    (Plan(8, zero=2), (4, 4)),
    (Plan(8, checkpointing=True), (8,)),
    (Plan(4, zero=2, offload=True), (4,)),
    (Plan(2, zero=2, offload=True), (1, 1)),
    (Plan(2, tensor=2, pipeline=2), (4, 4)),
    (Plan(tensor=4), (4,)),
]


def rows(models, constants):
    found = []
    for model in models:
        for plan, gpus in PLACES:
            work = plan_work(plan_models()[model], plan, gpus)
            seconds = plan_seconds(work, constants[model]).total
            found.append({"model": model, "seconds": seconds, **work})
    return pd.DataFrame(found)


def test_priors_name_every_constant():
    assert list(plan_priors()) == list(plan_constants())
    assert all(initial > 0 <= min(shared, own) for initial, shared, own in plan_priors().values())


def test_rows_of_known_constants_are_predicted():
    models = ["bert", "gpt2", "llama7"]
    true = {model: plan_constants("gpt2") for model in models}
    table = rows(models, true)
    found = fit_plans(table.model, table, table.seconds.to_numpy())
    for model in models:
        mine = table[table.model == model]
        assert plan_seconds(mine, found[model]).total.to_numpy() == pytest.approx(mine.seconds, rel=0.03)
    assert found[""]["card_bytes_per_second"] == pytest.approx(true["gpt2"]["card_bytes_per_second"], rel=0.1)


def test_a_model_apart_moves_its_own_constants_only():
    models = ["bert", "gpt2", "t5"]
    true = {model: plan_constants() for model in models}
    true["t5"] = {**true["t5"], "sharded_slowdown": 4.0}
    table = rows(models, true)
    found = fit_plans(table.model, table, table.seconds.to_numpy())
    assert found["t5"]["sharded_slowdown"] > 2.5
    assert found["bert"]["sharded_slowdown"] == pytest.approx(1, abs=0.1)
    assert found[""]["sharded_slowdown"] == 1


def test_constants_without_deviation_stay():
    table = rows(["bert", "gpt2"], {model: plan_constants() for model in ("bert", "gpt2")})
    found = fit_plans(table.model, table, 2 * table.seconds.to_numpy())
    held = [name for name, (_, shared, own) in plan_priors().items() if shared == own == 0]
    assert held == ["update_seconds"]
    assert all(constants["update_seconds"] == pytest.approx(75e-12) for constants in found.values())
    assert np.isfinite(pd.DataFrame(found)).all().all()
