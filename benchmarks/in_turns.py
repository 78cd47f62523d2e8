"""The same work in two ways, in turns: differences too small for two separate runs.

python benchmarks/in_turns.py                     users' functions as they are, and with their results checked
python benchmarks/in_turns.py --against CHECKOUT  another checkout of Ringyard, and this one
python benchmarks/in_turns.py --losses            schedulers as they are, and with losses counted

With another checkout, the aims of speed are among the work: fresh workloads in a vector environment and in
one `ClusterEnv`, a step with 30,000 waiting jobs or 1,024 servers, 20,480 jobs on 16,384 GPUs, a million
jobs set up, learning.
"""

import argparse
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import gymnasium
import numpy as np
from common import build, first_valid, machine
from scale import crowded, wide
from schedulers import workload
from vector_env import random_valid

from ringyard import Allocation, Cluster, ClusterEnv, JobTable, Simulator, ideal
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.env_config import EnvConfig, ten_gigabit_rings
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations.queue import queue_and_cluster
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.placement import consolidate
from ringyard_baselines.classic.preemptive import srtf
from ringyard_baselines.classic.start_only import fifo_backfill
from ringyard_baselines.papers.tiresias import tiresias
from ringyard_baselines.scheduler import run

#: set for a child whose simulations count losses
_LOSSES = "IN_TURNS_LOSSES"
#: fresh job tables to draw from; older checkouts hold all of them in memory, hence no more
FRESH_TABLES = 1 << 15
SCHEDULERS = {"fifo_backfill": fifo_backfill, "srtf": srtf, "tiresias": tiresias}


def schedules(make, gpus, num_jobs):
    """One turn: so many jobs on so many GPUs."""
    jobs = workload(num_jobs, gpus, 0.8)
    options = {"losses": True} if _LOSSES in os.environ else {}

    def turn():
        sim = Simulator(Cluster.homogeneous(gpus // 4, 4), jobs, ten_gigabit_rings(), **options)
        begin = time.process_time()
        run(sim, make(consolidate()), np.random.default_rng(0))
        return time.process_time() - begin

    return turn


def default():
    """The default setting."""
    return EnvConfig(
        observation=queue_and_cluster(True), actions=Actions(on_invalid="raise"), num_workloads=64
    )


SETTINGS = {"steps": default} | {
    f"{name} steps": partial(experiment, name, form="queue")
    for name in ("sharing", "elastic", "full", "plans", "spot")
}


def steps(make):
    """One turn: 200 steps of 64 clusters with 64 cached workloads."""
    setting = replace(make(), num_workloads=64)
    env = ClusterVectorEnv(64, setting, autoreset_mode="SameStep", copy=False)
    env.reset(seed=0)
    env.batch.workload_cache.rows_of(np.arange(64))
    actions = np.zeros(64, np.int64)

    def turn():
        begin = time.process_time()
        for _ in range(200):
            first_valid(env.batch.masks, actions)
            env.step(actions)
        return time.process_time() - begin

    return turn


def stepping(setting, clusters, count, again):
    """One turn: so many steps of `gymnasium.make_vec`; `again`: after a reset that is not counted."""
    env = gymnasium.make_vec(
        "ringyard/Cluster-v0",
        num_envs=clusters,
        vectorization_mode="vector_entry_point",
        config=setting,
        autoreset_mode="SameStep",
    )
    actions, generator = np.zeros(clusters, np.int64), np.ones(1, np.uint64)
    _, info = env.reset(seed=0)

    def turn():
        nonlocal info
        if again:
            _, info = env.reset(seed=0)
        begin = time.process_time()
        for _ in range(count):
            random_valid(info["action_mask"], generator, actions)
            *_, info = env.step(actions)
        return time.process_time() - begin

    return turn


def one_environment(num_workloads):
    """One turn: 2,000 steps of `ClusterEnv`."""
    env = ClusterEnv(EnvConfig(num_workloads=num_workloads))
    actions, generator = np.zeros(1, np.int64), np.ones(1, np.uint64)
    _, info = env.reset(seed=0)

    def turn():
        nonlocal info
        begin = time.process_time()
        for _ in range(2_000):
            random_valid(info["action_mask"][None], generator, actions)
            *_, ended, truncated, info = env.step(int(actions[0]))
            if ended or truncated:
                _, info = env.reset()
        return time.process_time() - begin

    return turn


def scheduled_in_python(name):
    """One turn: a scheduler written in Python, by its name, with 2,000 jobs on 64 GPUs."""
    return schedules(
        lambda rule: build("simulate", [f"scheduler={name}"], "scheduler")["scheduler"], 64, 2_000
    )


def allocations():
    """One turn: in ten simulations 32 jobs are started and stopped 15 times, as schedulers in Python do."""
    jobs = JobTable.from_columns(np.zeros(32), np.full(32, 2), np.full(32, 1e6))
    starts = [Allocation(j, (2 * j, 2 * j + 1)) for j in range(32)]
    stops = [Allocation(j) for j in range(32)]

    def turn():
        spent = 0.0
        for _ in range(10):
            sim = Simulator(Cluster.homogeneous(16, 4), jobs, ideal())
            sim.advance()
            begin = time.process_time()
            for _ in range(15):
                sim.apply(starts)
                sim.apply(stops)
            spent += time.process_time() - begin
        return spent

    return turn


def evolution():
    """One turn: a round of evolution on Elastic; seconds of 10,000 decisions."""
    from ringyard_agents.learning.evolution import EvolutionStrategies
    from ringyard_agents.learning.learner import adapt_env_config
    from ringyard_agents.learning.score_networks import ScoreNetwork

    learner = EvolutionStrategies(network=partial(ScoreNetwork, width=12), workloads_per_round=4)
    setting = experiment("elastic", action="scores", observation="live_jobs")
    return learning_turn(learner, adapt_env_config(learner, replace(setting, num_workloads=FRESH_TABLES)))


def million_setup():
    """One turn: a million jobs on 1,024 GPUs are set up."""
    jobs, cluster = workload(1_000_000, 1_024, 0.8), Cluster.homogeneous(256, 4)

    def turn():
        begin = time.process_time()
        Simulator(cluster, jobs, ten_gigabit_rings())
        return time.process_time() - begin

    return turn


def learning():
    """One turn: a round of the group-relative agent on fresh workloads; seconds of 10,000 decisions."""
    from ringyard_agents.learning.group_relative import GroupRelative
    from ringyard_agents.learning.learner import adapt_env_config
    from ringyard_agents.learning.policies import PointerPolicy

    learner = GroupRelative(PointerPolicy, num_envs=64)
    return learning_turn(learner, adapt_env_config(learner, EnvConfig(num_workloads=FRESH_TABLES)))


def learning_turn(learner, setting):
    """One turn: a round of a learner; seconds of 10,000 decisions."""
    learner.setup({"one": setting}, 0)

    def turn():
        before, begin = learner.decisions, time.process_time()
        learner.learn(before + 1, lambda measured: None)
        return 1e4 * (time.process_time() - begin) / (learner.decisions - before)

    return turn


#: what the aims of speed are about, for another checkout to be held against
AIMS = {
    "fresh steps": lambda: stepping(EnvConfig(num_workloads=FRESH_TABLES), 64, 150, False),
    "30000 waiting": lambda: stepping(crowded(30_000, "submit"), 4, 2_000, True),
    "1024 servers": lambda: stepping(wide(1_024), 4, 2_000, True),
    "ClusterEnv": lambda: one_environment(4),
    "fresh ClusterEnv": lambda: one_environment(FRESH_TABLES),
    "srtf 16384": lambda: schedules(srtf, 16_384, 20_480),
    "tiresias 16384": lambda: schedules(tiresias, 16_384, 20_480),
    "a million jobs": million_setup,
    "learning": learning,
    "evolution": evolution,
    "allocations": allocations,
    "aiturbo": partial(scheduled_in_python, "aiturbo"),
    "gandiva": partial(scheduled_in_python, "gandiva"),
    "coda": partial(scheduled_in_python, "coda"),
}


def work(name):
    """A child's life, on one core: a turn whenever it is asked for one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if name in AIMS:
        turn = AIMS[name]()
    else:
        turn = steps(SETTINGS[name]) if name in SETTINGS else schedules(SCHEDULERS[name], 64, 10_000)
    turn()
    for _ in sys.stdin:
        print(turn(), flush=True)


def tree(checkout):
    """Environment variables of a process that imports a checkout's packages."""
    folders = [Path(checkout).resolve() / part for part in ("envs", "baselines", "agents")]
    return {"PYTHONPATH": os.pathsep.join(map(str, folders)), "RINGYARD_CHECK": "0"}


def child(name, checkout, variables):
    """A process that waits for its turns: a checkout's own benchmark on its own packages."""
    script = Path(checkout).resolve() / "benchmarks" / "in_turns.py"
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(script), "--work", name],
        env={**os.environ, **tree(checkout), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


def measure(names, ways, rounds):
    """[2, rounds] seconds of processor time of two works, each its way; children have compiled before."""
    seconds = ([], [])
    for first in (True, False):  # machine code from the cache, not of the process that compiled it
        children = [child(name, *way) for name, way in zip(names, ways, strict=True)]
        for turn in range(1 if first else rounds):
            for way in (0, 1) if turn % 2 else (1, 0):
                with suppress(BrokenPipeError):
                    children[way].stdin.write("\n")
                line = children[way].stdout.readline()
                if not line:
                    raise SystemExit(f"{names[way]}: the {('first', 'second')[way]} way ended, see above")
                taken = float(line)
                if not first:
                    seconds[way].append(taken)
        for one in children:
            one.stdin.close()
            one.wait()
    return seconds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=40)
    work_names = [*SCHEDULERS, *SETTINGS, *AIMS]
    parser.add_argument(
        "--only", nargs="+", metavar="WORK", choices=work_names, help=f"some of {', '.join(work_names)}"
    )
    parser.add_argument("--against", metavar="CHECKOUT", help="compare this checkout with another")
    parser.add_argument("--beside", metavar="WORK", choices=work_names, help="compare all with this work")
    parser.add_argument("--losses", action="store_true", help="compare with losses counted")
    parser.add_argument("--work", help="for children")
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return
    here = Path(__file__).parents[1]
    titles, ways = ("as it is", "watched"), ((here, {}), (here, {"RINGYARD_CHECK": "1"}))
    if options.losses:
        titles, ways = ("as it is", "with losses"), ((here, {}), (here, {_LOSSES: "1"}))
    if options.beside:
        titles, ways = (options.beside, "this work"), ((here, {}), (here, {}))
    if options.against:
        titles, ways = ("the other", "this one"), ((options.against, {}), (here, {}))
    print(
        f"{machine()}; {options.rounds} rounds in turns, seconds of processor time of a turn, on one core;"
        " steps are of cached workloads but for `fresh`"
    )
    columns = [f"{title}, least" for title in titles]
    print(f"work              {columns[0]:>17s} {columns[1]:>16s}   ratio   median ratio of a round")
    usual = [*SCHEDULERS, *(() if options.losses else SETTINGS), *(AIMS if options.against else ())]
    for name in options.only or usual:
        first, second = measure((options.beside or name, name), ways, options.rounds)
        ratio = median(b / a for a, b in zip(first, second, strict=True))
        least = min(second) / min(first)
        print(f"{name:17s} {min(first):18.4f} {min(second):16.4f} {least:7.3f} {ratio:25.3f}", flush=True)


if __name__ == "__main__":
    main()
