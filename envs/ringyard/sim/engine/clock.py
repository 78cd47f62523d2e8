"""When rounds are, and the time integrals that metrics, rewards and curves are made of."""

import numpy as np

from ringyard.compiled import kernel
from ringyard.state.arrays import State
from ringyard.state.records import Integral

__all__ = ["integrate", "is_round", "next_round"]

_JOBS = int(Integral.JOBS_IN_SYSTEM)
_INVERSE = int(Integral.INVERSE_DURATION_IN_SYSTEM)
_ELAPSED = int(Integral.ELAPSED)
_BUSY = int(Integral.BUSY_GPUS)
_FRAGMENTED = int(Integral.FRAGMENTED_GPUS)
_FREE_QUEUE = int(Integral.FREE_GPUS_WITH_QUEUE)
_FAIR_SHARE = int(Integral.FAIR_SHARE)


@kernel
def next_round(now: float, seconds: float) -> float:
    """When the first round after `now` begins: round k is at k x seconds, and always later than `now`.

    Rounds closer to one another than floating-point numbers are near `now` follow at the next such number.
    """
    following = float(np.nextafter(now, np.inf))
    k = np.floor(now / seconds) + 1.0
    if k > 2.0**53:
        return following
    if (k - 1.0) * seconds > now:  # the quotient was rounded up
        k -= 1.0
    elif k * seconds <= now:  # or down
        k += 1.0
    return max(k * seconds, following)


@kernel
def is_round(now: float, seconds: float) -> bool:
    """Whether a round begins at `now`, the first at 0."""
    return next_round(float(np.nextafter(now, -np.inf)), seconds) == now


@kernel
def _halve_timeline(state: State, b: int) -> None:
    """Merge pairs of bins, so that the same number of bins covers twice the time."""
    bins = state.timeline.shape[1]
    half = bins // 2
    for i in range(half):
        for column in range(state.timeline.shape[2]):
            pair = state.timeline[b, 2 * i, column] + state.timeline[b, 2 * i + 1, column]
            state.timeline[b, i, column] = pair
    for i in range(half, bins):
        for column in range(state.timeline.shape[2]):
            state.timeline[b, i, column] = 0.0
    state.clusters[b].timeline_bin_log2 += 1


@kernel
def _fill_timeline(state: State, b: int, until: float) -> None:
    """Spread the present queue length and busy GPUs over the bins from now to `until`."""
    cluster = state.clusters[b]
    bins = state.timeline.shape[1]
    while until >= bins * 2.0**cluster.timeline_bin_log2:
        _halve_timeline(state, b)
    width = 2.0**cluster.timeline_bin_log2
    busy = cluster.num_gpus - cluster.free_gpus - cluster.down_gpus
    begin = cluster.now
    i = int(begin / width)
    while begin < until:
        end = min(until, (i + 1) * width)
        state.timeline[b, i, 0] += cluster.num_waiting * (end - begin)
        state.timeline[b, i, 1] += busy * (end - begin)
        begin = end
        i += 1


@kernel
def integrate(state: State, b: int, until: float) -> None:
    """Add the stretch from now to `until`, in which nothing changes, to every integral."""
    cluster = state.clusters[b]
    elapsed = until - cluster.now
    if elapsed <= 0.0:
        return
    jobs = cluster.num_waiting + cluster.num_running
    row = state.integrals[b]
    row[_JOBS] += jobs * elapsed
    row[_INVERSE] += cluster.inverse_durations * elapsed
    row[_ELAPSED] += elapsed
    row[_BUSY] += (cluster.num_gpus - cluster.free_gpus - cluster.down_gpus) * elapsed
    row[_FRAGMENTED] += cluster.fragmented_gpus * elapsed
    if cluster.num_waiting > 0:
        row[_FREE_QUEUE] += cluster.free_gpus * elapsed
    row[_FAIR_SHARE] += max(1.0, cluster.demanded_gpus / cluster.num_gpus) * elapsed
    if state.timeline.shape[1] > 0:
        _fill_timeline(state, b, until)
