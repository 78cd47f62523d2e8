"""The presets as environments: checkers, their yaml twins, actions as allocations."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.env_checker import check_env

from conftest import composed as config_of
from ringyard import ClusterVectorEnv, Simulator
from ringyard.mdp.actions.space import Actions, Adjustment
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.presets import PRESETS
from ringyard.mdp.registration import PRESET_NAMES
from ringyard.placement import pack, spread
from ringyard.state.records import JobOutcome
from ringyard_agents.configuration import instantiate_setting
from worlds import specs


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_presets_pass_the_checkers_and_finish(name):
    env = gymnasium.make(f"ringyard/{name}-v0")
    check_env(env.unwrapped)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=1)
    total, done, steps = 0.0, False, 0
    while not done:
        action = rng.choice(np.flatnonzero(info["action_mask"]))
        observation, reward, done, _, info = env.step(action)
        assert env.observation_space.contains(observation)
        total += reward
        steps += 1
    assert steps < 60_000
    batch = env.unwrapped.batch
    table = batch.bank.table(int(info["workload"]))
    assert info["num_finished"] == len(table)
    if name == "Partitioning":
        blocked = (batch.state.jobs["outcome"][0, : len(table)] == JobOutcome.BLOCKED).sum()
        assert blocked > 0
        assert total == pytest.approx(-blocked / len(table))
        return
    mean_run_time = batch.state.jobs["isolated_seconds"][0, : len(table)].mean()
    assert total == pytest.approx(-info["episode_jct"] / mean_run_time, rel=1e-6)


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_preset_and_experiment_are_one(name):
    experiment = {"CpuGpu": "cpu_gpu"}.get(name, name.lower())
    action = {"Contention": "start", "Sharing": "sharing", "CpuGpu": "cores"}.get(name, experiment)
    config = config_of(
        "train",
        f"experiment={experiment}",
        f"action={action}",
        "observation=resources",
        f"reward={'blocking' if name == 'Partitioning' else 'jct'}",
        "seed=0",
    )
    ours, theirs = PRESETS[name](), instantiate_setting(config, 1024, 0)
    if name == "Contention":
        theirs = replace(theirs, observation=ours.observation, actions=ours.actions)
    views = []
    for setting in (ours, theirs):
        env = ClusterVectorEnv(2, replace(setting, actions=replace(setting.actions, on_invalid="raise")))
        observation, info = env.reset(seed=3)
        for _ in range(150):
            actions = np.array([np.flatnonzero(mask)[-2:][0] for mask in info["action_mask"]])
            observation, reward, *_, info = env.step(actions)
        views.append((observation, reward))
    assert all(np.array_equal(views[0][0][block], views[1][0][block]) for block in views[0][0])
    assert np.array_equal(views[0][1], views[1][1])


@pytest.mark.parametrize("name", ["Sharing", "CpuGpu", "Elastic", "Full"])
def test_an_action_is_the_allocation_it_is_described_as(name):
    env = gymnasium.make(f"ringyard/{name}-v0").unwrapped
    setting = env.setting
    rng = np.random.default_rng(4)
    _, info = env.reset(seed=2, options={"workload": 5})
    jobs = env.batch.bank.table(5)
    sim = Simulator(
        setting.cluster, jobs, setting.performance, setting.restart, seed=5, failures=setting.failures
    )
    sim.prioritise(env.batch.state.jobs["priority"][0, : len(jobs)])
    changed = 0
    for _ in range(250):
        state = env.batch.state
        while sim.state.clusters["num_decisions"][0] < state.clusters["num_decisions"][0]:
            sim.advance()
        assert sim.now == state.clusters["now"][0]
        for column in ("status", "num_gpus", "batch_size", "cores_per_worker", "num_resizes"):
            there = state.jobs[column][0, : len(jobs)]
            assert np.array_equal(sim.state.jobs[column][0, :-1], there), column
        action = int(rng.choice(np.flatnonzero(info["action_mask"])))
        if action != setting.actions.wait:
            allocation = env.batch.allocation(0, action)
            changed += action >= setting.actions.num_starts and not allocation.stops
            sim.apply([allocation])
        _, _, done, _, info = env.step(action)
        if done:
            break
    assert name == "Sharing" or changed > 10


def test_one_and_many_clusters_agree_with_everything_on():
    setting = PRESETS["Full"]()
    many, one = ClusterVectorEnv(8, setting), ClusterVectorEnv(1, setting)
    rng = np.random.default_rng(0)
    _, info = many.reset(seed=10)
    _, alone = one.reset(seed=13)
    for _ in range(400):
        assert np.array_equal(info["action_mask"][3], alone["action_mask"][0])
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in info["action_mask"]])
        observation, reward, *_, info = many.step(actions)
        lonely, gain, *_, alone = one.step(actions[3:4])
        assert reward[3] == gain[0]
        assert all(np.array_equal(observation[block][3], lonely[block][0]) for block in lonely)


def test_moving_costs_a_restart_whatever_else_changes():
    base = PRESETS["CpuGpu"]()
    adjustments = (Adjustment(spread(), core_factor=2.0), Adjustment(core_factor=2.0))
    actions = Actions(num_waiting=1, num_running=2, templates=(pack(),), adjustments=adjustments)
    jobs = replace(
        specs((2, "resnet50_imagenet"), (1, "resnet50_imagenet")), cores_per_worker=np.array([1, 1])
    )
    jobs = replace(jobs, submit_seconds=np.array([0.0, 5.0]))
    sim = Simulator(base.cluster, jobs, base.performance, base.restart)
    batch = ClusterBatch(replace(base, actions=actions, num_workloads=1), 1, state=sim.state)
    batch.settle()
    batch.step(np.array([0]))  # job 0 starts, time goes on to the second arrival
    record = batch.state.jobs[0, 0]
    assert sim.now == 5.0
    assert batch.masks[0, 1:3].all()
    batch.step(np.array([2]))  # more cores in place: free
    assert (record["cores_per_worker"], record["num_resizes"], record["num_preemptions"]) == (2, 1, 0)
    assert record["progress_from_seconds"] == record["last_start_seconds"] == 5.0
    sim = Simulator(base.cluster, jobs, base.performance, base.restart)
    batch = ClusterBatch(replace(base, actions=actions, num_workloads=1), 1, state=sim.state)
    batch.settle()
    batch.step(np.array([0]))
    batch.step(np.array([1]))  # more cores elsewhere: a migration
    record = batch.state.jobs[0, 0]
    assert (record["cores_per_worker"], record["num_preemptions"]) == (2, 1)
    assert record["progress_from_seconds"] == 5.0 + 30.0
