"""Execution plans: closed forms of work, seconds and memory, and what is refused."""

import sys
from dataclasses import replace

import pytest
import yaml

from conftest import CONF, ROOT, names
from ringyard.errors import ConfigurationError

sys.path.insert(0, str(ROOT))  # `tools` is not installed

from ringyard.performance.execution_plans import (
    Plan,
    Transformer,
    check_plan,
    fitted_plan,
    plan_constants,
    plan_memory_bytes,
    plan_models,
    plan_seconds,
    plan_times,
    plan_work,
)

SMALL = Transformer("small", layers=4, hidden=64, heads=8, sequence=32, parameters=1e6, batch=8)
#: computes at the data sheet's speed, all else as shipped
EXACT = {**plan_constants(), "efficiency": 1.0, "half_width": 0.0, "layer_seconds": 0.0}


def seconds(plan, gpus, model=SMALL, **constants):
    return plan_seconds(plan_work(model, plan, gpus), {**EXACT, **constants})


def test_one_gpu_only_computes_and_updates():
    one = seconds(Plan(), [1])
    # forward: 2 FLOP per weight and token, and 4 L h s^2 of attention for each sample; backward: twice that
    flops = 3 * 8 * (2 * 32 * 1e6 + 4 * 4 * 64 * 32**2)
    assert one.compute == pytest.approx(flops / 156e12)
    assert one.update == pytest.approx(1e6 * EXACT["update_seconds"])
    assert one.transfers == one.ring == 0
    assert one.total == pytest.approx(one.compute + one.update)


def test_layers_start_once_for_each_pass_and_micro_batch():
    more = seconds(Plan(micro_batches=4), [1], layer_seconds=1.0).compute - seconds(Plan(), [1]).compute
    assert more == pytest.approx(3 * 4 * 4)  # passes x micro-batches x layers


@pytest.mark.parametrize("n", [2, 4, 8])
def test_bytes_and_seconds_of_a_ring(n):
    inside, apart = seconds(Plan(n), [n]), seconds(Plan(n), [1] * n)
    sent = 2 * (n - 1) / n * 4e6
    assert plan_work(SMALL, Plan(n), [1] * n)["ring_bytes"] == pytest.approx(sent)
    assert inside.ring == pytest.approx(sent / 154e9)
    assert apart.ring == pytest.approx(sent / EXACT["card_bytes_per_second"])
    sharded = plan_work(SMALL, Plan(n, zero=3), [1] * n)
    assert sharded["ring_bytes"] == pytest.approx(1.5 * sent)


def test_a_ring_has_the_cards_of_its_servers_and_shares_them_with_others():
    def ring(plan, gpus):
        sent = plan_work(SMALL, plan, gpus)["ring_bytes"]
        return seconds(plan, gpus).ring * EXACT["card_bytes_per_second"] / sent

    assert ring(Plan(16), [8, 8]) == pytest.approx(1 / 4)  # one ring, four cards
    assert ring(Plan(8), [6, 2]) == pytest.approx(1.0)  # the server with one card is slowest
    assert ring(Plan(2, tensor=8), [8, 8]) == pytest.approx(8 / 4)  # eight rings share four cards
    assert seconds(Plan(2, tensor=4, pipeline=2), [8, 8]).ring == seconds(Plan(2, tensor=4), [8]).ring / 2


def test_the_bubble_of_a_pipeline():
    one = seconds(Plan(), [1]).compute
    for stages, count in ((2, 1), (4, 1), (4, 2), (2, 8)):
        plan = Plan(pipeline=stages, micro_batches=count)
        assert seconds(plan, [stages]).compute == pytest.approx(one / stages * (1 + (stages - 1) / count))


def test_transfers_of_tensor_ranks_and_between_stages():
    activations = 8 * 32 * 64 * 4  # of the batch
    tensor = seconds(Plan(tensor=4), [4]).transfers
    assert tensor == pytest.approx(4 * 4 * activations * 2 * 3 / 4 / 154e9)  # 4 all-reduces of 4 layers
    assert seconds(Plan(tensor=4, checkpointing=True), [4]).transfers == pytest.approx(1.5 * tensor)
    stages = seconds(Plan(pipeline=4), [1] * 4).transfers
    assert stages == pytest.approx(3 * 2 * activations / EXACT["card_bytes_per_second"])
    assert seconds(Plan(tensor=4), [2, 2]).transfers > tensor  # through one card in place of NVLink


def test_offload_moves_the_update_to_the_host():
    plan = Plan(2, zero=2, offload=True)
    work = plan_work(SMALL, plan, [2], cores=5.0)
    assert work["updates"] == 0
    assert work["host_updates"] == pytest.approx(1e6 / 2 / 5)
    assert work["host_bytes"] == pytest.approx(4e6 * 2)  # gradients of a GPU, and weights of the server
    assert plan_work(SMALL, plan, [1, 1])["host_bytes"] == pytest.approx(4e6 * 1.5)


@pytest.mark.parametrize(
    ("plan", "gpus"),
    [(Plan(4), [2, 2]), (Plan(tensor=2, pipeline=2), [2, 2]), (Plan(2, tensor=4, pipeline=2), [4] * 4)],
)
def test_faster_networks_are_never_slower(plan, gpus):
    totals = [seconds(plan, gpus, card_bytes_per_second=speed).total for speed in (1e9, 1e10, 1e11)]
    assert totals[0] > totals[1] > totals[2]
    together = [seconds(plan, [sum(gpus)], card_bytes_per_second=speed).total for speed in (1e9, 1e11)]
    assert together[0] == together[1] < totals[2]


def test_slowdowns_apply_to_what_they_name():
    slow = {"sharded_slowdown": 3.0, "unpaired_slowdown": 5.0, "zero_slowdown": 7.0}
    for plan, gpus, part, factor in (
        (Plan(tensor=2), [2], "compute", 3.0),
        (Plan(2), [2], "compute", 1.0),
        (Plan(2), [1, 1], "ring", 5.0),
        (Plan(4), [2, 2], "ring", 1.0),
        (Plan(4, zero=1), [2, 2], "ring", 7.0),
    ):
        base = getattr(seconds(plan, gpus, sharded_slowdown=1, unpaired_slowdown=1, zero_slowdown=1), part)
        assert getattr(seconds(plan, gpus, **slow), part) == pytest.approx(factor * base)


def test_memory_of_weights_gradients_and_state():
    rest = replace(SMALL, parameters=1.0)

    def bytes_per_weight(plan, model=SMALL, small=rest):
        return (plan_memory_bytes(model, plan) - plan_memory_bytes(small, plan)) / 1e6

    assert bytes_per_weight(Plan()) == pytest.approx(16, rel=1e-4)
    half = replace(SMALL, value_bytes=2)
    assert bytes_per_weight(Plan(), half, replace(half, parameters=1.0)) == pytest.approx(16, rel=1e-4)
    found = [bytes_per_weight(Plan(4, zero=stage)) for stage in (0, 1, 2, 3)]
    assert found == pytest.approx([16, 10, 7, 4], rel=1e-4)
    assert bytes_per_weight(Plan(4, zero=2, offload=True)) == pytest.approx(5, rel=1e-4)
    assert bytes_per_weight(Plan(tensor=2, pipeline=4)) == pytest.approx(2, rel=1e-4)


def test_memory_of_activations():
    none = replace(SMALL, parameters=1e-9)
    inputs = 8 * 32 * 64  # hidden values of the batch
    layer = inputs * (16 * 4 + 2 + 9 * 8 * 32 / 64)
    assert plan_memory_bytes(none, Plan()) == pytest.approx(4 * layer)
    assert plan_memory_bytes(none, Plan(micro_batches=4)) == pytest.approx(layer)
    assert plan_memory_bytes(none, Plan(pipeline=2, micro_batches=4)) == pytest.approx(layer)  # two in flight
    assert plan_memory_bytes(none, Plan(checkpointing=True)) == pytest.approx(4 * 4 * inputs + layer)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Plan(tensor=3), "tensor ranks that divide 32 heads"),
        (Plan(tensor=4, pipeline=33), "at most 32 stages"),
        (Plan(4, tensor=4, micro_batches=4), "at most 8 micro-batches"),
        (Plan(8), r"at most 81\.6 GB on each a800, not .* GB"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(plan, said):
    model = plan_models()["llama7"]
    with pytest.raises(ConfigurationError, match=said):
        check_plan(model, plan)
    with pytest.raises(ConfigurationError, match=said):
        plan_times(model, plan, [plan.data * plan.tensor * plan.pipeline])


def test_what_is_unknown_is_refused():
    with pytest.raises(ConfigurationError, match="no plans for GPU type a8000; expected a800"):
        plan_work(SMALL, Plan(), [1], "a8000")
    with pytest.raises(ConfigurationError, match="on 3 GPUs; expected data x tensor x pipeline"):
        plan_work(SMALL, Plan(2), [2, 1])
    with pytest.raises(ConfigurationError, match="zero is 4"):
        Plan(zero=4)


def test_the_fewest_micro_batches_that_fit():
    models = plan_models()
    # Morphling's validation of GPT-2 has 8 and 4 steps of 2 samples, then one of 4 (validate_gpt.py)
    found = [fitted_plan(models["gpt2"], Plan(gpus, zero=2)).micro_batches for gpus in (1, 2, 4)]
    assert found == [8, 4, 1]
    offload = fitted_plan(models["llama7"], Plan(2, zero=2, offload=True))
    assert offload.checkpointing
    assert not fitted_plan(models["bert"], Plan(2, zero=2, offload=True)).checkpointing
    with pytest.raises(ConfigurationError, match=r"llama30 with .* not .* GB"):
        fitted_plan(models["llama30"], Plan())


def test_a_measured_row_replaces_the_total():
    bert, plan = plan_models()["bert"], Plan(4)
    predicted = plan_times(bert, plan, (2, 2))
    assert predicted == plan_seconds(plan_work(bert, plan, (2, 2)), plan_constants("bert"))
    found = plan_times(bert, plan, (2, 2), measured=2 * predicted.total)
    assert found.total == pytest.approx(2 * predicted.total)
    assert found.ring == pytest.approx(2 * predicted.ring)


def test_a_model_without_constants_has_the_shared_ones():
    assert plan_constants("no such model") == plan_constants() != plan_constants("gpt2")
    assert plan_constants("gpt2")["half_width"] == plan_constants()["half_width"]


@pytest.mark.parametrize("name", names("plan_models"))
def test_shipped_models_say_where_their_figures_are_from(name):
    assert plan_models()[name].source


@pytest.mark.parametrize("name", names("plan_gpus"))
def test_shipped_gpus_run_plans(name):
    sheet = yaml.safe_load((CONF / "plan_gpus" / f"{name}.yaml").read_text())
    assert set(sheet) == {"flops", "memory_bytes", "bytes_per_second"}
    assert plan_seconds(plan_work(SMALL, Plan(2), [2], name), plan_constants()).total > 0


def test_a_users_model_joins(tmp_path, monkeypatch):
    (tmp_path / "plan_models").mkdir()
    text = (CONF / "plan_models" / "bert.yaml").read_text().replace("layers: 24", "layers: 12")
    (tmp_path / "plan_models" / "mine.yaml").write_text(text)
    monkeypatch.setenv("RINGYARD_CONF", str(tmp_path))
    assert plan_models()["mine"].layers == 12
