"""Pickles and deep copies go on as the original would, bit for bit, and leave it alone."""

import copy
import multiprocessing
import pickle
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AsyncVectorEnv

from conftest import experiment_ids, leaf, names, random_action
from ringyard import Cluster, ClusterEnv, ClusterVectorEnv, Simulator
from ringyard.compiled import Int32Vector, implements, kernel
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import experiment
from ringyard.performance import IterationSeconds
from ringyard.restart import constant
from ringyard.sim.engine.lifecycle import start
from ringyard.state.arrays import State
from ringyard_agents.learning.vec_env import RingyardVecEnv
from ringyard_baselines.papers.pac_ml import PartitioningHeuristic
from small_simulations import everything, random_allocation, random_jobs, rings

EXPERIMENTS = sorted(experiment_ids().values())
FACES = {
    "single": lambda setting: ClusterEnv(setting),
    "vector": lambda setting: ClusterVectorEnv(3, setting, "SameStep"),
    "agents": lambda setting: RingyardVecEnv(setting, 4),
}
COPIES = {"pickle": lambda one: pickle.loads(pickle.dumps(one)), "deepcopy": copy.deepcopy}


def bytes_of(env):
    """All that a batch holds."""
    batch = env.unwrapped.batch if isinstance(env, gymnasium.Env) else env.batch
    outputs = (batch.observations, batch.masks, batch.rewards, batch.returns, batch.lengths, batch.entries)
    return b"".join(array.tobytes() for array in (*batch.state, *outputs))


def play(env, seed, steps):
    """Random valid actions; what each step gave, as bytes."""
    rng = np.random.default_rng(seed)
    single = isinstance(env, gymnasium.Env)
    given = []
    for _ in range(steps):
        masks = np.atleast_2d(env.get_wrapper_attr("action_masks")() if single else env.action_masks())
        space = env.unwrapped.config.actions.space if single else env.config.actions.space
        actions = np.array([random_action(space, mask, rng) for mask in masks])
        observation, reward, *ends = env.step(actions[0] if single else actions)[:4]
        if single and any(ends):
            observation, _ = env.reset()
        blocks = observation.values() if isinstance(observation, dict) else (observation, np.array(reward))
        given.append(b"".join(block.tobytes() for block in blocks) + bytes_of(env))
    return given


def begun(face, name):
    """An environment in the middle of an episode."""
    env = FACES[face](experiment(name))
    if face == "agents":
        env.reset()
    else:
        env.reset(seed=4)
    play(env, 0, 40)
    return env


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_copies_of_environments_go_on_as_they_would(name, face):
    env = begun(face, name)
    before = bytes_of(env)
    copies = [make(env) for make in COPIES.values()]
    futures = [play(one, 1, 60) for one in copies]
    assert bytes_of(env) == before
    assert futures[0] == futures[1] == play(env, 1, 60)


def scored(name):
    return ClusterEnv(experiment(name, action="scores", observation="live_jobs"))


def step(env, action):
    """A step, and the next episode where it ends one: all that is told."""
    told = env.step(action)
    return told, env.reset() if told[2] or told[3] else None


def any_action(env, rng):
    return random_action(env.action_space, env.action_masks(), rng)


FORKED = {"choosing": lambda: ClusterEnv(experiment("contention")), "scores": lambda: scored("contention")}


@pytest.mark.parametrize("make", [*COPIES.values(), ClusterEnv.fork], ids=[*COPIES, "fork"])
@pytest.mark.parametrize("kind", FORKED)
def test_copies_tell_the_same_byte_for_byte(kind, make):
    env, rng = FORKED[kind](), np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(40):
        step(env, any_action(env, rng))
    copied = make(env)
    begun = 0
    for _ in range(900):
        action = any_action(env, rng)
        mine, theirs = step(env, action), step(copied, action)
        assert data_equivalence(mine, theirs, exact=True)
        assert bytes_of(env) == bytes_of(copied)
        begun += mine[1] is not None
        if begun == 2:
            break
    assert begun == 2  # the next episodes are the same, too


def test_forks_leave_each_other_alone():
    env = begun("single", "full")
    before = bytes_of(env)
    forks = [env.fork() for _ in range(3)]
    futures = [play(fork, seed, 60) for fork, seed in zip(forks, (1, 1, 2), strict=True)]
    assert bytes_of(env) == before
    assert futures[0] == futures[1] != futures[2]
    env.close()
    forks[0].step(int(forks[0].action_masks().argmax()))  # its own episode goes on


def test_forks_of_an_episode_go_on_when_its_job_table_has_made_way():
    env = ClusterEnv(replace(experiment("contention"), num_workloads=10**6))
    env.reset(seed=4)
    fork, other = env.fork(), env.fork()
    other.batch.workload_cache.num_rows = 2  # room for two tables
    for k in range(6):
        other.reset(options={"workload": k})
    assert play(fork, 1, 40) == play(env, 1, 40)


def test_wrapped_environments_are_copied_with_their_wrappers():
    env = gymnasium.make("ringyard/Cluster-v0", max_episode_steps=50)
    env.reset(seed=0)
    play(env, 0, 45)
    copies = [make(env) for make in COPIES.values()]
    futures = [play(one, 1, 20) for one in copies]  # a time limit lies between
    assert futures[0] == futures[1] == play(env, 1, 20)
    assert copies[0].unwrapped.spec == env.unwrapped.spec


def test_a_shallow_copy_is_a_second_name_of_the_episode():
    env = begun("vector", "sharing")
    play(copy.copy(env), 1, 1)
    assert bytes_of(copy.copy(env)) == bytes_of(env)


def test_pickles_hold_only_the_job_tables_that_were_made():
    setting = experiment("contention")
    assert (
        len(pickle.dumps(ClusterEnv(setting)))
        < 1e6
        < ClusterEnv(setting).batch.workload_cache.rows.records.nbytes
    )


def _play_elsewhere(given, pipe):
    pipe.send(play(pickle.loads(given), 1, 30))


def test_environments_go_on_in_a_spawned_process():
    env = begun("vector", "full")
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    worker = spawn.Process(target=_play_elsewhere, args=(pickle.dumps(env), theirs))
    worker.start()
    assert ours.poll(120)
    assert ours.recv() == play(env, 1, 30)
    worker.join()


def test_spawned_workers_of_gymnasium_play_the_same():
    ours = ClusterVectorEnv(2, experiment("sharing"))
    theirs = AsyncVectorEnv([lambda: ClusterEnv(experiment("sharing"))] * 2, context="spawn")
    try:
        assert data_equivalence(theirs.reset(seed=3), ours.reset(seed=3), exact=True)
        for _ in range(20):
            actions = ours.action_masks().argmax(axis=1)
            assert data_equivalence(theirs.step(actions), ours.step(actions), exact=True)
    finally:
        theirs.close()


def drive(sim, rng, steps):
    """Random allocations that the cluster can hold."""
    for _ in range(steps):
        view = sim.view()
        for job in (*view.waiting.tolist(), *view.running.tolist()):
            try:
                sim.apply([random_allocation(view, rng, job)])
            except ValueError:
                continue
        if sim.done or not (len(sim.view().running) or sim.state.clusters["next_arrival"][0] < len(sim.jobs)):
            break
        sim.advance()
    return b"".join(array.tobytes() for array in sim.state)


@pytest.mark.parametrize("seed", range(4))
def test_copies_of_simulators_go_on_as_they_would(seed):
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng)
    sim = Simulator(cluster, jobs, performance, seed=seed, failures=failures, segment_rows=64)
    sim.advance()
    before = drive(sim, rng, 6)
    copies = [make(sim) for make in (*COPIES.values(), Simulator.fork)]
    futures = [drive(one, np.random.default_rng(seed), 30) for one in copies]
    assert b"".join(array.tobytes() for array in sim.state) == before != futures[0]
    assert {*futures} == {drive(sim, np.random.default_rng(seed), 30)}


def finish(sim, scheduler, decisions=10**6):
    while not sim.done and decisions:
        sim.apply(scheduler.decide(sim.view(scheduler.observability)))
        if not sim.done:
            sim.advance()
        decisions -= 1
    return b"".join(array.tobytes() for array in sim.state)


@pytest.mark.parametrize("name", names("scheduler"))
def test_copies_of_schedulers_go_on_as_they_would(name):
    scheduler = leaf("scheduler", name)
    rng = np.random.default_rng(3)
    jobs = random_jobs(rng, 15, 8)
    if isinstance(scheduler, PartitioningHeuristic):
        jobs = replace(jobs, acceptable_jct=rng.uniform(1.0, 6.0, 15) * jobs.duration_seconds)
    if getattr(scheduler, "offline", False):
        jobs = jobs.shifted(np.zeros(len(jobs)))
    sim = Simulator(Cluster.homogeneous(4, 4), jobs, rings(), constant(3.0), scheduler.round_seconds)
    scheduler.reset(sim.cluster, sim.jobs.restricted_to(scheduler.observability), rng)
    before = finish(sim, scheduler, 8)
    futures = {finish(*make((sim, scheduler))) for make in COPIES.values()}
    assert finish(sim, scheduler, 0) == before
    assert futures == {finish(sim, scheduler)} != {before}


def test_compiled_functions_are_pickled_by_name():
    for function in (start, leaf("placement", "pack").find, leaf("performance", "ideal").iteration_seconds):
        for make in (*COPIES.values(), copy.copy):
            assert make(function) is function

    @kernel
    def mine(state: State, b: int, out: Int32Vector) -> None:
        pass

    for hidden in (mine, implements(IterationSeconds)(lambda job, parameters: 1.0)):
        assert copy.deepcopy(hidden) is hidden
        with pytest.raises(ConfigurationError, match="top level of a module"):
            pickle.dumps(hidden)
