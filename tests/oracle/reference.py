"""The simulator again, slow and plain: the oracle of the compiled engine's tests.

Everything is recomputed from scratch after every change: who holds what, every link, every GPU's and server's
crowd, every job's speed. No heap, no incremental counts, no arrays. Times are computed from the same numbers
in the same order as in the engine, so that ties tie in both; `ringyard.sim.engine.events` says what a tie is,
and who is late.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

import numpy as np

from oracle.physics import ReferenceJob, ReferencePhysics
from ringyard.cluster import Cluster
from ringyard.errors import PlacementError, SchedulerError
from ringyard.failures import Failures, no_failures
from ringyard.jobs import JobTable
from ringyard.performance import PerformanceModel
from ringyard.resources import RESOURCES
from ringyard.restart import RestartCost, constant
from ringyard.sim.allocation import Allocation
from ringyard.sim.engine.events import SERVER_STREAM
from ringyard.state.random_numbers import exponential_at, normal_at, uniform_at
from ringyard.state.records import JobKind, JobOutcome

__all__ = ["ReferenceSimulator"]

_INF = float("inf")


class ReferenceSimulator(ReferencePhysics):
    """Same jobs, allocations and decision points as `ringyard.sim.simulator.Simulator`.

    Args: as there; random placement, timelines and forks are left out.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: JobTable,
        performance: PerformanceModel,
        restart: RestartCost | None = None,
        round_seconds: float | None = None,
        seed: int = 0,
        failures: Failures | None = None,
        rounds_only: bool = False,
        losses: bool = False,
    ) -> None:
        jobs.check(cluster)
        super().__init__(cluster, performance)
        self.now = 0.0
        self.jobs_in_system_integral = 0.0
        self.busy_gpu_integral = 0.0
        self.kernel_seconds = 0.0
        self._losses = losses
        self._round_seconds = round_seconds
        self._rounds_only = rounds_only
        self._next_round = 0.0 if rounds_only else round_seconds or _INF
        self._seed = np.uint64(seed)
        self._failures = failures or no_failures()
        costs = restart or constant(0.0)
        restarts = zip(costs.restart_seconds(jobs).tolist(), costs.restart_growth(jobs).tolist(), strict=True)
        resizes = zip(costs.resize_seconds(jobs).tolist(), costs.resize_growth(jobs).tolist(), strict=True)
        servers = zip(costs.servers_seconds(jobs).tolist(), costs.servers_growth(jobs).tolist(), strict=True)
        self._jump_gpus, self._jumps = costs.jump_gpus, (costs.jump, costs.resize_jump, costs.servers_jump)
        pauses = zip(restarts, resizes, servers, costs.cores_seconds(jobs).tolist(), strict=True)
        self.jobs = [self._read(jobs, j, *all_of_it) for j, all_of_it in enumerate(pauses)]
        fewest = cluster.fewest_servers(jobs.num_gpus)
        for j, job in enumerate(self.jobs):
            alone = self._alone(job, int(fewest[j]))
            given = float(jobs.iterations[j])
            job.total = float(jobs.duration_seconds[j]) / alone if math.isnan(given) else given
            job.remaining = job.total
            if elapsed := float(jobs.elapsed_seconds[j]):
                job.remaining = (float(jobs.duration_seconds[j]) - elapsed) / alone
                job.service, job.ran = elapsed * job.asked_gpus, elapsed
            job.left = job.saved = job.remaining
            job.alone = alone
        self._up = [True] * cluster.num_servers
        self._draws = [0] * cluster.num_servers
        self._change = [
            self._exponential(s, self._failures.mean_up_seconds) for s in range(cluster.num_servers)
        ]
        self._outages = self._draw_outages() if self._failures.outages else []
        for s, outages in enumerate(self._outages):
            self._up[s] = next(outages)
            self._change[s] = next(outages)

    def _read(
        self,
        jobs: JobTable,
        j: int,
        restart: tuple[float, float],
        resize: tuple[float, float],
        servers: tuple[float, float],
        cores: float,
    ) -> ReferenceJob:
        job = ReferenceJob(
            row=j,
            submit=float(jobs.submit_seconds[j]),
            kind=int(jobs.kind[j]),
            model=int(jobs.model_ids[j]),
            plan_model=int(jobs.plan_model[j]),
            asked_gpus=int(jobs.num_gpus[j]),
            base_batch=float(jobs.batch_size[j]),
            base_compute=float(jobs.compute_seconds[j]),
            fixed_fraction=float(jobs.fixed_fraction[j]),
            balances=(self._performance.batch_split == "by_speed", False, True)[jobs.batch_split[j]],
            noise_scale=float(jobs.noise_scale[j]),
            gradient_bytes=float(jobs.gradient_bytes[j]),
            samples_per_core_second=float(jobs.samples_per_core_second[j]),
            loading_serial_share=float(jobs.loading_serial_share[j]),
            sample_bytes=float(jobs.sample_bytes[j]),
            dataset_bytes=float(jobs.dataset_bytes[j]),
            memory_bandwidth=math.ceil(jobs.memory_bandwidth[j]),
            predictable_from=float(jobs.predictable_from[j]),
            cancel=float(min(jobs.cancel_seconds[j], jobs.submit_seconds[j] + jobs.acceptable_jct[j])),
            deadline=float(jobs.submit_seconds[j] + jobs.acceptable_jct[j]),
            promised=float(jobs.deadline_seconds[j]),
            outcome=int(jobs.outcome[j]),
            asked=self._asked(jobs, j),
            restart=(*restart, self._jumps[0]),
            resize=(*resize, self._jumps[1]),
            servers_change=(*servers, self._jumps[2]),
            cores_change=cores,
            gpus=(),
            server=None,
            since=0.0,  # when its speed last changed
            began=0.0,  # when it last started or changed
            ready=0.0,
            start=None,
            end=None,
            arrived=False,
            predictable=bool(jobs.predictable_from[j] <= 0),
            service=0.0,
            ran=0.0,
            preemptions=0,
            resizes=0,
            failures=0,
            straggler=1.0,
            seconds=float("nan"),
            lost=Counter(),  # seconds
            rates={"work": 0.0},  # of one base iteration
        )
        self._ask(job)
        return job

    def _asked(self, jobs: JobTable, j: int) -> dict[str, float]:
        """{what a job holds beside its GPUs: how much it asks for}; 0: the cluster does not count it."""
        asked: dict[str, float] = {
            "parameter_servers": int(jobs.parameter_servers[j]),
            "memory_bandwidth_cap": 1.0,
            "link_share": 1.0,
            "plan": int(jobs.plan[j]),
        }
        for one in RESOURCES:
            counted = bool(getattr(self.cluster, one.capacity))
            for column in filter(None, (one.per_worker, one.per_server_task)):
                asked[column] = math.ceil(getattr(jobs, column)[j]) if counted else 0
        return asked

    @staticmethod
    def _ask(job: ReferenceJob) -> None:
        job.num_gpus, job.batch, job.held = job.asked_gpus, job.base_batch, job.asked

    @property
    def done(self) -> bool:
        """Whether every job has left."""
        return all(job.end is not None for job in self.jobs)

    @property
    def waiting(self) -> list[int]:
        """Rows of the waiting jobs."""
        return [j.row for j in self.jobs if j.arrived and j.end is None and not self._holds(j)]

    # decisions

    def apply(self, allocations: Sequence[Allocation]) -> None:
        """Carry out allocations in the given order."""
        for allocation in allocations:
            self._carry_out(self.jobs[allocation.job], allocation)

    def _carry_out(self, job: ReferenceJob, allocation: Allocation) -> None:
        if allocation.reject:
            self._leave(job, JobOutcome.BLOCKED)
            return
        if allocation.preempts:
            self._stop(job)
            return
        given = {name: getattr(allocation, name, None) for name in job.held}
        held = job.held | {name: value for name, value in given.items() if value is not None}
        batch = job.batch if allocation.batch_size is None else allocation.batch_size
        server = allocation.server if job.kind == JobKind.CPU_ONLY else None
        gpus = tuple(sorted(allocation.gpu_ids))
        if allocation.plan is None and len(gpus) != job.num_gpus:
            held["plan"] = 0  # the fastest
        if not self._holds(job):
            pause = 0.0 if job.start is None else self._pause(job.restart, gpus)
            self._run(job, gpus, server, batch, held, pause)
            job.start = self.now if job.start is None else job.start
            return
        moved = gpus != job.gpus or server != job.server
        resized = (batch, len(gpus), held["plan"]) != (job.batch, len(job.gpus), job.held["plan"])
        if not moved and not resized and held == job.held:
            return
        if moved and not resized:
            self._stop(job)
            self._run(job, gpus, server, batch, held, self._pause(job.restart, gpus))
            return
        pauses = [max(job.ready - self.now, 0.0)]
        if resized:
            pauses.append(self._pause(job.resize, gpus))
        if held["parameter_servers"] != job.held["parameter_servers"]:
            pauses.append(self._pause(job.servers_change, gpus))
        cores = ("cores_per_worker", "cores_per_server_task")
        if any(held[name] != job.held[name] for name in cores) and job.began < self.now:
            pauses.append(job.cores_change)
        self._release(job)
        only_share = not resized and held == job.held | {"link_share": held["link_share"]}
        job.resizes += not only_share  # workers that only get another share keep their speeds
        self._run(job, gpus, server, batch, held, max(pauses))

    def _pause(self, cost: tuple[float, float, float], gpus: Sequence[int]) -> float:
        """Seconds without progress, by (on one GPU, at each doubling, the jump)."""
        seconds, growth, jump = cost
        grown = seconds + growth * math.log2(max(len(gpus), 1))
        return grown + jump if len(gpus) >= self._jump_gpus else grown

    def _release(self, job: ReferenceJob) -> None:
        job.gpus, job.server = (), None
        self._rate_all()

    def _stop(self, job: ReferenceJob) -> None:
        if self._failures.checkpoint_on_preemption:
            self._release(job)
        else:
            self._return_to_checkpoint(job)
        job.preemptions += 1
        job.saved = job.remaining
        self._ask(job)

    def _run(
        self,
        job: ReferenceJob,
        gpus: tuple[int, ...],
        server: int | None,
        batch: float,
        held: dict[str, float],
        pause: float,
    ) -> None:
        full = Counter(gpu for other in self.jobs for gpu in other.gpus)
        if any(full[gpu] >= self.cluster.jobs_per_gpu for gpu in gpus):
            raise PlacementError(f"job {job.row} asks for GPUs that are held by others")
        job.gpus, job.server, job.batch, job.held = gpus, server, batch, held
        job.num_gpus = len(gpus)
        job.began = self.now
        job.since, job.left, job.seconds = self.now, job.remaining, float("nan")
        job.ready = self.now + pause
        cv = self._performance.straggler_cv
        job.straggler = 1.0
        if cv > 0 and len(gpus) > 1:
            variance = math.log(1 + cv**2)
            restarts = job.preemptions + job.failures + job.resizes
            draws = [normal_at(self._seed, job.row, restarts * 65536 + worker) for worker in range(len(gpus))]
            job.straggler = max(math.exp(math.sqrt(variance) * max(draws) - variance / 2), 1.0)
        self._rate_all()

    def _rate_all(self) -> None:
        """Every running job gets the speed of its surroundings, unless its end has come."""
        for j, seconds in self.speeds().items():
            job = self.jobs[j]
            ends = job.since < self.now and self.expected_end(job) <= self.now
            if seconds != job.seconds and not ends:
                job.since, job.left, job.seconds = self.now, job.remaining, seconds
            if self._losses and not ends:
                job.rates = self.loss_rates(job, seconds)

    # time

    def _exponential(self, server: int, mean: float) -> float:
        if math.isinf(mean):
            return _INF
        draw = exponential_at(self._seed, SERVER_STREAM + server, self._draws[server], mean)
        self._draws[server] += 1
        return self.now + float(draw)

    def _draw_outages(self) -> list[Iterator[float]]:
        """[servers] whether the server is up, then when it leaves and returns."""
        period = self._failures.period_seconds
        offset = (1.0 + float(uniform_at(self._seed, SERVER_STREAM - 1, 0))) * period

        def of_server(times: tuple[float, ...]) -> Iterator[float]:
            every = (time + k * period - offset for k in count() for time in times) if times else iter(())
            ahead = [n for n, time in zip(range(3 * len(times)), every, strict=False) if time > 0.0]
            yield not times or ahead[0] % 2 == 0
            every = (time + k * period - offset for k in count() for time in times) if times else iter(())
            yield from (time for time in every if time > 0.0)
            yield _INF

        return [of_server(times) for times in self._failures.outages]

    def _begin(self, job: ReferenceJob) -> float:
        return float(max(job.since, job.ready))

    def expected_end(self, job: ReferenceJob) -> float:
        """When a running job will end at its present speed."""
        return float(self._begin(job) + job.left * job.seconds)

    def _milestone(self, job: ReferenceJob) -> float:
        """When the job becomes predictable; inf if it is already, or never will be."""
        if job.predictable or job.predictable_from >= 1:
            return _INF
        ahead = max(job.left - job.total * (1 - job.predictable_from), 0.0)
        return self._begin(job) + float(ahead * job.seconds)

    def _late(self) -> list[int]:
        return [j for j in self.running if self.expected_end(self.jobs[j]) > self.jobs[j].deadline]

    def _due(self) -> list[int]:
        """Rows of the running jobs that end or become predictable now."""
        jobs = [self.jobs[j] for j in self.running]
        return [job.row for job in jobs if min(self.expected_end(job), self._milestone(job)) <= self.now]

    def _next_time(self) -> float:
        running = [self.jobs[j] for j in self.running]
        times = [min(self.expected_end(job), self._milestone(job)) for job in running]
        times += [job.submit for job in self.jobs if not job.arrived]
        times += [job.cancel for job in self.jobs if job.arrived and job.end is None]
        if self.waiting or self.running:
            times.append(self._next_round)
        if not self.done and (min(times, default=_INF) < _INF or not all(self._up)):
            times += self._change
        time = min(times, default=_INF)
        if time == _INF:
            raise SchedulerError("nothing can happen any more")
        return max(time, self.now)

    def advance(self) -> None:
        """Move to the next decision point."""
        self._step()
        while self._rounds_only and not self.done and not self._at_round():
            self._step()

    def _at_round(self) -> bool:
        before = math.nextafter(self.now, -_INF)
        return self._round_after(before, self._round_seconds or _INF) == self.now

    def _step(self) -> None:
        if self._late():
            while self._late():
                self._leave(self.jobs[self._late()[0]], JobOutcome.BLOCKED)
        else:
            self._pass(self._next_time())
        while self._due():
            job = self.jobs[self._due()[0]]
            if self.expected_end(job) <= self.now:
                self._leave(job, JobOutcome.COMPLETED)
            else:
                job.predictable = True
        for job in self.jobs:
            if job.arrived and job.end is None and job.cancel <= self.now:
                blocked = job.cancel == job.deadline
                self._leave(job, JobOutcome.BLOCKED if blocked else JobOutcome.CANCELLED)
        for server in range(self.cluster.num_servers):
            if self._change[server] <= self.now:
                self._change_server(server)
        for job in self.jobs:
            if not job.arrived and job.submit <= self.now:
                job.arrived = True
        if self._round_seconds is not None and self._next_round <= self.now:
            self._next_round = self._round_after(self.now, self._round_seconds)

    @staticmethod
    def _round_after(now: float, seconds: float) -> float:
        """The first multiple of the length of a round that is later than now."""
        k = int(now // seconds)
        while k * seconds <= now and k <= 2**53:
            k += 1
        return max(k * seconds, math.nextafter(now, _INF))

    def _pass(self, time: float) -> None:
        elapsed = time - self.now
        self.jobs_in_system_integral += (len(self.waiting) + len(self.running)) * elapsed
        self.busy_gpu_integral += len({gpu for job in self.jobs for gpu in job.gpus}) * elapsed
        if self._losses:
            self.kernel_seconds += self.kernel_seconds_until(time, self.now)
        before, self.now = self.now, time
        for j in self.running:
            job = self.jobs[j]
            job.lost["restarts"] += max(min(time, job.ready) - before, 0.0)
            left = job.remaining
            if time > self._begin(job):
                job.remaining = max(job.left - (time - self._begin(job)) / job.seconds, 0.0)
            for name, rate in job.rates.items():
                job.lost[name] += rate * (left - job.remaining)
            job.service += len(job.gpus) * elapsed
            job.ran += elapsed

    def _leave(self, job: ReferenceJob, outcome: JobOutcome) -> None:
        self._release(job)
        job.end = self.now
        if outcome is JobOutcome.COMPLETED:
            job.remaining = 0.0
        else:
            job.outcome = int(outcome)

    def fairness(self) -> list[float]:
        """Finish-time fairness rho of the jobs that have ended and were not blocked."""
        ended = [job for job in self.jobs if job.end is not None and job.outcome != JobOutcome.BLOCKED]
        return [self._rho(job, job.end - job.submit) for job in ended]

    def _rho(self, job: ReferenceJob, jct: float) -> float:
        lives = [(other.submit, self.now if other.end is None else other.end) for other in self.jobs]
        times = sorted({job.submit, job.submit + jct, *(time for life in lives for time in life)})
        shared = 0.0
        for since, until in pairwise(times):
            if job.submit <= since and until <= job.submit + jct:
                asked = [
                    one.asked_gpus
                    for one, life in zip(self.jobs, lives, strict=True)
                    if life[0] <= since < life[1]
                ]
                shared += max(1.0, sum(asked) / self.cluster.num_gpus) * (until - since)
        return jct * jct / (job.total * job.alone * shared) if jct else 0.0

    def _change_server(self, server: int) -> None:
        if self._up[server]:
            for j in self.running:
                if server in self.servers(self.jobs[j]):
                    self._lose(self.jobs[j])
        self._up[server] = not self._up[server]
        up = self._up[server]
        mean = self._failures.mean_up_seconds if up else self._failures.mean_repair_seconds
        self._change[server] = (
            next(self._outages[server]) if self._outages else self._exponential(server, mean)
        )

    def _lose(self, job: ReferenceJob) -> None:
        self._return_to_checkpoint(job)
        job.failures += 1
        self._ask(job)

    def _return_to_checkpoint(self, job: ReferenceJob) -> None:
        between = self._failures.checkpoint_seconds / job.alone
        done = job.total - job.remaining
        kept = 0.0 if math.isinf(between) else min(math.floor(done / between) * between, done)
        self._release(job)
        left = job.remaining
        job.remaining = job.saved = min(job.total - kept, job.saved)
        job.lost["failures"] += job.rates["work"] * (job.remaining - left)
        job.lost["work"] -= job.rates["work"] * (job.remaining - left)
