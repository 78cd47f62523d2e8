"""Per-job equality with other published simulators, everything but queueing switched off.

What these simulators answered, and who wrote them: tests/crosscheck/README.md.
"""

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT
from crosscheck.build import TRACES
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


@pytest.mark.parametrize("trace", TRACES)
@pytest.mark.parametrize("peer", PEERS)
def test_every_job_starts_and_ends_as_in_the_peer(peer, trace, rng):
    file = ROOT / "tests" / "crosscheck" / f"{trace}.csv.gz"
    expected = pd.read_csv(file).sort_values("job_id")
    sim = Simulator(Cluster.homogeneous(TRACES[trace] // 8, 8), read_csv(file), ideal())
    run(sim, PEERS[peer](), rng)
    times = job_times(sim.state, 0, sim.jobs)
    order = np.argsort(times.job_id)
    assert times.start_seconds[order].tolist() == expected[f"{peer}_start"].tolist()
    assert times.end_seconds[order].tolist() == expected[f"{peer}_end"].tolist()
