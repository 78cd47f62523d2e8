"""The pointer policy's network on a processor: no autograd inside, and only what present items need.

It computes what `PointerNetwork.forward_by_torch` does, where running jobs have no moves.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringyard_agents.learning.pointer_kernels import (
    add_encoded_means,
    add_gradients_of_means,
    add_gradients_of_starts,
    add_means_of_jobs,
    join_jobs,
    pack_jobs,
)

if TYPE_CHECKING:
    from ringyard_agents.learning.policies import PointerNetwork

__all__ = ["Seen", "compiled_forward"]


class Seen(NamedTuple):
    """What is seen of each kind of item.

    Attributes:
        waiting: [B, slots, features]; waits [B, slots] where there is a job.
        placements: [B, slots, templates * features].
        running: [B, slots, features]; runs [B, slots] where there is a job.
        servers: [B, servers, features].
        cluster: [B, features].
    """

    waiting: Tensor
    waits: Tensor
    placements: Tensor
    running: Tensor
    runs: Tensor
    servers: Tensor
    cluster: Tensor


class _Layer(NamedTuple):
    """A linear layer's parameters, or the gradients by them."""

    weight: Tensor
    bias: Tensor

    def of(self, values: Tensor) -> Tensor:
        """[rows, outputs] of values [rows, inputs]."""
        return torch.addmm(self.bias, values, self.weight.t())


def _by_layer(values: Tensor, by_result: Tensor) -> _Layer:
    """The gradients by a layer's parameters, from what it was given and the gradient by its result."""
    return _Layer(by_result.t() @ values, by_result.sum(0))


def _by_active(by_result: Tensor, result: Tensor) -> Tensor:
    """The gradient by what a relu was given."""
    gradient: Tensor = torch.ops.aten.threshold_backward(by_result, result, 0)
    return gradient


class _Means:
    """Means of encoded items.

    Args:
        items, present: see `add_encoded_means`.
        layer: encodes them.
        first: column of what is pooled where the means begin.
    """

    def __init__(self, items: Tensor, present: NDArray[np.bool_], layer: _Layer, first: int) -> None:
        weight, bias = layer.weight.t().contiguous().numpy(), layer.bias.numpy()
        self._given = items.contiguous().numpy(), present, weight, bias
        self._first = first
        self._scratch = np.empty((2, len(bias)), bias.dtype)

    def add_to(self, pooled: Tensor) -> None:
        """Add them to what is pooled."""
        add_encoded_means(*self._given, pooled.numpy(), self._first, self._scratch)

    def by_layer(self, by_pooled: Tensor) -> _Layer:
        """The gradients by the layer's parameters."""
        _, _, weight, bias = self._given
        by_weight, by_bias = np.zeros_like(weight), np.zeros_like(bias)
        add_gradients_of_means(
            *self._given, by_pooled.numpy(), self._first, self._scratch, by_weight, by_bias
        )
        return _Layer(torch.from_numpy(by_weight).t(), torch.from_numpy(by_bias))


class _Forward(torch.autograd.Function):
    """`compiled_forward`, with gradients by the parameters."""

    @staticmethod
    def forward(ctx: Any, seen: Seen, num_actions: int, rule: Tensor, *parameters: Tensor) -> Any:
        layers = [_Layer(*pair) for pair in zip(parameters[::2], parameters[1::2], strict=True)]
        job, job_2, running, server, around, around_2, to_job, to_rule, placement, start, wait = layers
        count, width = len(seen.waiting), len(to_job.bias)

        waits = seen.waits.numpy()
        num_jobs, templates = int(np.count_nonzero(waits)), len(rule)
        jobs = rule.new_empty(num_jobs, seen.waiting.shape[2])
        placements = rule.new_empty(num_jobs, seen.placements.shape[2])
        rows = torch.empty(num_jobs, dtype=torch.int64)
        places = torch.empty(num_jobs * templates, dtype=torch.int64)
        shares = rule.new_empty(num_jobs)
        pack_jobs(
            seen.waiting.contiguous().numpy(),
            seen.placements.contiguous().numpy(),
            waits,
            num_actions,
            *(one.numpy() for one in (jobs, placements, rows, shares, places)),
        )
        placements = placements.view(-1, placement.weight.shape[1])

        hidden = job.of(jobs).relu_()
        encoded = job_2.of(hidden)
        pooled = rule.new_zeros(count, 2 * width + len(server.bias) + seen.cluster.shape[1])
        add_means_of_jobs(*(one.numpy() for one in (encoded, rows, shares, pooled)))
        pooled[:, pooled.shape[1] - seen.cluster.shape[1] :] = seen.cluster
        everywhere = np.ones(seen.servers.shape[:2], np.bool_)
        means = (
            _Means(seen.running, seen.runs.numpy(), running, width),
            _Means(seen.servers, everywhere, server, 2 * width),
        )
        for one in means:
            one.add_to(pooled)
        context_1 = around.of(pooled).relu_()
        context = around_2.of(context_1).relu_()

        fitted = torch.empty_like(encoded)
        join_jobs(*(one.numpy() for one in (encoded, rows, to_job.of(context), fitted)))
        starts = placement.of(placements)
        each = starts.view(-1, *rule.shape)
        each.add_(to_rule.of(fitted).unsqueeze(1)).add_(rule).relu_()
        logits = rule.new_zeros(count, num_actions)
        logits.view(-1).index_copy_(0, places, start.of(starts)[:, 0])
        logits[:, -1:] = wait.of(context)

        ctx.save_for_backward(context, *parameters)
        ctx.means, ctx.of_job = means, rule.shape
        ctx.kept = jobs, placements, rows, places, shares, hidden, encoded, pooled, context_1, fitted, starts
        return logits, context

    @staticmethod
    def backward(ctx: Any, by_logits: Tensor, by_context: Tensor) -> Any:
        context, *parameters = ctx.saved_tensors
        layers = [_Layer(*pair) for pair in zip(parameters[::2], parameters[1::2], strict=True)]
        _, job_2, _, _, around, around_2, to_job, to_rule, _, start, wait = layers
        jobs, placements, rows, places, shares, hidden, encoded, pooled, context_1, fitted, starts = ctx.kept
        width = encoded.shape[1]

        by_start = by_logits.reshape(-1).index_select(0, places).unsqueeze(1)
        by_rules, by_rule = fitted.new_zeros(len(rows), ctx.of_job[1]), fitted.new_zeros(ctx.of_job)
        by_placement = fitted.new_zeros(placements.shape[1], ctx.of_job[1])
        add_gradients_of_starts(
            by_start.view(-1, ctx.of_job[0]).numpy(),
            start.weight[0].numpy(),
            *(one.numpy() for one in (starts, placements, torch.empty_like(start.weight[0]))),
            *(one.numpy() for one in (by_rules, by_rule, by_placement)),
        )
        by_fitted = _by_active(by_rules @ to_rule.weight, fitted)
        by_to_job = torch.zeros_like(context).index_add_(0, rows, by_fitted)

        by_wait = by_logits[:, -1:]
        by_context = by_context + by_wait * wait.weight
        by_context = _by_active(by_context.addmm_(by_to_job, to_job.weight), context)
        by_context_1 = _by_active(by_context @ around_2.weight, context_1)
        by_pooled = by_context_1 @ around.weight

        by_shared = by_pooled[:, :width].index_select(0, rows).mul_(shares.unsqueeze(1))
        by_encoded = by_fitted.add_(_by_active(by_shared, encoded))
        by_hidden = _by_active(by_encoded @ job_2.weight, hidden)
        found = (
            _by_layer(jobs, by_hidden),
            _by_layer(hidden, by_encoded),
            *(one.by_layer(by_pooled) for one in ctx.means),
            _by_layer(pooled, by_context_1),
            _by_layer(context_1, by_context),
            _by_layer(context, by_to_job),
            _by_layer(fitted, by_rules),
            _Layer(by_placement.t(), by_rule.sum(0)),
            _by_layer(starts, by_start),
            _by_layer(context, by_wait),
        )
        return None, None, by_rule, *(one for layer in found for one in layer)


def compiled_forward(network: "PointerNetwork", seen: Seen, num_actions: int) -> tuple[Tensor, Tensor]:
    """(logits [B, actions], context [B, width]) of a network whose running jobs have no moves."""
    layers: Any = (
        *(network.job[0], network.job[2], network.running[0], network.server[0]),
        *(network.context[0], network.context[2], network.context_to_job, network.job_to_rule),
        *(network.placement, network.start, network.wait),
    )
    parameters = [one for layer in layers for one in (layer.weight, layer.bias)]
    found: Any = _Forward.apply(seen, num_actions, network.rule, *parameters)  # type: ignore[no-untyped-call]
    logits, context = found
    return logits, context
