"""The exact placement of pipeline stages beside all placements of small instances."""

import itertools

import numpy as np
import pytest

from tools.volunteers import Instance, broker, by_speed, draw, iterations, optimum, seconds, series


def every_plan(instance: Instance, units: int):
    for length in range(1, len(instance.unit) + 1):
        for order in itertools.permutations(range(len(instance.unit)), length):
            for sizes in itertools.product(range(1, units + 1), repeat=length):
                fits = all(size <= instance.room[peer] for peer, size in zip(order, sizes, strict=True))
                if sum(sizes) == units and fits:
                    yield list(zip(order, sizes, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_the_best_of_all_placements(seed):
    instance = draw(np.random.default_rng(seed), 4, 0.8)
    instance = instance._replace(room=np.minimum(instance.room, 2 + seed % 4))
    plans = list(every_plan(instance, 5))
    least = min((seconds(instance, plan) for plan in plans), default=np.inf)
    assert seconds(instance, optimum(instance, 5)) == pytest.approx(least)


def test_no_placement_beats_the_optimum_and_free_moves_bound_the_policies():
    rng = np.random.default_rng(3)
    for _ in range(3):
        instance, here = draw(rng, 5), series(rng, 8, 5)
        least = seconds(instance, optimum(instance))
        assert min(seconds(instance, broker(instance)), seconds(instance, by_speed(instance))) >= least - 1e-9
        done = iterations(instance, optimum, here)
        assert max(done[:3]) <= done[3] + 1e-9
