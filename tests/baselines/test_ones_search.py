"""ONES' compiled generations against the same search written down plainly, GPU by GPU."""

import numpy as np

from ringyard.state.random_numbers import next_uniform
from ringyard_baselines.papers.ones.evolution import evolve
from ringyard_baselines.papers.ones.schedules import FREE, ClusterGpus, SearchJobs, Workspace


def held(genome, jobs):
    return np.bincount(genome[genome >= 0], minlength=len(jobs.left)).tolist()


def at_most(jobs, j, size):
    """Largest number of GPUs on which the job can run, `size` at most."""
    return max(n for n in range(size + 1) if n == 0 or jobs.speed[jobs.place[j], n] > 0)


def without_few(genome, jobs):
    sizes = held(genome, jobs)
    return np.array([j if j >= 0 and sizes[j] >= jobs.fewest[j] else FREE for j in genome.tolist()])


def refreshed(genome, jobs, up):
    sizes, kept = [0] * len(jobs.left), np.full(len(genome), FREE)
    for gpu, j in enumerate(genome.tolist()):
        if j >= 0 and up[gpu] and sizes[j] < jobs.current_limit[j]:
            sizes[j] += 1
            kept[gpu] = j
    return without_few(kept, jobs)


def crossed(parents, jobs, crossover, rng):
    a, b = (parents[int(next_uniform(rng) * len(parents))] for _ in range(2))
    swaps = np.array([next_uniform(rng) >= 1.0 - crossover for _ in a])
    every = np.ones(len(a), np.int64)
    return [refreshed(genes, jobs, every) for genes in (np.where(swaps, b, a), np.where(swaps, a, b))]


def mutated(genome, jobs, rate, rng):
    removed = [bool(mutable) and next_uniform(rng) < rate for mutable in jobs.mutable]
    return np.array([FREE if j < 0 or removed[j] else j for j in genome.tolist()])


def padded(genome, jobs, up):
    genome, sizes = genome.copy(), held(genome, jobs)
    for bound in (jobs.current_limit, jobs.limit):
        for j in jobs.padding.tolist():
            free = np.flatnonzero((genome == FREE) & (up != 0))
            more = at_most(jobs, j, min(int(bound[j]), sizes[j] + len(free)))
            if more > sizes[j] and more >= jobs.fewest[j]:
                genome[free[: more - sizes[j]]] = j
                sizes[j] = more
    for gpu, j in enumerate(genome.tolist()):
        if j >= 0 and at_most(jobs, j, sizes[j]) < sizes[j]:
            genome[gpu] = FREE
            sizes[j] -= 1
    return genome


def score(genome, jobs, machine):
    total = 0.0
    for j, size in enumerate(held(genome, jobs)):
        if size and not np.isnan(jobs.left[j]):
            total += size * jobs.left[j] / jobs.speed[jobs.place[j], size]
        if machine.switch_seconds and jobs.held[j] and size != jobs.held[j]:
            total += machine.switch_seconds * max(size, int(jobs.held[j]))
    return total


def block_cost(machine, j, begin, end):
    now = machine.present[begin:end]
    if not machine.up[begin:end].all():
        return np.inf
    spans = machine.server[end - 1] - machine.server[begin] + 1 - -(-(end - begin) // machine.widest)
    moved = 1e-3 * int((now != j).sum())
    return float(((now >= 0) & (now != j)).sum()) + moved + 1e-2 * max(0, int(spans))


def in_blocks(genome, jobs, machine):
    """The cheapest blocks over all (GPU, blocks placed); the genome itself if they find no room."""
    sizes, count = held(genome, jobs), len(genome)
    blocks = [(j, sizes[j]) for j in jobs.sequence.tolist() if sizes[j]]
    cost = np.full((len(blocks) + 1, count + 1), np.inf)
    took = np.zeros(cost.shape, np.bool_)
    cost[0] = 0.0
    for rank, (j, size) in enumerate(blocks, 1):
        for end in range(size, count + 1):
            here = cost[rank - 1, end - size] + block_cost(machine, j, end - size, end)
            took[rank, end] = here < cost[rank, end - 1]
            cost[rank, end] = min(here, cost[rank, end - 1])
    if cost[-1, -1] == np.inf:
        return genome
    found, end = np.full(count, FREE), count
    for rank in range(len(blocks), 0, -1):
        j, size = blocks[rank - 1]
        while not took[rank, end]:
            end -= 1
        found[end - size : end] = j
        end -= size
    return found


def generation(population, jobs, machine, crossover, mutation, rng):
    """The K best of K parents, their K children and K mutants, in blocks."""
    count = len(population)
    parents = [refreshed(genome, jobs, machine.up) for genome in population]
    children = [child for _ in range(count // 2) for child in crossed(parents, jobs, crossover, rng)]
    children += parents[:1] * (count % 2)
    mutants = [mutated(genome, jobs, mutation, rng) for genome in parents]
    every = [padded(genome, jobs, machine.up) for genome in (*parents, *children, *mutants)]
    scored = [(score(genome, jobs, machine), genome) for genome in every]
    chosen, sizes = [], []
    for i in range(count):
        best = min(range(i, len(scored)), key=lambda k: scored[k][0])
        scored[i], scored[best] = scored[best], scored[i]
        sizes.append((scored[i][0], held(scored[i][1], jobs)))
        like = [k for k in range(i) if sizes[k] == sizes[i]]
        chosen.append(chosen[like[-1]] if like else in_blocks(scored[i][1], jobs, machine))
    return np.array(chosen)


def drawn(rng):
    """Jobs, GPUs of which some are down, and a random population."""
    widths = rng.integers(1, 5, rng.integers(2, 6))
    gpus, count = int(widths.sum()), int(rng.integers(1, 9))
    server = np.repeat(np.arange(len(widths)), widths)
    up = (rng.random(len(widths)) < rng.choice([1.0, 0.7]))[server]
    fewest = rng.choice([1, 1, 2], count)
    limit = fewest + rng.integers(0, 6, count)
    left = np.where(rng.random(count) < 0.3, np.nan, rng.choice([5.0, 10.0, 20.0, 33.3], count))
    speed = np.tile(np.arange(gpus + 1) ** rng.choice([0.8, 1.0]), (count + 2, 1))
    speed[:, 3:] *= rng.random(speed[:, 3:].shape) < 0.7
    population = rng.integers(-1, count, (int(rng.integers(2, 7)), gpus))
    present = np.where(up, population[0], FREE)
    jobs = SearchJobs(
        fewest=fewest,
        held=np.bincount(present[present >= 0], minlength=count),
        current_limit=np.maximum(np.minimum(limit, rng.integers(1, 6, count)), fewest),
        limit=limit,
        mutable=(~np.isnan(left)).astype(np.int64),
        left=left,
        place=rng.permutation(count + 2)[:count],
        speed=speed,
        padding=rng.permutation(count),
        sequence=rng.permutation(count),
    )
    seconds = float(rng.choice([0.0, 4.0]))
    return population, jobs, ClusterGpus(present, server, up.astype(np.int64), int(widths.max()), seconds)


def is_in_blocks(genome):
    genes = genome[genome >= 0]
    return np.count_nonzero(np.diff(genes)) + 1 == len(np.unique(genes)) or not len(genes)


def test_generations_are_those_of_the_plain_search(rng):
    found = 0
    for _ in range(150):
        population, jobs, machine = drawn(rng)
        rates = (float(rng.choice([0.0, 0.5, 1.0])), float(rng.choice([0.3, 1.0])))
        work = Workspace.empty(len(population), population.shape[1], len(jobs.left))
        own = rng.integers(1, 2**63, 1).astype(np.uint64)
        plain = own.copy()
        for _ in range(3):
            expected = generation(population, jobs, machine, *rates, plain)
            evolve(population, jobs, machine, *rates, work, own)
            assert population.tolist() == expected.tolist()
            assert own == plain
            found += not all(map(is_in_blocks, population))
    assert found > 10  # blocks of some find no room between failed servers
