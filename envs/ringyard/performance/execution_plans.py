"""Execution plans of transformers: seconds of an iteration by placement, and memory on each GPU.

A plan splits training over data, tensor and pipeline ranks. They are numbered as in Megatron-LM: tensor ranks
are neighbours, then data ranks, then pipeline stages. They fill the servers of a placement in order.
"""

import functools
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import yaml
from numpy.typing import NDArray

from ringyard.checks import Positive, PositiveInt, checked, shown, suggest
from ringyard.config_folder import config_files, config_folder
from ringyard.errors import ConfigurationError

_USABLE_MEMORY = 0.95  # share of a GPU. Assumption: the rest is of CUDA, NCCL and fragmentation.
_GPUS_PER_CARD = 2  # GPUs of a server for each network card. Assumption: 4 cards for 8 A800.


@checked("plan_model")
@dataclass(frozen=True)
class Transformer:
    """Public architecture of a model, and its training."""

    name: str
    layers: PositiveInt
    hidden: PositiveInt  #: hidden size
    heads: PositiveInt  #: attention heads
    sequence: PositiveInt  #: tokens of a sample
    parameters: Positive  #: number of weights
    batch: PositiveInt  #: global batch, samples
    value_bytes: Literal[2, 4] = 4  #: of a weight, gradient or activation
    plans: Sequence[str] = ("ga", "gc", "zero-dp", "zero-offload")  #: names of its plans (`named_plan`)
    most_gpus: PositiveInt = 8  #: largest number of GPUs that a job may hold
    source: str = ""  #: reference

    def __post_init__(self) -> None:
        object.__setattr__(self, "plans", tuple(self.plans))  # models are keys of caches


@checked("plan")
@dataclass(frozen=True)
class Plan:
    """An execution plan, on data x tensor x pipeline GPUs."""

    data: PositiveInt = 1  #: replicas
    tensor: PositiveInt = 1  #: ranks that share each layer
    pipeline: PositiveInt = 1  #: stages of layers
    zero: Annotated[int, "[0, 3]"] = 0  #: ZeRO stage. 0: none
    offload: bool = False  #: whether the host holds and updates the optimizer's state (ZeRO-Offload)
    checkpointing: bool = False  #: whether the backward pass computes activations again
    micro_batches: PositiveInt = 1  #: of a replica's share of the batch


#: {name of a plan with data-parallel ranks only: its options}, as Morphling names them
DATA_PARALLEL_PLANS: Mapping[str, Mapping[str, Any]] = {
    "ga": {},
    "gc": {"checkpointing": True},
    "zero-dp": {"zero": 2},
    "zero-offload": {"zero": 2, "offload": True},
}


#: replicas alone; ZeRO, offloading or checkpointing, to save memory; tensor or pipeline ranks, which share
#: the model and send least between servers
PLAN_CLASSES = ("data", "memory", "model")


def plan_class(name: str) -> str:
    """Return the one of PLAN_CLASSES that the plan `name` belongs to."""
    return "model" if name not in DATA_PARALLEL_PLANS else "memory" if DATA_PARALLEL_PLANS[name] else "data"


def named_plan(name: str, gpus: int) -> Plan | None:
    """Return the plan `name` on so many GPUs, or None if its ranks do not divide them.

    Names are those of DATA_PARALLEL_PLANS, and such as t4p2: 4 tensor ranks in each of 2 pipeline stages.
    """
    if name in DATA_PARALLEL_PLANS:
        return Plan(gpus, **DATA_PARALLEL_PLANS[name])
    degrees = re.fullmatch("t([0-9]+)p([0-9]+)", name)
    if degrees is None:
        expected = f"one of {', '.join(DATA_PARALLEL_PLANS)}, or degrees as in t4p2"
        raise ConfigurationError(f"there is no plan {shown(name)}; expected {expected}")
    tensor, pipeline = map(int, degrees.groups())
    data, left = divmod(gpus, tensor * pipeline)
    return None if left else Plan(data, tensor, pipeline)


class PlanSeconds(NamedTuple):
    """Seconds of an iteration by part: numbers, or arrays [rows]. Other jobs can slow `ring`."""

    compute: Any  #: seconds of forward and backward passes, with pipeline bubble
    transfers: Any  #: of tensor ranks, and between pipeline stages
    update: Any  #: optimizer and offloading
    ring: Any  #: gradients of data-parallel ranks

    @property
    def total(self) -> Any:
        """Seconds of an iteration."""
        return sum(self)


def plan_models() -> dict[str, Transformer]:
    """Return {name: model} of conf/plan_models and RINGYARD_CONF."""
    files = config_files("plan_models").items()
    return {name: Transformer(name, **yaml.safe_load(file.read_text())) for name, file in files}


@functools.cache
def plan_constants(model: str = "") -> Mapping[str, float]:
    """Return the constants of a model in conf/plan_constants.yaml, for others those that all share."""
    fitted = yaml.safe_load((config_folder() / "plan_constants.yaml").read_text())
    return {**fitted["shared"], **fitted["models"].get(model, {})}


@functools.cache
def data_sheet(gpu_type: str) -> Mapping[str, Any]:
    """Return the figures of a GPU type of conf/plan_gpus."""
    if gpu_type not in (sheets := config_files("plan_gpus")):
        raise ConfigurationError(f"no plans for GPU type {gpu_type}; expected {suggest(gpu_type, sheets)}")
    return dict(yaml.safe_load(sheets[gpu_type].read_text()))


def _cards(groups: NDArray[np.int64], gpus: Sequence[int]) -> float:
    """Return the cards of the slowest of groups [groups, members] of servers. 0: all stay inside."""
    crossing = [set(group) for group in groups.tolist() if len(set(group)) > 1]
    users = np.bincount([server for group in crossing for server in group], minlength=len(gpus))
    shares = (math.ceil(gpus[one] / _GPUS_PER_CARD) / users[one] for group in crossing for one in group)
    return float(min(shares, default=0.0))


@functools.cache
def _links(data: int, tensor: int, pipeline: int, gpus: tuple[int, ...]) -> tuple[float, float, list[float]]:
    """Return `_cards` of the data-parallel rings, of tensor ranks, and of each pair of stages."""
    servers = np.repeat(np.arange(len(gpus)), gpus).reshape(pipeline, data, tensor)
    rings, tensors = servers.transpose(0, 2, 1).reshape(-1, data), servers.reshape(-1, tensor)
    pairs = [servers[stage : stage + 2].reshape(2, -1).T for stage in range(pipeline - 1)]
    return _cards(rings, gpus), _cards(tensors, gpus), [_cards(pair, gpus) for pair in pairs]


def plan_work(
    model: Transformer, plan: Plan, gpus: Sequence[int], gpu_type: str = "a800", cores: float = 4.0
) -> dict[str, float]:
    """Return the work of an iteration on `gpus` of each server, with CPU `cores` for each GPU.

    A pass has 2 FLOP per weight and token, and attention's (Narayanan et al., SC 2021), a backward pass twice
    that. m micro-batches in p stages have a bubble of (p - 1) / m (Huang et al., NeurIPS 2019). Tensor ranks
    reduce a layer's activations twice in each pass (Megatron-LM). ZeRO's stage 3 sends half as much again
    (Rajbhandari et al., SC 2020). Offload moves all gradients to the host, and weights back by its server.
    """
    n, t, p, value = plan.data, plan.tensor, plan.pipeline, model.value_bytes
    if sum(gpus) != n * t * p:
        raise ConfigurationError(f"{plan} on {sum(gpus)} GPUs; expected data x tensor x pipeline GPUs")
    sheet, (ring_cards, tensor_cards, stages) = data_sheet(gpu_type), _links(n, t, p, tuple(gpus))
    inside, passes = sheet["bytes_per_second"], 3 + plan.checkpointing
    turns = (1 + (p - 1) / plan.micro_batches) / p  # a stage's share of an iteration, with bubble
    tokens, shard = model.batch / n * model.sequence, model.parameters / (t * p)
    forward = 2 * tokens * (model.parameters + 2 * model.layers * model.hidden * model.sequence)
    activations = tokens * model.hidden * value
    reduced = 2 * (passes - 1) * model.layers * activations * 2 * (t - 1) / t * turns
    ring = (3 if plan.zero == 3 else 2) * (n - 1) / n * shard * value
    updates = shard / (n if plan.zero else 1)
    odd = n > 1 and len(gpus) > 1 and not plan.offload and any(count % 2 for count in gpus)
    return {
        "peak_seconds": passes * forward / t * turns / sheet["flops"][value],
        "hidden": model.hidden,
        "layer_passes": passes * plan.micro_batches * model.layers * turns,
        "sharded": float(t * p > 1),
        "unpaired": float(odd),
        # of tensor ranks and between stages: in a server, and through a network card
        "inside_seconds": (reduced * (not tensor_cards) + 2 * activations * turns * stages.count(0)) / inside,
        "card_bytes": reduced / (tensor_cards or np.inf)
        + sum(2 * activations * turns / cards for cards in stages if cards),
        "ring_bytes": ring,
        "ring_inside_seconds": 0.0 if ring_cards else ring / inside,
        "ring_card_bytes": ring / (ring_cards or np.inf),
        "zero": float(plan.zero > 0),
        "updates": updates * (not plan.offload),  # parameters by a GPU, and by a CPU core
        "host_updates": updates / cores * plan.offload,
        "host_bytes": shard * value * (1 + max(gpus) / sum(gpus)) * plan.offload,
    }


def plan_seconds(work: Mapping[str, Any], constants: Mapping[str, Any]) -> PlanSeconds:
    """Return the seconds of `plan_work` by `plan_constants`. Measured parts add up: nothing overlaps."""
    share = constants["efficiency"] * work["hidden"] / (work["hidden"] + constants["half_width"])
    compute = work["peak_seconds"] / share * constants["sharded_slowdown"] ** work["sharded"]
    compute = compute + constants["layer_seconds"] * work["layer_passes"]
    transfers = work["inside_seconds"] + work["card_bytes"] / constants["card_bytes_per_second"]
    update = (
        constants["update_seconds"] * work["updates"]
        + constants["host_update_seconds"] * work["host_updates"]
    )
    update = update + work["host_bytes"] / constants["host_bytes_per_second"]
    ring = work["ring_inside_seconds"] + work["ring_card_bytes"] / constants["card_bytes_per_second"]
    parts = compute, transfers, update, ring * constants["zero_slowdown"] ** work["zero"]
    factor = constants["unpaired_slowdown"] ** work["unpaired"]
    return PlanSeconds(*(part * factor for part in parts))


def plan_memory_bytes(model: Transformer, plan: Plan) -> float:
    """Return the bytes on each GPU: weights, gradients, Adam's state and activations.

    ZeRO shards state, then gradients, then weights over replicas (Rajbhandari et al., SC 2020). For each
    hidden value, a layer keeps 16 values and 2 bytes of masks, of which tensor ranks share 11 values and the
    masks. For each attention score it keeps 2 values and a byte (Korthikanti et al., MLSys 2023). Stages keep
    activations of min(p, m) micro-batches (1F1B). Checkpointing keeps inputs of layers, and one whole layer.
    """
    t, p, value = plan.tensor, plan.pipeline, model.value_bytes
    shards = [plan.data if plan.zero >= stage else 1 for stage in (1, 2, 3)]
    state = 0 if plan.offload else 8 if value == 4 else 12  # 16-bit training keeps 32-bit weights too
    weights = model.parameters / (t * p) * (state / shards[0] + value / shards[1] + value / shards[2])
    inputs = model.batch / plan.data / plan.micro_batches * model.sequence * model.hidden
    scores = model.heads * model.sequence / model.hidden
    layer = inputs * (5 * value + (11 * value + 2 + (2 * value + 1) * scores) / t)
    held = min(p, plan.micro_batches) * math.ceil(model.layers / p)
    return weights + (held * inputs * value + layer if plan.checkpointing else held * layer)


def check_plan(model: Transformer, plan: Plan, gpu_type: str = "a800") -> None:
    """Raise a ConfigurationError unless the plan can split the model and fits into GPUs of a type."""
    needed, there = plan_memory_bytes(model, plan), _USABLE_MEMORY * data_sheet(gpu_type)["memory_bytes"]
    wrong = {
        f"tensor ranks that divide {model.heads} heads": model.heads % plan.tensor,
        f"at most {model.layers} stages": plan.pipeline > model.layers,
        f"at most {model.batch} micro-batches of all replicas": plan.data * plan.micro_batches > model.batch,
        f"at most {there / 1e9:.1f} GB on each {gpu_type}, not {needed / 1e9:.1f} GB (more ranks or"
        " micro-batches, ZeRO, offload and checkpointing need less)": needed > there,
    }
    for expected in (expected for expected, is_wrong in wrong.items() if is_wrong):
        raise ConfigurationError(f"{model.name} with {plan}: expected {expected}")


def fitted_plan(model: Transformer, plan: Plan, gpu_type: str = "a800") -> Plan:
    """Return the plan with the fewest micro-batches that fit, checkpointing where none do without it."""
    most = max(model.batch // plan.data, 1)
    splits = [replace(plan, micro_batches=count) for count in range(1, most + 1) if most % count == 0]
    for choice in [*splits, *(replace(one, checkpointing=True) for one in splits)]:
        with suppress(ConfigurationError):
            check_plan(model, choice, gpu_type)
            return choice
    check_plan(model, splits[-1], gpu_type)
    return splits[-1]


def rings_cross(plan: Plan, gpus: Sequence[int]) -> bool:
    """Return whether rings of data-parallel ranks cross servers with so many `gpus` each."""
    return _links(plan.data, plan.tensor, plan.pipeline, tuple(gpus))[0] > 0


def plan_times(
    model: Transformer,
    plan: Plan,
    gpus: Sequence[int],
    gpu_type: str = "a800",
    measured: float | None = None,
) -> PlanSeconds:
    """Return the seconds of an iteration by the analytic model, or `measured` ones in its parts.

    A plan that does not fit is refused by `check_plan`.
    """
    check_plan(model, plan, gpu_type)
    predicted = plan_seconds(plan_work(model, plan, gpus, gpu_type), plan_constants(model.name))
    factor = 1.0 if measured is None else measured / predicted.total
    return PlanSeconds(*(part * factor for part in predicted))
