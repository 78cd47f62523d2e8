"""Shares of link bandwidth by need, after PARTEL (Wen et al., arXiv 2003.04544) and GADGET's reservations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard import Allocation, Observability, PlacementPlan, PlacementRule, SchedulingView
from ringyard.checks import checked
from ringyard_baselines.scheduler import Capabilities, Scheduler
from ringyard_baselines.tools.predictions import expected_seconds_left

#: shares are powers of 2 from 2**-3 to 2**3, so that one changes only when a job's need has changed by much
_MOST_DOUBLINGS = 3


@checked("link_shares")
@dataclass(eq=False)
class LinkShares(Scheduler):
    """Start the shortest job first, and give rings bandwidth by their time left or by their load.

    FOUND (abstract of PARTEL): bandwidth is allocated by the computation load of each worker, most to the
    one that the others wait for. FOUND (GADGET): each ring has reserved bandwidth.

    Assumed: jobs on a cluster stand for the workers of one model at the edge. They do not wait for each
    other, so that most goes to those that end soon, unless `load_power` is given. A share is (bytes of
    gradients per isolated second) ** load_power / (expected seconds left) ** time_power, over the median of
    all rings that span servers.

    Args:
        placement: where jobs go.
        time_power: power of the expected isolated seconds left, at least one. 0: they do not count.
        load_power: power of what a ring sends. With both at 0, links are divided equally.
    """

    name = "link_shares"
    observability = Observability.SIZES | Observability.PREDICTIONS
    capabilities = Capabilities.CORES

    placement: PlacementRule
    time_power: Annotated[float, "[0, 10]"] = 1.0
    load_power: Annotated[float, "[0, 10]"] = 0.0

    def decide(self, view: SchedulingView) -> Sequence[Allocation]:
        """Start jobs in order of the expected seconds left, then give each ring its share."""
        waiting, running = np.sort(view.waiting), view.running
        order = np.argsort(expected_seconds_left(view, waiting), kind="stable")
        started = PlacementPlan(view).start(self.placement, waiting[order])
        server = view.cluster.server_of_gpu
        new = [one.job for one in started if len(np.unique(server[list(one.gpu_ids)])) > 1]
        old = running[view.column("num_servers")[running] > 1].tolist()
        shares = self._shares(view, np.array([*old, *new], np.int64))
        present = view.column("link_share")
        return [replace(one, link_share=shares.get(one.job)) for one in started] + [
            Allocation(job, view.gpus_of(job), link_share=shares[job])
            for job in old
            if shares[job] != present[job]
        ]

    def _shares(self, view: SchedulingView, rings: NDArray[np.int64]) -> dict[int, float]:
        """Return {row of a ring: its link share}."""
        seen, left = view.select(rings), np.maximum(expected_seconds_left(view, rings), 1.0)
        sent = np.maximum(seen.column("gradient_bytes") / seen.column("isolated_iteration_seconds"), 1.0)
        need = sent**self.load_power / left**self.time_power
        doublings = np.rint(np.log2(need / np.median(need))) if len(rings) else need
        shares = np.exp2(np.clip(doublings, -_MOST_DOUBLINGS, _MOST_DOUBLINGS))
        return dict(zip(rings.tolist(), shares.tolist(), strict=True))
