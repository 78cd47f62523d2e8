"""Random numbers of simulations: seeds, a generator per cluster, draws by position.

Generators are SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
"""

import numpy as np

from ringyard.compiled import UIntVector, kernel, to_int, u8
from ringyard.state.records import ClusterRecord

STEP = np.uint64(0x9E3779B97F4A7C15)  #: by which each draw advances a generator


def derive_seed(*numbers: int) -> int:
    """Return a seed that depends on all `numbers`. Other numbers give another, but for 1 in 4 billion."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0])


@kernel
def leading_bits(x: u8) -> u8:
    """Return 64 bits, of which the first 31 are those of `mix`."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)


@kernel
def mix(x: u8) -> u8:
    """Return the 64 random bits of a generator at `x`."""
    x = leading_bits(x)
    return x ^ (x >> np.uint64(31))


@kernel
def next_random(cluster: ClusterRecord) -> int:
    """Advance the generator of `cluster` and return 63 random bits."""
    cluster.rng += STEP
    return to_int(mix(cluster.rng) >> np.uint64(1))


@kernel
def next_uniform(generator: UIntVector) -> float:
    """Advance `generator` ([1] uint64) and return a uniform number in [0, 1)."""
    generator[0] += STEP
    return float(mix(generator[0]) >> np.uint64(11)) / 9007199254740992.0


@kernel
def uniform_at(seed: u8, stream: int, position: int) -> float:
    """Return draw `position` of stream `stream` of `seed`, uniform in (0, 1) and the same at each call."""
    x = mix(np.uint64(seed) + STEP)
    x = mix(x ^ (np.uint64(stream) * STEP + np.uint64(1)))
    x = mix(x ^ (np.uint64(position) * STEP + np.uint64(2)))
    return (float(x >> np.uint64(11)) + 0.5) / 9007199254740992.0


@kernel
def exponential_at(seed: u8, stream: int, position: int, mean: float) -> float:
    """Return draw `position` of stream `stream` of `seed`, exponential with the given `mean`."""
    return -mean * np.log(uniform_at(seed, stream, position))


@kernel
def normal_at(seed: u8, stream: int, position: int) -> float:
    """Return draw `position` of stream `stream` of `seed`, standard normal (Box-Muller)."""
    radius = np.sqrt(-2.0 * np.log(uniform_at(seed, stream, 2 * position)))
    return radius * np.cos(2.0 * np.pi * uniform_at(seed, stream, 2 * position + 1))
