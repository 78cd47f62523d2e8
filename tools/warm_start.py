"""`python -m tools.warm_start NAME:FILE ...`: empty and warm starts (`workload.warm`), beside a long replay.

Windows of a trace keep their recorded times. The long replay begins weeks earlier with an empty cluster and
ends with the window's last job. A warm-up runs as many jobs before the window. Only the window's own jobs
count.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringyard import Cluster, JobTable, Simulator
from ringyard.errors import WorkloadWarning
from ringyard.mdp.env_config import ten_gigabit_rings
from ringyard.mdp.user_config import hydra_initialized
from ringyard.restart import constant
from ringyard.sim.metrics import job_times
from ringyard.workloads import ModelMix, Replay, read_trace
from ringyard_agents.command_line import Arguments
from ringyard_agents.config.compose import SchedulerEntry, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import build_object
from ringyard_baselines.scheduler import Scheduler, run

_WEEK = 7 * 86400.0
_GPUS_PER_SERVER = 8
_SCHEDULERS = ["fifo_backfill@consolidate", "las@consolidate", "srsf@consolidate"]
_STARTS = ("empty start", "warm start", "empty, warm-up", "warm, warm-up", "long replay")
_FIRST_SHARE = 0.3  # windows begin after this share of the jobs, so that weeks precede them


def _scheduler(name: str) -> Scheduler:
    with hydra_initialized():
        return build_object(to_plain(scheduler_config(SchedulerEntry.read(name))))


def _mean_jct(jobs: JobTable, cluster: Cluster, scheduler: Scheduler, own: int) -> float:
    """Mean JCT in seconds of the last `own` rows of a table."""
    sim = Simulator(cluster, jobs, ten_gigabit_rings(), constant(30.0), scheduler.round_seconds)
    run(sim, scheduler, np.random.default_rng(0))
    times = job_times(sim.state, 0, sim.jobs)
    return float(times.jct[times.rows >= len(jobs) - own].mean())


def measure(
    trace: JobTable, cluster: Cluster, scheduler: Scheduler, windows: int, window_jobs: int, weeks: float
) -> NDArray[np.float64]:
    """Return [windows, 5] mean JCT in seconds of each window's own jobs, in the order of `_STARTS`."""
    models, rng = ModelMix(), np.random.default_rng(0)
    trace = models.assign(trace, rng)
    firsts = rng.integers(int(_FIRST_SHARE * len(trace)), len(trace) - window_jobs, windows)
    found = np.zeros((windows, len(_STARTS)))
    for row, first in enumerate(firsts.tolist()):
        submit, end = trace.submit_seconds, first + window_jobs
        begin = int(np.searchsorted(submit, submit[first] - weeks * _WEEK))
        tables = []
        for earlier in (0, window_jobs):
            start = int(np.searchsorted(submit, submit[first - earlier]))
            cold = Replay(trace, models, end - start, start_seconds=float(submit[start]))
            both = (cold, replace(cold, warm=True))
            tables += [one.sample(cluster, np.random.default_rng(row)) for one in both]
        before = trace.rows(slice(begin, end))
        tables.append(before.shifted(before.submit_seconds - before.submit_seconds[0]))
        found[row] = [_mean_jct(one, cluster, scheduler, window_jobs) for one in tables]
    return found


def main(words: Sequence[str] | None = None) -> None:
    """Print a table of mean JCT by trace and scheduler."""
    parser = Arguments(prog="python -m tools.warm_start", description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", metavar="NAME:FILE", help="such as philly:philly_jobs.csv.gz")
    parser.add_argument("--gpus", nargs="+", type=int, default=[512], help="of the cluster, for each file")
    parser.add_argument("--schedulers", nargs="+", default=_SCHEDULERS)
    parser.add_argument("--windows", type=int, default=20, help="(%(default)s)")
    parser.add_argument("--jobs", type=int, default=512, help="of a window (%(default)s)")
    parser.add_argument("--weeks", type=float, default=3.0, help="before a window (%(default)s)")
    given = parser.parse_args(words)
    warnings.simplefilter("ignore", WorkloadWarning)
    print(f"| trace | GPUs | scheduler | {' | '.join(f'{start} (s)' for start in _STARTS)} |")
    print("|---|---:|---|" + "---:|" * len(_STARTS))
    for position, word in enumerate(given.files):
        name, _, file = word.partition(":")
        gpus = given.gpus[min(position, len(given.gpus) - 1)]
        cluster = Cluster.homogeneous(gpus // _GPUS_PER_SERVER, _GPUS_PER_SERVER)
        trace = read_trace(Path(file), name)
        trace = trace.rows(trace.num_gpus <= 64)
        for label in given.schedulers:
            settings = given.windows, given.jobs, given.weeks
            means = measure(trace, cluster, _scheduler(label), *settings).mean(axis=0)
            cells = " | ".join(f"{mean:,.0f}" for mean in means)
            print(f"| {name} | {gpus} | `{label}` | {cells} |", flush=True)


if __name__ == "__main__":
    main()
