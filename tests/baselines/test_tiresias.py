"""Tiresias against a plain replay of its public simulator's rule, and its order and promotion by hand."""

import math

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.errors import ConfigurationError
from ringyard.placement import pack
from ringyard.sim.metrics import job_times
from ringyard_baselines.papers.gittins import GittinsTiresias
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run


def schedule(scheduler, submit, gpus, durations, num_gpus=4, compiled=True):
    """([first starts], [ends], preemptions) with free restarts on one server."""
    jobs = JobTable.from_columns(submit, gpus, durations)
    sim = Simulator(Cluster.homogeneous(1, num_gpus), jobs, ideal())
    run(sim, scheduler, np.random.default_rng(0), compiled)
    times = job_times(sim.state, 0, sim.jobs)
    return times.start_seconds.tolist(), times.end_seconds.tolist(), sim.metrics().preemptions


class PublishedJob:
    """What SymbioticLab's simulator (`dlas-gpu`, `dlas-gpu-K`) remembers of a job, in whole seconds."""

    def __init__(self, submit, gpus, duration):
        self.submit, self.gpus, self.left = submit, gpus, duration
        self.ran = self.waited = 0  # since its last promotion, waiting from its first run after it
        self.queue = 0
        self.runs = False
        self.start = self.end = None

    def next_check(self, thresholds, knob):
        """Seconds until its queue is looked at; mixes seconds and GPU seconds, as published."""
        if self.runs and self.queue < len(thresholds):
            return (thresholds[self.queue] - self.ran) // self.gpus
        if not self.runs and self.queue > 0 and knob < math.inf:
            return int(self.ran * knob - self.waited)
        return math.inf

    def next_queue(self, thresholds, knob):
        """Down one queue if it runs and has the GPU seconds, to the first if it waits for too long."""
        if self.runs:
            return self.queue + (
                self.queue < len(thresholds) and self.ran * self.gpus >= thresholds[self.queue]
            )
        starved = self.queue > 0 and knob < math.inf and self.waited >= int(self.ran * knob)
        return 0 if starved else self.queue


def published(submit, gpus, durations, num_gpus, thresholds, knob):
    """([first starts], [ends]): queues are plain lists, and every event looks at all jobs."""
    jobs = [PublishedJob(*row) for row in zip(submit, gpus, durations, strict=True)]
    queues = [[] for _ in range(len(thresholds) + 1)]
    submitted = 0
    now, passed = submit[0], 0
    while any(job.end is None for job in jobs):
        live = [job for job in jobs[:submitted] if job.end is None]
        for job in live:
            job.ran += passed * job.runs
            job.left -= passed * job.runs
            job.waited += passed * (not job.runs and job.ran > 0)
            if job.left == 0:
                job.end = now
                queues[job.queue].remove(job)
        while submitted < len(jobs) and submit[submitted] == now:
            queues[0].append(jobs[submitted])
            submitted += 1
        live = [job for job in jobs[:submitted] if job.end is None]
        for job in live:
            queue = job.next_queue(thresholds, knob)
            if queue != job.queue:
                queues[job.queue].remove(job)
                queues[queue].append(job)
                if queue == 0:
                    job.ran = job.waited = 0
                job.queue = queue
        free = num_gpus
        for queue in queues:
            for job in queue:
                job.runs = job.gpus <= free
                free -= job.gpus * job.runs
                if job.runs and job.start is None:
                    job.start = now
            queue.sort(key=lambda job: not job.runs)
        times = [job.left for job in live if job.runs] + [job.next_check(thresholds, knob) for job in live]
        passed = min(times + [time - now for time in submit[submitted : submitted + 1]], default=0)
        now += passed
    return [job.start for job in jobs], [job.end for job in jobs]


@pytest.mark.parametrize("knob", [math.inf, 0.5, 1.0, 8.0])
def test_the_public_simulators_rule_is_replayed_to_the_second(knob, rng):
    for case in range(40):
        num_jobs, num_gpus = int(rng.integers(5, 60)), int(rng.choice([8, 12, 24]))
        submit = np.sort(rng.integers(0, 1 + num_jobs * 20, num_jobs) // 10 * 10)  # many arrive at once
        gpus = rng.choice([1, 2, 3, 4, 8], num_jobs)
        durations = 1 + rng.lognormal(4.0, 1.5, num_jobs).astype(int)
        thresholds = [int(rng.integers(30, 300)), int(rng.integers(400, 1000)), int(rng.integers(2000, 5000))]
        thresholds = thresholds[: 1 + case % 3]
        jobs = [column.tolist() for column in (submit, gpus, durations)]
        scheduler = tiresias(pack(), thresholds, knob, demotion="public_simulator")
        expected = published(*jobs, num_gpus, thresholds, knob)
        assert schedule(scheduler, *jobs, num_gpus, compiled=case % 4 > 0)[:2] == expected


def test_who_runs_stays_ahead_of_older_jobs_of_its_queue():
    # job 1 does not fit beside job 0, job 2 does: it stays when job 0 ends, unless submission decides
    jobs = ([0, 1, 2], [2, 4, 2], [20, 10, 50])
    assert schedule(tiresias(pack()), *jobs) == ([0, 52, 2], [20, 62, 52], 0)
    submission = tiresias(pack(), within_queue="submission")
    assert schedule(submission, *jobs) == ([0, 20, 2], [20, 30, 62], 1)


def test_a_demoted_job_goes_behind_its_new_queue():
    # job 0 is demoted at 10 and stopped for job 1, which is demoted behind it at 20 and stopped for it
    jobs = ([0, 0], [4, 4], [30, 30])
    assert schedule(tiresias(pack(), [40.0]), *jobs) == ([0, 10], [40, 60], 2)
    gittins = GittinsTiresias(pack(), 40.0)  # ranks fall with service: all services are 120 GPU seconds
    assert schedule(gittins, *jobs)[2] == 0


def test_a_starved_job_returns_to_the_end_of_the_first_queue():
    # job 0 is demoted and stopped at 10; with knob 1 it is promoted at 20, behind job 2 and ahead of job 3
    jobs = ([0, 1, 2, 25], [4] * 4, [30, 10, 10, 10])
    assert schedule(tiresias(pack(), [40.0], 1.0), *jobs)[1] == [60, 20, 30, 50]
    assert schedule(tiresias(pack(), [40.0], math.inf), *jobs)[1] == [60, 20, 30, 40]


def test_options_that_contradict():
    with pytest.raises(ConfigurationError, match="within_queue"):
        tiresias(pack(), demotion="public_simulator", within_queue="submission")
