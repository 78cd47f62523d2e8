"""Pollux' compiled search against the same one written down plainly, draw by draw."""

import numpy as np
import pytest

from ringyard_baselines.papers.pollux import _size_values
from ringyard_baselines.tools.size_evolution import SizeOptions, evolve_sizes


class Draws:
    """SplitMix64 in Python's numbers."""

    def __init__(self, state):
        self.state = state

    def __call__(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        x = self.state
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return ((x ^ x >> 31) >> 11) / 2.0**53


def repaired(sizes, choices, draws):
    """Every size lowered to one the job may have, then random jobs shrunk until all fit."""
    sizes = [int(choices.allowed[j, size]) for j, size in enumerate(sizes)]
    while sum(sizes) > choices.num_gpus:
        j = int(draws() * len(sizes))
        if sizes[j] > 0:
            sizes[j] = int(choices.allowed[j, sizes[j] - 1])
    return sizes


def fitness(sizes, choices):
    """Power mean of what the sizes are worth, summed job by job."""
    total = 0.0
    for j, size in enumerate(sizes):
        total += float(choices.utility[j, size])
    mean = total / len(sizes)
    return mean if choices.power == 1.0 else mean ** (1.0 / choices.power)


def bred(people, scores, choices, draws):
    """A child of two winners of tournaments; every gene takes its draws."""
    a, b, c, d = (int(draws() * len(people)) for _ in range(4))
    mother, father = a if scores[a] >= scores[b] else b, c if scores[c] >= scores[d] else d
    child = []
    for j in range(len(people[0])):
        child.append(people[mother if draws() < 0.5 else father][j])
        if draws() * len(people[0]) < 1.0:
            child[-1] = int(draws() * (choices.max_gpus + 1))
    return repaired(child, choices, draws)


def plainly_evolved(parents, choices, generations, draws):
    """(best position, individuals)."""
    people = [repaired(sizes, choices, draws) for sizes in parents.tolist()]
    scores = [fitness(sizes, choices) for sizes in people]
    best = scores.index(max(scores))
    for _ in range(generations):
        for child in [bred(people, scores, choices, draws) for _ in people]:
            score, k = fitness(child, choices), int(draws() * len(people))
            if score < scores[k] or (k == best and score == scores[k]):
                continue
            people[k], scores[k] = child, score
            if score > scores[best] or (score == scores[best] and k < best):
                best = k
    return best, people


def choices_of(rng, count, most, power):
    """Jobs that may have some of the sizes, more than there are GPUs for."""
    possible = rng.random((count, most + 1)) < 0.4
    possible[:, 0] = True
    sizes = np.where(possible, np.arange(most + 1), 0)
    allowed = np.maximum.accumulate(sizes, axis=1).astype(np.int32)
    worth = np.sqrt(sizes) if power == 1.0 else np.maximum(np.sqrt(sizes), 1e-2) ** power
    return SizeOptions(worth, allowed, most, int(allowed[:, most].sum() * 0.3), power)


@pytest.mark.parametrize("count", [1, 2, 20, 63, 64, 65, 200])
@pytest.mark.parametrize("power", [1.0, -1.0, 2.5])
def test_the_search_is_the_plain_one_draw_by_draw(count, power):
    rng = np.random.default_rng(count)
    choices = choices_of(rng, count, int(rng.integers(1, 40)), power)
    parents = rng.integers(0, choices.max_gpus + 1, (int(rng.integers(2, 9)), count))
    parents[1:] = np.where(rng.random(parents[1:].shape) < 0.1, parents[1:], parents[0])  # mostly alike
    state, draws = rng.integers(1, 2**63, 1).astype(np.uint64), Draws(0)
    draws.state = int(state[0])
    best, people = evolve_sizes(parents, choices, 12, state)
    expected, plain = plainly_evolved(parents, choices, 12, draws)
    assert (best, people.tolist(), int(state[0])) == (expected, plain, draws.state)


def test_what_sizes_are_worth():
    # the second job runs on 2 to 4 GPUs and holds 2: any other number counts 0.9 times
    speed, place, held = (
        np.array([[0.0, 5.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 3.0, 4.0, 0.0]]),
        np.array([1, 0]),
        np.array([2, 0]),
    )
    worth, allowed = np.full((2, 6), np.nan), np.zeros((2, 6), np.int32)
    assert _size_values(speed, place, held, 0.9, 1.0, worth, allowed) == 4
    assert allowed.tolist() == [[0, 0, 2, 3, 4, 4], [0, 1, 1, 1, 1, 1]]
    nan = np.nan
    np.testing.assert_allclose(worth, [[0, nan, 1, 1.35, 1.8, nan], [0, 1, nan, nan, nan, nan]])
    _size_values(speed, place, held, 0.9, -1.0, worth, allowed)
    np.testing.assert_allclose(worth, [[100, nan, 1, 1 / 1.35, 1 / 1.8, nan], [100, 1, nan, nan, nan, nan]])
