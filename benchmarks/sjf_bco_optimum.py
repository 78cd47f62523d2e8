"""SJF-BCO's makespan beside the optimum of small instances, and its approximation bound (Theorem 5)."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Simulator, ring_contention
from ringyard_baselines.papers.sjf_bco.scheduler import sjf_bco, sjf_bco_comparator
from ringyard_baselines.scheduler import Observability, Scheduler, run

ALPHA, XI_2 = 0.27453271, 0.0005  # conf/performance/sjf_bco.yaml; every ring on a link counts here (xi_1 = 1)
INSIDE = 26.0e9  # b_i, bytes per second
COMPARATORS = ("sjf_bco_ff", "sjf_bco_ls", "sjf_bco_rand")


@dataclass(frozen=True)
class Instance:
    """A small offline batch: servers' GPUs, b_e (bytes per second), and the jobs' F, G, D and m."""

    servers: tuple[int, ...]
    bandwidth: float
    iterations: tuple[float, ...]
    gpus: tuple[int, ...]
    compute: tuple[float, ...]
    gradient: tuple[float, ...]

    def tau(self, job: int, servers: int, contenders: int) -> float:
        """Seconds per iteration (eq. 8) on that many servers, among that many rings on its worst link."""
        share = self.bandwidth / (contenders + ALPHA * (contenders - 1)) if servers > 1 else INSIDE
        workers = self.gpus[job]
        return self.compute[job] + 2 * self.gradient[job] * (workers - 1) / workers / share + XI_2 * servers

    def most_seconds(self, job: int) -> float:
        """rho in the worst schedule: each GPU on a server of its own as far as there are, all rings there."""
        spread = min(self.gpus[job], len(self.servers))
        if spread == 1:
            return self.least_seconds(job)
        rings = min(sum(gpus > 1 for gpus in self.gpus), max(self.servers))
        return self.iterations[job] * self.tau(job, spread, rings)

    def least_seconds(self, job: int) -> float:
        """rho in the best schedule: alone on as few servers as can hold it."""
        fewest = int(np.searchsorted(np.cumsum(sorted(self.servers, reverse=True)), self.gpus[job])) + 1
        return self.iterations[job] * self.tau(job, fewest, 1)

    def bound(self) -> float:
        """n_g phi u / l with exact estimates: Theorem 5.

        With one-GPU jobs only it is 1, which no such algorithm can keep: that is scheduling equal machines.
        """
        phi = max(self.most_seconds(job) / self.least_seconds(job) for job in range(len(self.gpus)))
        return max(self.gpus) * phi

    def simulator(self) -> Simulator:
        """The same in Ringyard."""
        count = len(self.gpus)
        jobs = replace(
            JobTable.from_columns([0.0] * count, list(self.gpus), [1.0] * count),
            iterations=np.array(self.iterations),
            duration_seconds=np.full(count, np.nan),
            compute_seconds=np.array(self.compute),
            gradient_bytes=np.array(self.gradient),
        )
        physics = ring_contention(self.bandwidth, INSIDE, float("inf"), ALPHA, 1.0, XI_2)
        return Simulator(Cluster(self.servers), jobs, physics)


def drawn(servers: tuple[int, ...], jobs: int, bandwidth: float, rng: np.random.Generator) -> Instance:
    """Jobs of the published experiment's ranges, with sizes that a small cluster holds."""
    return Instance(
        servers=servers,
        bandwidth=bandwidth,
        iterations=tuple(rng.integers(1000, 6000, jobs, endpoint=True).astype(float).tolist()),
        gpus=tuple(rng.choice([1, 2, 3, 4], jobs).tolist()),
        compute=tuple(rng.uniform(0.01, 0.045, jobs).tolist()),
        gradient=tuple(rng.uniform(1e6, 4e6, jobs).tolist()),
    )


class Running(NamedTuple):
    """A job that runs: its GPUs on each server, and the iterations it has left."""

    job: int
    held: tuple[int, ...]
    left: float


class Start(NamedTuple):
    """A job's start: when, and how many GPUs of each server."""

    job: int
    seconds: float
    held: tuple[int, ...]


class Optimum:
    """Exhaustive search, with pruning, over all schedules that start jobs at time 0 or when a job ends."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.makespan = float("inf")
        self.starts: tuple[Start, ...] = ()
        self._alone = [instance.least_seconds(job) for job in range(len(instance.gpus))]
        self._search(0.0, instance.servers, (), tuple(range(len(instance.gpus))), ())

    def _rates(self, running: tuple[Running, ...]) -> list[float]:
        """Seconds per iteration of the running jobs: eqs. 6 to 8."""
        spread = [sum(count > 0 for count in one.held) > 1 for one in running]
        rings = [
            sum(one.held[s] > 0 and over for one, over in zip(running, spread, strict=True))
            for s in range(len(self.instance.servers))
        ]
        return [
            self.instance.tau(
                one.job,
                sum(count > 0 for count in one.held),
                max(n for n, count in zip(rings, one.held, strict=True) if count),
            )
            for one in running
        ]

    def _bound(self, now: float, running: tuple[Running, ...], waiting: tuple[int, ...]) -> float:
        """No schedule from here ends sooner: the longest job, and all work on all GPUs."""
        left = [(one.job, one.left / self.instance.iterations[one.job]) for one in running]
        left += [(job, 1.0) for job in waiting]
        seconds = [share * self._alone[job] for job, share in left]
        work = sum(t * self.instance.gpus[job] for t, (job, _) in zip(seconds, left, strict=True))
        return now + max([*seconds, work / sum(self.instance.servers)], default=0.0)

    def _search(
        self,
        now: float,
        free: tuple[int, ...],
        running: tuple[Running, ...],
        waiting: tuple[int, ...],
        starts: tuple[Start, ...],
        first: int = 0,
    ) -> None:
        """Try every start of a waiting job from position `first` on, then let time pass."""
        if self._bound(now, running, waiting) >= self.makespan - 1e-9:
            return
        if not running and not waiting:
            self.makespan, self.starts = now, starts
            return
        for position in range(first, len(waiting)):
            job = waiting[position]
            rest = waiting[:position] + waiting[position + 1 :]
            for held in self._places(self.instance.gpus[job], free, running):
                left = tuple(have - take for have, take in zip(free, held, strict=True))
                begun = Running(job, held, self.instance.iterations[job])
                self._search(now, left, (*running, begun), rest, (*starts, Start(job, now, held)), position)
        if running:
            self._let_pass(now, free, running, waiting, starts)

    def _let_pass(
        self,
        now: float,
        free: tuple[int, ...],
        running: tuple[Running, ...],
        waiting: tuple[int, ...],
        starts: tuple[Start, ...],
    ) -> None:
        rates = self._rates(running)
        step = min(one.left * rate for one, rate in zip(running, rates, strict=True))
        after = [one._replace(left=one.left - step / rate) for one, rate in zip(running, rates, strict=True)]
        ended = [one for one in after if one.left <= 1e-9 * self.instance.iterations[one.job]]
        freed = tuple(have + sum(one.held[s] for one in ended) for s, have in enumerate(free))
        still = tuple(one for one in after if one not in ended)
        self._search(now + step, freed, still, waiting, starts)

    def _places(
        self, wanted: int, free: tuple[int, ...], running: tuple[Running, ...]
    ) -> Iterator[tuple[int, ...]]:
        """Every way to take the GPUs, once for empty servers that are alike."""
        seen = set()
        for held in _splits(wanted, free):
            kind = tuple(
                sorted(
                    (self.instance.servers[s], take, () if have == self.instance.servers[s] else (s,))
                    for s, (take, have) in enumerate(zip(held, free, strict=True))
                )
            )
            if kind not in seen:
                seen.add(kind)
                yield held


def _splits(wanted: int, free: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if not free:
        if wanted == 0:
            yield ()
        return
    for take in range(min(wanted, free[0]), -1, -1):
        for rest in _splits(wanted - take, free[1:]):
            yield (take, *rest)


class Replay(Scheduler):
    """Starts jobs as an optimum says, so that the simulator can confirm its makespan."""

    name = "replay"
    observability = Observability.NOTHING
    round_seconds = None

    def __init__(self, optimum: Optimum) -> None:
        self._starts = list(optimum.starts)

    def reset(self, cluster: Cluster, jobs: JobTable, rng: np.random.Generator) -> None:
        """Keep the servers."""
        self._cluster = cluster

    def decide(self, view):
        """What starts now."""
        free = np.flatnonzero(view.gpu_is_free).tolist()
        allocations = []
        while len(view.waiting) and self._starts and self._starts[0].seconds <= view.now * (1 + 1e-9) + 1e-9:
            start = self._starts.pop(0)
            gpus = []
            for server, count in enumerate(start.held):
                here = [g for g in free if self._cluster.server_of_gpu[g] == server][:count]
                gpus += here
                free = [g for g in free if g not in here]
            allocations.append(Allocation(start.job, tuple(gpus)))
        return allocations


def makespan(instance: Instance, scheduler: Scheduler) -> float:
    """Simulated, seconds."""
    sim = instance.simulator()
    run(sim, scheduler, np.random.default_rng(0))
    return sim.metrics().makespan


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=50)
    count = parser.parse_args().instances
    print(f"SJF-BCO's makespan over the optimum beside the means of FF, LS and RAND; {count} instances")
    print("servers    jobs   b_e (GB/s)   optimal   mean   worst     FF     LS   RAND   least bound   above")
    for servers, jobs in (((2, 2), 5), ((4, 4), 5), ((2, 2, 4), 5), ((2, 4), 6)):
        for bandwidth in (1.3e9, 0.13e9):
            rng = np.random.default_rng(0)
            ratios, bounds, others = [], [], []
            for _ in range(count):
                instance = drawn(servers, jobs, bandwidth, rng)
                least = Optimum(instance).makespan
                ratios.append(makespan(instance, sjf_bco()) / least)
                others.append([makespan(instance, sjf_bco_comparator(name)) / least for name in COMPARATORS])
                bounds.append(instance.bound())
            over, allowed = np.array(ratios), np.array(bounds)
            print(
                f"{'+'.join(map(str, servers)):10s} {jobs:4d} {bandwidth / 1e9:12.2f}"
                f" {np.mean(over < 1 + 1e-9):9.0%} {over.mean():6.3f} {over.max():7.3f}"
                f" {' '.join(f'{mean:6.3f}' for mean in np.mean(others, axis=0))}"
                f" {allowed.min():13.1f} {np.sum(over > allowed):7d}",
                flush=True,
            )


if __name__ == "__main__":
    main()
