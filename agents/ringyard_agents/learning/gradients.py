"""Gradients of a sum of losses, some at once on several cores: the same bits for any number of threads."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ringyard.threads import get_num_threads, in_parts

__all__ = ["add_gradients"]

FOUND = TypeVar("FOUND")


def add_gradients(
    network: nn.Module, losses: Sequence[Callable[[], tuple[torch.Tensor, FOUND]]]
) -> list[FOUND]:
    """Add the gradients of several losses, in their order, to a network's; what each has found besides.

    Args:
        network: whose parameters learn.
        losses: each gives (its loss, what it has found); on a processor they are computed in threads, and
            may not change anything that they share.
    """
    parameters = [one for one in network.parameters() if one.requires_grad]

    def some(which: NDArray[np.int64]) -> list[tuple[tuple[torch.Tensor | None, ...], FOUND]]:
        torch.set_num_threads(1)  # of this thread
        done: list[tuple[tuple[torch.Tensor | None, ...], FOUND]] = []
        for i in which.tolist():
            loss, found = losses[i]()
            done.append((torch.autograd.grad(loss, parameters, allow_unused=True), found))
        return done

    threads = get_num_threads() if parameters[0].device.type == "cpu" else 1
    done = [one for part in in_parts(some, np.arange(len(losses)), threads, 1) for one in part]
    for gradients, _ in done:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    return [found for _, found in done]
