"""How fast jobs run in the slow twin (`oracle.reference`): every crowd counted from scratch."""

import copy
import functools
import itertools
import math
from collections import Counter
from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np

from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.performance import PerformanceModel
from ringyard.performance.execution_plans import (
    Transformer,
    fitted_plan,
    named_plan,
    plan_constants,
    plan_seconds,
    plan_work,
)
from ringyard.profiles import catalogue
from ringyard.resources import CORES, RESOURCES, Resource
from ringyard.state.records import Job, JobKind, Network

__all__ = ["ReferenceJob", "ReferencePhysics"]

_INF = float("inf")


class ReferenceJob(SimpleNamespace):
    """One job: the table's columns under their names, and what has happened to it."""


def _summable(value: float) -> float:
    return round(float(value) * 2**40) / 2**40


def _split(gpus: int, servers: int, fewest: int, most: int) -> tuple[int, ...]:
    """GPUs by server where one has the `fewest` and the others up to `most`, one filled after the other.

    Empty if that cannot be.
    """
    split = [fewest] * servers
    for server in range(servers - 1):
        split[server] += min(most - fewest, gpus - sum(split))
    return tuple(split) if sum(split) == gpus and min(split) == fewest <= most else ()


@functools.cache
def _fastest(model: Transformer, split: tuple[int, ...], most: int, plan: int) -> tuple[float, float, float]:
    """Seconds of an iteration of a plan, 0: the fastest, and of its rings between servers; infinite: none.

    The third is the GPUs of each of its pipeline stages.
    """
    if plan:
        try:
            chosen = named_plan(model.plans[plan - 1], sum(split))
            if chosen is None or model.batch % chosen.data or sum(split) > model.most_gpus:
                return _INF, _INF, _INF
            work = plan_work(model, fitted_plan(model, chosen), split)
        except ConfigurationError:
            return _INF, _INF, _INF
        seconds = plan_seconds(work, plan_constants(model.name))
        ring = seconds.ring if work["ring_card_bytes"] else 0.0
        return seconds.total - ring, ring, chosen.data * chosen.tensor
    *others, last = split
    numbers = range(1, len(model.plans) + 1)
    choices = [_fastest(model, split, most, number) for number in numbers]
    for gpus in range(1, last):  # others of the last server idle
        used = _split(sum(others) + gpus, len(split), gpus, most)
        choices += [_fastest(model, used, most, number) for number in numbers]
    if others:  # the last server idles
        choices.append(_fastest(model, tuple(others), most, 0))
    for k in range(len(split)):  # one GPU idles, unless the placement that stands for the rest needs others
        fewer = [gpus - (k == i) for i, gpus in enumerate(split) if gpus > (k == i)]
        used = _split(sum(fewer), len(fewer), min(fewer), most) if fewer else (most + 1,)
        if all(one <= gpus for one, gpus in zip(used, split, strict=False)):
            choices.append(_fastest(model, used, most, 0))
    return min(choices, key=lambda parts: parts[0] + parts[1])


class ReferencePhysics:
    """Speeds of running jobs.

    Args:
        cluster: where they run.
        performance: how fast.
    """

    def __init__(self, cluster: Cluster, performance: PerformanceModel) -> None:
        self.cluster = cluster
        self.jobs: list[ReferenceJob] = []
        self._performance = performance

    @staticmethod
    def _holds(job: ReferenceJob) -> bool:
        return bool(job.gpus) or job.server is not None

    @property
    def running(self) -> list[int]:
        """Rows of the running jobs."""
        return [j.row for j in self.jobs if self._holds(j)]

    def servers(self, job: ReferenceJob) -> list[int]:
        """Servers a job is on, ascending."""
        if job.server is not None:
            return [job.server]
        return sorted({int(self.cluster.server_of_gpu[gpu]) for gpu in job.gpus})

    def _compute_seconds(self, job: ReferenceJob) -> float:
        if job.kind == JobKind.CPU_ONLY:
            return float(job.base_compute)
        ratio = (job.batch / job.num_gpus) / (job.base_batch / job.asked_gpus)
        return float(job.base_compute * (job.fixed_fraction + (1 - job.fixed_fraction) * ratio))

    def _worth(self, job: ReferenceJob) -> float:
        """Base iterations that one iteration is worth."""
        if math.isinf(job.noise_scale):
            return float(job.batch / job.base_batch)
        efficiency = (job.noise_scale + job.base_batch) / (job.noise_scale + job.batch)
        return float(job.batch / job.base_batch * efficiency)

    def _rate(
        self,
        job: ReferenceJob,
        servers: int,
        contenders: float,
        speed: float,
        storage: float,
        otherwise: Mapping[str, float] | None = None,
    ) -> float:
        """Seconds of one base iteration; what is given `otherwise` is not as it is."""
        if job.plan_model >= 0:
            there = {"num_servers": servers, "contenders": contenders, "fewest_gpus": self._fewest(job)}
            return self._planned_seconds(job, **(there | dict(otherwise or {})))
        record = Job.zeros(1)
        columns: dict[str, float] = {
            "kind": job.kind,
            "model": job.model if job.model >= 0 else len(catalogue()),
            "num_gpus": job.num_gpus,
            "batch_size": job.batch,
            "compute_seconds": self._compute_seconds(job),
            "gradient_bytes": job.gradient_bytes,
            "num_servers": servers,
            "contenders": contenders,
            "gpu_speed": speed,
            "overlap_exponent": self._overlap_exponent(job),
            "sharing_slowdown": self.sharing_slowdown(job),
            "bandwidth_slowdown": self.bandwidth_slowdown(job),
            "straggler": job.straggler,
            "samples_per_core_second": job.samples_per_core_second,
            "loading_serial_share": job.loading_serial_share,
            "stored_bytes": self._stored_bytes(job),
            "storage_seconds_per_byte": storage,
            **job.held,
        } | {one.asked: job.asked[one.per_worker] for one in RESOURCES}
        for name, value in (columns | dict(otherwise or {})).items():
            record[name] = value
        seconds = self._performance.iteration_seconds(record[0], self._performance.parameters)
        return float(seconds) / self._worth(job)

    def _fewest(self, job: ReferenceJob) -> int:
        """GPUs of the job on the server where it has fewest; 0 if it holds none."""
        held = Counter(int(self.cluster.server_of_gpu[gpu]) for gpu in job.gpus)
        return min(held.values(), default=0)

    def _planned_seconds(
        self, job: ReferenceJob, num_servers: int, contenders: float, fewest_gpus: int, **_: float
    ) -> float:
        other, ring, _stage = self._plan_parts(job, num_servers, fewest_gpus)
        crowd = max(1.0, contenders)
        return other + ring * (crowd + float(self._performance.parameters[0]) * (crowd - 1.0))

    def _plan_parts(self, job: ReferenceJob, servers: int, fewest: int) -> tuple[float, float, float]:
        """Seconds of an iteration in the job's plan without crossing rings, of these, and GPUs of a stage."""
        known = self._performance.plans
        assert known is not None
        model, plan = known.models[job.plan_model], int(job.held["plan"])
        of_any = range(1, known.gpus_per_server + 1) if fewest == 0 else [fewest]
        splits = (_split(job.num_gpus, servers, one, known.gpus_per_server) for one in of_any)
        found = (_fastest(model, split, known.gpus_per_server, plan) for split in splits if split)
        return min(found, key=lambda parts: parts[0] + parts[1])

    def _gpu_type(self, server: int) -> str:
        return self.cluster.gpu_types[server] if self.cluster.gpu_types else REFERENCE_GPU

    def _speed_on(self, job: ReferenceJob, server: int) -> float:
        """Of the job's computing, at its present batch, on the GPUs of a server: reference GPU = 1."""
        if job.model < 0 or job.kind == JobKind.CPU_ONLY:
            return 1.0
        gpus = catalogue()[job.model].gpus
        there, here = gpus[self._gpu_type(server)], gpus[REFERENCE_GPU]
        ratio = (job.batch / job.num_gpus) / (job.base_batch / job.asked_gpus)
        share = job.fixed_fraction / (job.fixed_fraction + (1 - job.fixed_fraction) * ratio)
        fixed = there.fixed_seconds / here.fixed_seconds if here.fixed_seconds else 1.0
        sample = there.sample_seconds / here.sample_seconds if here.sample_seconds else 1.0
        return float(1 / (sample + share * (fixed - sample)))

    def gpu_speed(self, job: ReferenceJob) -> float:
        """Of its slowest GPU, reference GPU = 1; of all that take shares of the batch by their speed."""
        if job.balances and job.gpus and job.model >= 0:
            return self._balanced_speed(job)
        return min(self._speed_on(job, s) for s in self.servers(job))

    def _balanced_speed(self, job: ReferenceJob) -> float:
        """Speed at which all workers end together: the time that they take is also found by bisection."""
        gpus = catalogue()[job.model].gpus
        here = gpus[REFERENCE_GPU]
        ratio = (job.batch / job.num_gpus) / (job.base_batch / job.asked_gpus)
        part = job.fixed_fraction / (job.fixed_fraction + (1 - job.fixed_fraction) * ratio)
        workers, seconds = [], []
        for gpu in sorted(job.gpus):
            there = gpus[self._gpu_type(int(self.cluster.server_of_gpu[gpu]))]
            fixed = there.fixed_seconds / here.fixed_seconds if here.fixed_seconds else 1.0
            sample = there.sample_seconds / here.sample_seconds if here.sample_seconds else 1.0
            workers.append((part * fixed, (1 - part) * sample))
            seconds.append((fixed, sample))
        low, high = max(fixed for fixed, _ in workers), max(fixed + sample for fixed, sample in workers)
        for _ in range(200):
            middle = (low + high) / 2
            done = sum((middle - fixed) / sample if sample else _INF for fixed, sample in workers)
            low, high = (low, middle) if done >= len(workers) else (middle, high)
        whole = len(seconds) + part * (sum(fixed / sample for fixed, sample in seconds) - len(seconds))
        together = whole / sum(1 / sample for _, sample in seconds)
        exact = max(part * max(fixed for fixed, _ in seconds), together)
        assert math.isclose(exact, high, rel_tol=1e-9)
        return 1 / exact

    def _fastest(self, job: ReferenceJob) -> float:
        """Speed of the job on the GPU type where it is fastest."""
        return max(self._speed_on(job, s) for s in range(self.cluster.num_servers))

    def _alone(self, job: ReferenceJob, servers: int) -> float:
        fastest = self._fastest(job)
        storage = 0.0
        if self.cluster.storage_bytes_per_second:
            best = max(self.cluster.storage_bytes_per_second)
            storage = math.ceil(job.num_gpus / max(servers, 1)) / best
        return self._rate(job, servers, 1.0 if servers > 1 else 0.0, fastest, storage)

    def _stored_bytes(self, job: ReferenceJob) -> float:
        """Bytes of a sample that come from storage: those that are not in the RAM of the job's workers."""
        if not self.cluster.storage_bytes_per_second or job.kind == JobKind.CPU_ONLY:
            return 0.0
        cached = float(job.num_gpus) * float(job.held["ram_per_worker"])
        return float(job.sample_bytes * (1.0 - min(cached / job.dataset_bytes, 1.0)))

    def storage_seconds_per_byte(self, job: ReferenceJob) -> float:
        """Seconds in which a worker reads a byte on the worst of the job's servers; 0: it reads nothing."""
        if self._stored_bytes(job) == 0.0:
            return 0.0
        readers = Counter(
            int(self.cluster.server_of_gpu[gpu])
            for other in self.jobs
            if self._stored_bytes(other) > 0.0
            for gpu in other.gpus
        )
        capacity = self.cluster.storage_bytes_per_second
        return max(readers[server] / capacity[server] for server in self.servers(job))

    def sharing_slowdown(self, job: ReferenceJob) -> float:
        """1 + the neighbours' excess on the worst of the job's GPUs."""
        if self.cluster.jobs_per_gpu == 1:
            return 1.0
        crowds = [
            sum(
                _summable(self._excess(job, other, int(self.cluster.server_of_gpu[gpu])))
                for other in self.jobs
                if other is not job and gpu in other.gpus
            )
            for gpu in job.gpus
        ]
        return 1.0 + max(crowds, default=0.0)

    def _excess(self, job: ReferenceJob, other: ReferenceJob, server: int) -> float:
        """Extra compute time of a job beside another on a GPU of the server."""
        interference = self._performance.interference
        if interference.pairs is not None:
            return float(interference.pairs[job.model, other.model])
        if interference.sharing is None:
            return 0.0
        return self._shared(job, server, 1) * self._shared(other, server, 2)

    def _shared(self, job: ReferenceJob, server: int, column: int) -> float:
        """A job's sensitivity (column 1) or pressure (2) at its present batch: a line through logarithms."""
        assert self._performance.interference.sharing is not None
        kind = list(GPU_MEMORY_BYTES).index(self._gpu_type(server))
        points = [
            row for row in self._performance.interference.sharing[job.model, kind].tolist() if row[0] < _INF
        ]
        samples = job.batch / job.num_gpus
        below = [point for point in points if point[0] <= samples]
        above = [point for point in points if point[0] >= samples]
        if not below or not above:
            return float((below or above[:1])[-1][column])
        (low, *first), (high, *second) = below[-1], above[0]
        one, two = first[column - 1], second[column - 1]
        if low == high:
            return float(one)
        part = math.log(samples / low) / math.log(high / low)
        return float(one * (two / one) ** part if one > 0 and two > 0 else one + part * (two - one))

    def _held_on(self, job: ReferenceJob, server: int, resource: Resource) -> int:
        """What the job holds of a resource on a server; parameter servers are dealt out server by server."""
        mine = self.servers(job)
        if server not in mine:
            return 0
        if job.server is not None:
            return int(job.held[resource.per_worker])
        workers = sum(int(self.cluster.server_of_gpu[gpu]) == server for gpu in job.gpus)
        tasks = [i for i in range(job.held["parameter_servers"]) if mine[i % len(mine)] == server]
        of_task = job.held[resource.per_server_task] if resource.per_server_task else 0
        return int(workers * job.held[resource.per_worker] + len(tasks) * of_task)

    def held_on(self, server: int) -> tuple[int, ...]:
        """[resources] of a server that jobs hold."""
        return tuple(sum(self._held_on(job, server, one) for job in self.jobs) for one in RESOURCES)

    def bandwidth_slowdown(self, job: ReferenceJob) -> float:
        """How much slower accesses to memory are on the worst of the job's servers, at least 1."""
        capacity = self.cluster.memory_bandwidth_bytes_per_second
        if not capacity:
            return 1.0
        worst = 1.0
        for server in self.servers(job):
            demand = sum(
                math.ceil(other.memory_bandwidth * other.held["memory_bandwidth_cap"])
                * self._held_on(other, server, RESOURCES[CORES])
                for other in self.jobs
            )
            worst = max(worst, self._memory_slowdown(demand / int(capacity[server])))
        return worst

    def _memory_slowdown(self, requested: float) -> float:
        """Of all work where a load is requested: a line between the measured points, at least the load."""
        memory = self._performance.memory
        moved = np.array(list(memory.latencies))
        slower = 1 + memory.stalled_share * (np.array(list(memory.latencies.values())) - 1)
        return float(max(np.interp(requested, moved * slower, slower), requested))

    def _links(self, job: ReferenceJob) -> list[tuple[str, int]]:
        """Links a job's ring uses."""
        servers = self.servers(job)
        if len(servers) <= 1 or job.server is not None:
            return []
        racks = {self.cluster.rack_of_server[s] for s in servers} if self.cluster.rack_of_server else set()
        crosses = len(racks) > 1 and (job.plan_model < 0 or self._stage_crosses(job))
        uplinks = [("uplink", rack) for rack in sorted(racks)] if crosses else []
        return [("server", s) for s in servers] + uplinks

    def _stage_crosses(self, job: ReferenceJob) -> bool:
        """Whether a pipeline stage of the job's plan is in several racks. Ranks fill GPUs in order."""
        stage = int(self._plan_parts(job, len(self.servers(job)), self._fewest(job))[2])
        racks = [self.cluster.rack_of_server[self.cluster.server_of_gpu[gpu]] for gpu in sorted(job.gpus)]
        return any(len(set(racks[start : start + stage])) > 1 for start in range(0, len(racks), stage))

    def _capacity(self, link: tuple[str, int]) -> float:
        if link[0] == "server":
            return 1.0
        return self.cluster.rack_of_server.count(link[1]) / self.cluster.uplink_oversubscription

    def contenders(self) -> dict[int, float]:
        """{running job: rings on its worst link}, by the performance model's way of counting."""
        network = self._performance.network
        rings = {j: self._links(self.jobs[j]) for j in self.running if self._links(self.jobs[j])}
        if network is Network.NONE:
            return {}
        if network is Network.MAX_MIN:
            return {j: 1.0 / share for j, share in self._max_min(rings).items()}
        share = {j: self.jobs[j].held["link_share"] for j in rings}
        sends = {j: 1.0 if network is Network.WORST_LINK else self._duty(self.jobs[j]) for j in rings}
        weights = {j: _summable(sends[j] * share[j]) for j in rings}
        return {
            j: max(
                (1.0 + sum(weights[k] for k, theirs in rings.items() if k != j and link in theirs) / share[j])
                / self._capacity(link)
                for link in links
            )
            for j, links in rings.items()
        }

    def _duty(self, job: ReferenceJob) -> float:
        """Share of its time a ring would transmit, alone."""
        if job.plan_model >= 0:
            other, ring, _stage = self._plan_parts(job, len(self.servers(job)), self._fewest(job))
            return ring / (other + ring)
        share = job.gradient_bytes * (job.num_gpus - 1) / job.num_gpus
        fabric = self._performance.between_servers
        sending = 2 * share / float(fabric.bandwidth(np.array([len(self.servers(job))]))[0])
        ring = sending + 2 * (job.num_gpus - 1) * fabric.latency_seconds
        compute = self._compute_seconds(job) / self.gpu_speed(job)
        exponent = self._overlap_exponent(job)
        return sending / self._overlapped(compute, ring, exponent)

    @staticmethod
    def _overlapped(compute: float, ring: float, exponent: float) -> float:
        if exponent == 1.0 or ring == 0.0:
            return compute + ring
        longest = max(compute, ring)
        return float(longest * (1 + (min(compute, ring) / longest) ** exponent) ** (1 / exponent))

    def _overlap_exponent(self, job: ReferenceJob) -> float:
        of_all = self._performance.overlap_exponent
        own = None if job.model < 0 else catalogue()[job.model].overlap_exponent
        exponent = float(of_all or own or 1.0)
        reordered = self._performance.out_of_order_backprop
        return exponent / (1 - reordered) if reordered < 1 else _INF

    def _max_min(self, rings: dict[int, list[tuple[str, int]]]) -> dict[int, float]:
        """{ring: its part of its links}. Parts are rounded where weights differ, so that sums are exact."""
        weights = {j: _summable(self.jobs[j].held["link_share"]) for j in rings}
        weighted = any(weight != 1.0 for weight in weights.values())
        left = {link: self._capacity(link) for links in rings.values() for link in links}
        shares: dict[int, float] = {}
        while len(shares) < len(rings):
            flows: dict[tuple[str, int], float] = {}
            for j, link in ((j, link) for j, links in rings.items() if j not in shares for link in links):
                flows[link] = flows.get(link, 0.0) + weights[j]
            share, tightest = min((left[link] / count, link) for link, count in flows.items())
            frozen = [j for j, links in rings.items() if j not in shares and tightest in links]
            for j in frozen:
                shares[j] = _summable(share * weights[j]) if weighted else share
                for link in rings[j]:
                    left[link] = max(left[link] - shares[j], 0.0)
        return shares

    def speeds(self) -> dict[int, float]:
        """{running job: seconds of one base iteration}, as things are now."""
        contenders = self.contenders()
        speeds = {}
        for j in self.running:
            job = self.jobs[j]
            servers = self.servers(job)
            crowd = contenders.get(j, 0.0)
            if crowd and self._performance.network is not Network.MAX_MIN:
                crowd = max(crowd, 1.0)
            speeds[j] = self._there(job, {"contenders": crowd, "num_servers": len(servers)})
        return speeds

    def _there(self, job: ReferenceJob, otherwise: Mapping[str, float]) -> float:
        """Seconds of one base iteration where the job is, but for what is given."""
        speed, storage = self.gpu_speed(job), self.storage_seconds_per_byte(job)
        return self._rate(job, len(self.servers(job)), 0.0, speed, storage, otherwise)

    def loss_rates(self, job: ReferenceJob, seconds: float) -> dict[str, float]:
        """{loss: seconds of one base iteration}, and "work", of a running job that takes `seconds`.

        What each is, and why in this order: `ringyard.sim.engine.slowdown_accounting`.
        """
        worst = max((1.0 / self._capacity(link) for link in self._links(job)), default=0.0)
        fewest = int(self.cluster.fewest_servers(np.array([max(job.num_gpus, 1)]))[0])
        fed: dict[str, float] = {
            "cores_per_worker": job.asked["cores_per_worker"] if job.kind == JobKind.CPU_ONLY else 0,
            "cores_per_server_task": 0,
            "bandwidth_slowdown": 1.0,
            "stored_bytes": 0.0,
            "memory_bandwidth_cap": 1.0,
        }
        better: dict[str, dict[str, float]] = {
            "contention": {"contenders": max(worst, 1.0) if worst else 0.0},
            "spread": {"num_servers": fewest, "contenders": float(fewest > 1), "fewest_gpus": 0},
            "interference": {"sharing_slowdown": 1.0},
            "input": fed,
            "stragglers": {"straggler": 1.0},
            "gpu_types": {"gpu_speed": self._fastest(job)},
        }
        rates: dict[str, float] = {}
        changed: dict[str, float] = {}
        now = seconds
        for name, columns in better.items():
            changed |= columns
            without = self._there(job, changed)
            rates[name], now = now - without, without
        asked = copy.copy(job)
        asked.num_gpus, asked.batch, asked.held = job.asked_gpus, job.base_batch, job.asked
        servers = int(self.cluster.fewest_servers(np.array([max(job.asked_gpus, 1)]))[0])
        changed |= {"num_servers": servers, "contenders": float(servers > 1)}
        work = self._rate(asked, servers, 0.0, 1.0, 0.0, changed | {"gpu_speed": self._fastest(asked)})
        return rates | {"size": now - work, "work": work}

    def kernel_seconds_until(self, time: float, now: float) -> float:
        """GPU seconds from now to `time` in which kernels run, while nobody comes, goes or changes."""
        total = 0.0
        for gpu in range(self.cluster.num_gpus):
            there = [job for job in self.jobs if gpu in job.gpus]
            ready = sorted({min(max(job.ready, now), time) for job in there} | {time})
            for begin, end in itertools.pairwise(ready):
                busy = sum(self._kernel_share(job, gpu) for job in there if job.ready <= begin)
                total += min(busy, 1.0) * (end - begin)
        return total

    def _kernel_share(self, job: ReferenceJob, gpu: int) -> float:
        """Share of an iteration in which the job's kernels run on one of its GPUs."""
        server = int(self.cluster.server_of_gpu[gpu])
        speed = self.gpu_speed(job) if job.balances else self._speed_on(job, server)
        shares = {} if job.model < 0 else catalogue()[job.model].kernel_share
        points = sorted(shares.get(self._gpu_type(server), next(iter(shares.values()), {1.0: 1.0})).items())
        share = self._at_samples(points, job.batch / job.num_gpus)
        return self._compute_seconds(job) / speed * share / (job.seconds * self._worth(job))

    @staticmethod
    def _at_samples(points: list[tuple[float, float]], samples: float) -> float:
        """Value at a number of samples: a line through logarithms, flat beyond its ends."""
        at, values = zip(*points, strict=True)
        if min(values) > 0:
            return float(np.exp(np.interp(np.log(samples), np.log(at), np.log(values))))
        return float(np.interp(np.log(samples), np.log(at), values))
