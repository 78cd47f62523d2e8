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
from ringyard.mdp.env_config import ten_gigabit_rings
from ringyard.restart import constant
from ringyard.workloads import ModelMix, read_helios
from ringyard.workloads.replay import Replay
from ringyard_baselines.scheduler import CompiledScheduler, run

CLUSTER = Cluster.homogeneous(150, 8)


def begun(trace, num_jobs, load, after, round_seconds=None):
    """A simulation of the trace, played by SJF until so many jobs have ended."""
    drawn = Replay(read_helios(trace), ModelMix(), num_jobs, start_seconds=0.0, load=load)
    jobs = drawn.sample(CLUSTER, np.random.default_rng(0))
    sim = Simulator(CLUSTER, jobs, ten_gigabit_rings(), constant(30.0), round_seconds)
    sjf = build("simulate", ["scheduler=sjf"], "scheduler")["scheduler"]
    sjf.reset(sim.cluster, sim.jobs.restricted_to(sjf.observability), np.random.default_rng(0))
    while sim.state.clusters["num_done"][0] < after:
        sim.apply(sjf.decide(sim.view(sjf.observability)))
        sim.advance()
    return sim


def whole(trace, name, num_jobs, load, limit, answer, sim=None):
    """Run one scheduler; answer (decisions, jobs done, seconds, jobs of the trace, why it ended).

    Args:
        sim: goes on from there, once twenty decisions are made, which may compile and profile; None: from the
            beginning.
        (others): as options.
    """
    warnings.simplefilter("ignore")
    scheduler = build("simulate", [f"scheduler={name}"], "scheduler")["scheduler"]
    rounds, uncounted = scheduler.round_seconds, 0 if sim is None else 20
    if sim is None:
        sim = begun(trace, num_jobs, load, 0, rounds)
    elif rounds is not None:
        sim.state.clusters["round_seconds"] = rounds
        sim.state.clusters["next_round_seconds"] = (sim.now // rounds + 1) * rounds

    def counts():
        cluster = sim.state.clusters[0]
        return int(cluster["num_decisions"]), int(cluster["num_done"]), time.process_time()

    def play(decisions, begin):
        while not sim.done and decisions > 0 and time.process_time() - begin < limit:
            sim.apply(scheduler.decide(sim.view(scheduler.observability)))
            decisions -= 1
            if not sim.done:
                sim.advance()

    before = counts()
    try:
        if isinstance(scheduler, CompiledScheduler) and not uncounted:
            run(sim, scheduler, np.random.default_rng(0))
        else:
            scheduler.reset(
                sim.cluster, sim.jobs.restricted_to(scheduler.observability), np.random.default_rng(0)
            )
            if uncounted:
                play(uncounted, time.process_time())
                before = counts()
            play(np.inf, before[2])
        ended = "" if sim.done else "stopped"
    except RingyardError as error:
        ended = str(error)[:90]
    answer.put((*(now - then for now, then in zip(counts(), before, strict=True)), len(sim.jobs), ended))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="venus_gpu_jobs.csv.gz or HeliosData's cluster_log.csv")
    parser.add_argument("--jobs", type=int, help="the first so many (default: all)")
    parser.add_argument("--load", type=float, default=1.0)
    parser.add_argument("--limit", type=float, default=300.0, help="processor seconds (%(default)s)")
    parser.add_argument("--after", type=int, default=0, help="begin when SJF has ended so many jobs")
    parser.add_argument("--schedulers", nargs="+")
    options = parser.parse_args()
    names = options.schedulers or sorted(file.stem for file in (config_folder() / "scheduler").glob("*.yaml"))
    print(f"{machine()}; {CLUSTER.num_gpus:,} GPUs, load {options.load}, {options.jobs or 'all'} jobs")
    sim = begun(options.trace, options.jobs, options.load, options.after) if options.after else None
    if sim is not None:
        waiting, running = len(sim.view().waiting), len(sim.view().running)
        print(f"after {options.after:,} jobs, with {waiting} waiting and {running} running")
    print("scheduler               decisions  jobs done   seconds  ms of a decision  s for all at this pace")
    context = multiprocessing.get_context("spawn")
    waits = 20.0 * options.limit + 120.0  # for a machine that others use, too
    for name in names:
        answer = context.Queue()
        arguments = (options.trace, name, options.jobs, options.load, options.limit, answer, sim)
        process = context.Process(target=whole, args=arguments)
        process.start()
        try:
            decisions, done, taken, jobs, ended = answer.get(timeout=waits)
            each, pace = 1e3 * taken / max(decisions, 1), taken / max(done, 1) * jobs
            row = f"{name:22s} {decisions:10,} {done:10,} {taken:9.1f} {each:17.3f} {pace:23,.0f}  {ended}"
            print(row.rstrip(), flush=True)
        except Exception:
            print(f"{name:22s} {'no answer within':>21s} {waits:9.1f}", flush=True)
        process.kill()
        process.join()


if __name__ == "__main__":
    main()
