"""The decisions of a round in the order in which a single process would have made them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringyard_agents.learning.peers import Peers

__all__ = ["RoundOrder", "round_order"]


class RoundOrder(NamedTuple):
    """The decisions of all processes: minibatches of them are the same for any number of processes.

    Attributes:
        counts: [decisions] jobs scored in each.
        own: [decisions] where it stands among this process's own; -1: another process made it.
    """

    counts: NDArray[np.int64]
    own: NDArray[np.int64]

    def among_own(self, decisions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of some decisions that this process made, as it counts them."""
        here = self.own[decisions]
        return here[here >= 0]


def round_order(
    peers: Peers, valid: Sequence[NDArray[np.bool_]], counts: NDArray[np.int64] | None = None
) -> RoundOrder:
    """The order world by world, step by step, cluster by cluster.

    Args:
        peers: each calls this with what it has played.
        valid: {of each world} [steps, clusters] where decisions were made.
        counts: [decisions] jobs scored in each, in that order; None: one action each.
    """
    total = sum(int(one.sum()) for one in valid)
    counts = np.ones(total, np.int64) if counts is None else counts
    if peers.size == 1:
        return RoundOrder(counts, np.arange(total))
    places = [
        np.column_stack((np.full(len(step), world), step, cluster + peers.rank * one.shape[1]))
        for world, one in enumerate(valid)
        for step, cluster in [np.nonzero(one)]
    ]
    rows = np.column_stack((np.concatenate(places), counts, np.full(total, peers.rank)))
    every = peers.gathered(rows)
    own = np.full(len(every), -1)
    own[every[:, 4] == peers.rank] = np.arange(total)
    order = np.lexsort((every[:, 2], every[:, 1], every[:, 0]))
    return RoundOrder(every[order, 3], own[order])
