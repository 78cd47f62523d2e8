"""Every scheduler on the Helios Venus trace, stretched until there is a queue: seconds, and of a decision.

Processor seconds are counted, so that other processes on the machine change them little.
"""

import argparse
import multiprocessing
import time
import warnings

import numpy as np
from common import build, machine

from ringyard import Cluster, Simulator
from ringyard.config_folder import config_folder
from ringyard.errors import RingyardError
from ringyard.mdp.setting import ten_gigabit_rings
from ringyard.restart import constant
from ringyard.workloads import ModelMix, read_helios
from ringyard.workloads.replay import Replay
from ringyard_baselines.scheduler import DrivingScheduler, run

CLUSTER = Cluster.homogeneous(150, 8)


def whole(trace, name, num_jobs, load, limit, answer):
    """Run one scheduler; answer (decisions, jobs done, seconds, why it ended)."""
    warnings.simplefilter("ignore")
    drawn = Replay(read_helios(trace), ModelMix(), num_jobs, start_seconds=0.0, load=load)
    jobs = drawn.sample(CLUSTER, np.random.default_rng(0))
    scheduler = build("simulate", [f"scheduler={name}"], "scheduler")["scheduler"]
    sim = Simulator(CLUSTER, jobs, ten_gigabit_rings(), constant(30.0), scheduler.round_seconds)
    begin = time.process_time()

    def say(ended):
        cluster = sim.state.clusters[0]
        taken = time.process_time() - begin
        answer.put((int(cluster["num_decisions"]), int(cluster["num_done"]), taken, ended))

    try:
        if isinstance(scheduler, DrivingScheduler):
            run(sim, scheduler, np.random.default_rng(0))
        else:
            scheduler.reset(sim.cluster, sim.jobs.as_known(scheduler.information), np.random.default_rng(0))
            while not sim.done and time.process_time() - begin < limit:
                sim.apply(scheduler.decide(sim.view(scheduler.information)))
                if not sim.done:
                    sim.advance()
        say("" if sim.done else "stopped")
    except RingyardError as error:
        say(str(error)[:90])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="venus_gpu_jobs.csv.gz or HeliosData's cluster_log.csv")
    parser.add_argument("--jobs", type=int, help="the first so many (default: all)")
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--limit", type=float, default=300.0, help="processor seconds (%(default)s)")
    parser.add_argument("--schedulers", nargs="+")
    options = parser.parse_args()
    names = options.schedulers or sorted(file.stem for file in (config_folder() / "scheduler").glob("*.yaml"))
    print(f"{machine()}; {CLUSTER.num_gpus:,} GPUs, load {options.load}, {options.jobs or 'all'} jobs")
    print("scheduler               decisions  jobs done   seconds  ms of a decision")
    context = multiprocessing.get_context("spawn")
    waits = 10.0 * options.limit + 60.0  # for a machine that others use, too
    for name in names:
        answer = context.Queue()
        arguments = (options.trace, name, options.jobs, options.load, options.limit, answer)
        process = context.Process(target=whole, args=arguments)
        process.start()
        try:
            decisions, done, taken, ended = answer.get(timeout=waits)
            each = 1e3 * taken / max(decisions, 1)
            print(f"{name:22s} {decisions:10,} {done:10,} {taken:9.1f} {each:17.3f}  {ended}", flush=True)
        except Exception:
            print(f"{name:22s} {'no answer within':>21s} {waits:9.1f}", flush=True)
        process.kill()
        process.join()


if __name__ == "__main__":
    main()
