"""`python -m tools.volunteers`: stages on volunteers' GPUs, by rules, learned and exact.

Only abstracts of FusionAI and RESPECT were at hand. The two placements of their kind are therefore our own
rules. Every constant below is an assumption, except peak speeds and memory, which are those of data sheets.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from ringyard_agents.command_line import Arguments

_CARDS = ((35.6e12, 24e9), (13.4e12, 11e9))  # FLOP/s and bytes: RTX 3090, RTX 2080 Ti
_REACHED = 0.4  # share of peak FLOP/s
_UNITS = 12  # equal groups of layers, the smallest stage
_MODELS = ((24, 1024, 512), (24, 1024, 1024), (36, 1280, 1024), (48, 1600, 1024))  # layers, width, sequence
_BYTES = 16  # of weight, gradient and optimizer state for each parameter
_MICRO_BATCHES = 32
_EPOCH = 1800.0  # seconds between two changes of the peers
_LEAVE, _RETURN = 0.05, 0.3  # chances by peer and epoch
_RESTART = 30.0  # seconds of each new placement

Floats = NDArray[np.float64]
Plan = list[tuple[int, int]]  # (peer, units) by stage


class Instance(NamedTuple):
    """One job and its peers.

    Attributes:
        unit: [peers] seconds of forward and backward of one unit and micro-batch.
        room: [peers] units that fit into a peer's memory.
        link: [peers, peers] seconds of one micro-batch's activations over a link, either way.
        move: [peers] seconds in which a peer receives the state of one unit.
    """

    unit: Floats
    room: NDArray[np.int64]
    link: Floats
    move: Floats


def draw(rng: np.random.Generator, peers: int, lent: float = 1.0) -> Instance:
    """Draw cards, sites, 20 Mb/s to 1 Gb/s by peer and by pair of sites, and a model that fits."""
    while True:
        layers, width, sequence = _MODELS[int(rng.integers(len(_MODELS)))]
        card, site = rng.integers(2, size=peers), rng.integers(max(peers // 2, 1), size=peers)
        speed, memory = np.array(_CARDS)[card].T
        flop = 72 * sequence * width**2 * (1 + sequence / (6 * width)) * layers / _UNITS
        state = _BYTES * 12 * width**2 * layers / _UNITS
        activations = 2.0 * sequence * width
        access = np.exp(rng.uniform(np.log(20e6), np.log(1e9), peers))
        pair = np.exp(rng.uniform(np.log(20e6), np.log(1e9), (peers, peers)))
        pair = np.minimum(pair, pair.T)[np.ix_(site, site)]
        latency = rng.uniform(0.01, 0.1, (peers, peers))
        same = site[:, None] == site
        rate = np.where(same, 1e9, np.minimum(np.minimum(access[:, None], access), pair))
        link = np.where(same, 0.0005, np.maximum(latency, latency.T)[np.ix_(site, site)])
        held = state + _MICRO_BATCHES * activations * layers / _UNITS
        room = np.minimum(lent * memory // held, _UNITS).astype(np.int64)
        if room.sum() >= _UNITS:
            return Instance(
                flop / (_REACHED * speed), room, link + 8 * activations / rate, 8 * state / access
            )


def seconds(instance: Instance, plan: Plan) -> float:
    """Seconds of an iteration: all stages and links once, then the slowest for each more micro-batch."""
    if not plan:
        return np.inf
    times = [instance.unit[peer] * units for peer, units in plan]
    times += [instance.link[a, b] for (a, _), (b, _) in itertools.pairwise(plan)]
    return float(sum(times) + (_MICRO_BATCHES - 1) * max(times))


@nb.njit(cache=True)  # type: ignore[untyped-decorator]
def _search(
    unit: Floats, room: NDArray[np.int64], link: Floats, limits: Floats, units: int, repeats: float
) -> tuple[NDArray[np.int64], int]:
    """Return the best stages [peers, 2] and their number, over sets of peers, last peers and units placed."""
    peers, found, total = len(unit), 0, np.inf
    stages = np.zeros((peers, 2), np.int64)
    fill = np.empty((1 << peers, peers, units + 1))
    back = np.zeros((1 << peers, peers, units + 1, 2), np.int64)
    for limit in limits:
        if repeats * limit >= total:
            break
        fill[:] = np.inf
        for peer in range(peers):
            for size in range(1, room[peer] + 1):
                if unit[peer] * size <= limit:
                    fill[1 << peer, peer, size] = unit[peer] * size
                    back[1 << peer, peer, size] = (-1, size)
        for members in range(1, 1 << peers):
            for last in range(peers):
                for done in range(1, units + 1):
                    here = fill[members, last, done]
                    if here + repeats * limit >= total:
                        continue
                    if done == units:
                        total, found, at, left, peer = here + repeats * limit, 0, members, done, last
                        while peer >= 0:
                            before, size = back[at, peer, left]
                            stages[found] = (peer, size)
                            found, at, left, peer = found + 1, at ^ (1 << peer), left - size, before
                        continue
                    for peer in range(peers):
                        if members >> peer & 1 or link[last, peer] > limit:
                            continue
                        for size in range(1, min(room[peer], units - done) + 1):
                            cost = unit[peer] * size
                            if cost > limit:
                                break
                            cost += here + link[last, peer]
                            if cost < fill[members | 1 << peer, peer, done + size]:
                                fill[members | 1 << peer, peer, done + size] = cost
                                back[members | 1 << peer, peer, done + size] = (last, size)
    return stages, found


def optimum(instance: Instance, units: int = _UNITS) -> Plan:
    """Return the placement of fewest seconds, or no stage where none fits."""
    sizes = instance.unit[:, None] * np.arange(1, units + 1)
    limits = np.unique(np.concatenate([sizes.ravel(), instance.link[np.isfinite(instance.link)]]))
    stages, found = _search(
        instance.unit, instance.room, instance.link, limits, units, float(_MICRO_BATCHES - 1)
    )
    return [(int(peer), int(size)) for peer, size in stages[:found][::-1]]


def along(instance: Instance, order: Sequence[int]) -> Plan:
    """Return the best stages that keep an order of peers and may skip some."""
    place = np.argsort(order)
    return optimum(instance._replace(link=np.where(place[:, None] < place, instance.link, np.inf)))


def shares(instance: Instance, order: Sequence[int]) -> Plan:
    """Return units by speed over all peers of an order, within memory; no stage where they do not fit."""
    speed, sizes = 1 / instance.unit, dict.fromkeys(order, 0)
    for _ in range(_UNITS):
        free = [peer for peer in order if sizes[peer] < instance.room[peer]]
        if not free:
            return []
        sizes[min(free, key=lambda peer: (sizes[peer] + 1) / speed[peer])] += 1
    return [(peer, size) for peer, size in sizes.items() if size]


def _here(instance: Instance) -> list[int]:
    return np.flatnonzero(instance.room > 0).tolist()


def by_speed(instance: Instance) -> Plan:
    """Place shares by speed on all peers, fastest first."""
    return shares(instance, sorted(_here(instance), key=lambda peer: instance.unit[peer]))


def at_random(instance: Instance) -> Plan:
    """Place shares by speed on all peers in a random order (seed 0)."""
    return shares(instance, np.random.default_rng(0).permutation(_here(instance)).tolist())


def broker(instance: Instance) -> Plan:
    """FusionAI's kind: balanced shares on chains of near peers, the best of all first peers and lengths."""
    plans: list[Plan] = []
    for first in _here(instance):
        chain, left = [first], set(_here(instance)) - {first}
        plans.append(shares(instance, chain))
        while left:
            chain.append(min(left, key=lambda peer: instance.link[chain[-1], peer] + instance.unit[peer]))
            left.remove(chain[-1])
            plans.append(shares(instance, chain))
    return min(plans, key=lambda plan: seconds(instance, plan), default=[])


def _features(instance: Instance, last: int, peers: list[int]) -> Floats:
    """Return [peers, 5] features of the next peer of a chain."""
    link = instance.link[last, peers]
    onward = np.array([np.sort(instance.link[peer])[1:3].mean() for peer in peers])
    whole = instance.unit[peers] * _UNITS
    memory = instance.room[peers] / _UNITS
    return np.stack(
        [np.log(link), np.log(onward), np.log(whole), memory, np.maximum(link, whole / 3)], axis=1
    )


def learn(
    rng: np.random.Generator, instances: int, peers: int, lent: float = 1.0
) -> Callable[[Instance], Plan]:
    """RESPECT's kind: a linear pointer learns the order of optima; each order is then cut exactly."""
    rows: list[tuple[Floats, int]] = []
    for _ in range(instances):
        one = draw(rng, peers, lent)
        chain = [peer for peer, _ in optimum(one)]
        for step, peer in enumerate(chain[1:], 1):
            left = [other for other in range(peers) if other not in chain[:step]]
            rows.append((_features(one, chain[step - 1], left), left.index(peer)))
    weights = np.zeros(5)
    for _ in range(300):
        slope = np.zeros(5)
        for table, chosen in rows:
            chance = np.exp(table @ weights - (table @ weights).max())
            slope += table[chosen] - chance / chance.sum() @ table
        weights += 0.3 * slope / len(rows)

    def place(instance: Instance) -> Plan:
        plans: list[Plan] = []
        for first in _here(instance):
            chain, left = [first], [peer for peer in _here(instance) if peer != first]
            while left:
                chain.append(left.pop(int(np.argmax(_features(instance, chain[-1], left) @ weights))))
            absent = [peer for peer in range(len(instance.unit)) if peer not in chain]
            plans.append(along(instance, chain + absent))
        return min(plans, key=lambda plan: seconds(instance, plan), default=[])

    return place


def iterations(instance: Instance, place: Callable[[Instance], Plan], here: NDArray[np.bool_]) -> list[float]:
    """Return iterations over a series of peers: placed anew at changes, if forced, if it pays, free."""
    done = [0.0] * 4
    held: list[Plan] = [[], [], [], []]
    for epoch, present in enumerate(here):
        world = instance._replace(room=np.where(present, instance.room, 0))
        fresh = place(world) if epoch == 0 or (present != here[epoch - 1]).any() else None
        for policy in range(4):
            old = held[policy]
            intact = bool(old) and all(present[peer] for peer, _ in old)
            kept = _EPOCH / seconds(world, old) if intact else 0.0
            new = old if fresh is None else fresh
            before = dict(old)
            moved = [instance.move[peer] * max(size - before.get(peer, 0), 0) for peer, size in new]
            cost = 0.0 if policy == 3 or new == old else _RESTART + max(moved, default=0.0)
            gain = max(_EPOCH - cost, 0.0) / seconds(world, new)
            if policy in (0, 3) or (policy == 1 and not intact) or (policy == 2 and gain >= kept):
                held[policy], kept = new, gain
            done[policy] += kept
    return done


def series(rng: np.random.Generator, epochs: int, peers: int) -> NDArray[np.bool_]:
    """Return [epochs, peers] presence, a two-state Markov chain for each peer, at first all present."""
    here = np.ones((epochs, peers), bool)
    for epoch in range(1, epochs):
        chance = rng.random(peers)
        here[epoch] = np.where(here[epoch - 1], chance >= _LEAVE, chance < _RETURN)
    return here


def _interval(ratios: Floats) -> str:
    """Return a mean with a 95 % bootstrap interval."""
    picks = np.random.default_rng(0).integers(len(ratios), size=(4000, len(ratios)))
    low, high = np.percentile(ratios[picks].mean(axis=1), [2.5, 97.5])
    return f"{ratios.mean():.3f} [{low:.3f}, {high:.3f}]"


def main(words: Sequence[str] | None = None) -> None:
    """Print seconds and iterations of each placement as ratios to the optimum."""
    parser = Arguments(prog="python -m tools.volunteers", description=__doc__.partition("\n")[0])
    parser.add_argument("--instances", type=int, default=60, help="(%(default)s)")
    parser.add_argument("--peers", type=int, default=8, help="(%(default)s)")
    parser.add_argument("--epochs", type=int, default=40, help="of a series (%(default)s)")
    parser.add_argument("--lent", type=float, default=1.0, help="share of each GPU's memory (%(default)s)")
    given = parser.parse_args(words)
    learned = learn(np.random.default_rng(1), 2 * given.instances, given.peers, given.lent)
    placers = {
        "optimum": optimum,
        "broker": broker,
        "learned": learned,
        "speed": by_speed,
        "random": at_random,
    }
    rng = np.random.default_rng(2)
    worlds = [draw(rng, given.peers, given.lent) for _ in range(given.instances)]
    presence = [series(rng, given.epochs, given.peers) for _ in worlds]
    best = np.array([seconds(one, optimum(one)) for one in worlds])
    free = np.array(
        [iterations(*row)[3] for row in zip(worlds, [optimum] * len(worlds), presence, strict=True)]
    )
    print("| placement | static | at every change | when forced | when it pays | free moves |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, place in placers.items():
        static = np.array([seconds(one, place(one)) for one in worlds]) / best
        done = np.array([iterations(one, place, here) for one, here in zip(worlds, presence, strict=True)])
        cells = [_interval(static)] + [_interval(free / column) for column in done.T]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    stages = np.bincount([len(optimum(one)) for one in worlds])
    print("\nstages of the optimum:", {size: int(count) for size, count in enumerate(stages) if count})


if __name__ == "__main__":
    main()
