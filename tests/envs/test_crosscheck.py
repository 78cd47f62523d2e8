"""Per-job equality with other published simulators, everything but queueing switched off."""

import numpy as np
import pytest

from conftest import shared
from ringyard import Cluster, Simulator, ideal
from ringyard.placement import consolidate, pack
from ringyard.sim.metrics import job_times
from ringyard.workloads import read_csv
from ringyard_baselines.orders.fifo import fifo, fifo_strict
from ringyard_baselines.orders.sjf import sjf
from ringyard_baselines.orders.smallest_first import smallest_first
from ringyard_baselines.orders.srtf import srtf
from ringyard_baselines.scheduler import run

PEERS = {
    "tiresias_fifo": lambda: fifo_strict(pack()),
    "tiresias_fjf": lambda: fifo(pack()),
    "pai_FIFO": lambda: fifo(pack()),
    "pai_SJF": lambda: sjf(pack()),
    "tiresias_shortest": lambda: srtf(pack()),
    "tiresias_sjf": lambda: smallest_first(pack()),
    "helios_fifo": lambda: fifo_strict(consolidate()),
    "helios_sjf": lambda: sjf(consolidate(), strict=True),
}
TRACES = {"tiresias60": 16, "syn1000": 64, "philly_7f04ca": 80}


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("peer", PEERS)
def test_every_job_starts_and_ends_as_in_the_peer(peer, trace, rng):
    gpus = TRACES[trace]
    expected = np.genfromtxt(
        shared("crosscheck", "results", f"{peer}__{trace}__g{gpus}.csv"), delimiter=",", names=True
    )
    expected = np.sort(expected, order="job_id")
    jobs = read_csv(shared("crosscheck", "traces", f"{trace}.csv"))
    sim = Simulator(Cluster.homogeneous(gpus // 8, 8), jobs, ideal())
    run(sim, PEERS[peer](), rng)
    times = job_times(sim.state, 0, sim.jobs)
    order = np.argsort(times.job_id)
    assert times.start_seconds[order].tolist() == expected["start_time"].tolist()
    assert times.end_seconds[order].tolist() == expected["end_time"].tolist()
