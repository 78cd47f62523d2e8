"""Closed forms of queueing theory, where every job asks for one GPU."""

import math

import numpy as np
import pytest

from ringyard import Cluster, JobTable, Simulator, ideal
from ringyard.placement import pack
from ringyard.sim.metrics import job_times
from ringyard_baselines.classic.start_only import fifo
from ringyard_baselines.scheduler import run

RUNS, JOBS, WARM_UP = 12, 20_000, 2_000


def mean_waits(servers, load):
    """[runs] mean waiting time, in mean service times, of a FIFO queue with exponential jobs."""
    waits = []
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        submit = np.cumsum(rng.exponential(1.0 / (load * servers), JOBS))
        jobs = JobTable.from_columns(submit - submit[0], np.ones(JOBS), rng.exponential(1.0, JOBS))
        sim = Simulator(Cluster.homogeneous(1, servers), jobs, ideal())
        run(sim, fifo(pack()), rng)
        waits.append(job_times(sim.state, 0, sim.jobs).queueing_seconds[WARM_UP:].mean())
    return np.array(waits)


def erlang_c(servers, load):
    """Probability that an arrival waits in M/M/c."""
    offered = servers * load
    top = offered**servers / math.factorial(servers) / (1 - load)
    return top / (sum(offered**k / math.factorial(k) for k in range(servers)) + top)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (4, 0.8), (16, 0.9)])
def test_mean_wait_of_m_m_c(servers, load):
    expected = erlang_c(servers, load) / (servers * (1 - load))
    waits = mean_waits(servers, load)
    # 4 standard errors: a false alarm once in thousands of seeds, and the seeds are fixed
    assert abs(waits.mean() - expected) < 4 * waits.std(ddof=1) / math.sqrt(RUNS)


def test_m_m_1_is_the_special_case():
    assert erlang_c(1, 0.8) / (1 - 0.8) == pytest.approx(0.8 / 0.2)
