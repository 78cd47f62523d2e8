"""Experiments as environments: checkers, one configuration for all commands, actions as allocations."""

import shutil
import subprocess
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.version import getbase
from stable_baselines3.common.env_checker import check_env

from conftest import CONF, ROOT, composed, experiment_ids, random_action
from ringyard import ClusterVectorEnv, Simulator
from ringyard.errors import ConfigurationError
from ringyard.mdp import experiments, registration
from ringyard.mdp.actions.space import Actions, Adjustment
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.experiments import build_env_config, experiment
from ringyard.mdp.user_config import hydra_initialized
from ringyard.placement import pack, spread
from ringyard.restart import CORES_SECONDS
from ringyard.state.records import JobOutcome
from ringyard_agents.config.compose import to_plain
from ringyard_agents.evaluation import selection
from small_simulations import specs

EXPERIMENTS = experiment_ids()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_pass_the_checkers_and_finish(name):
    env = gymnasium.make(name)
    check_env(env.unwrapped)
    rng = np.random.default_rng(0)
    _, info = env.reset(seed=1)
    total, done, steps = 0.0, False, 0
    while not done:
        action = random_action(env.action_space, info["action_mask"], rng)
        observation, reward, done, _, info = env.step(action)
        assert env.observation_space.contains(observation)
        total += reward
        steps += 1
    assert steps < 60_000
    batch = env.unwrapped.batch
    table = batch.workload_cache.table(int(info["workload"]))
    assert info["num_finished"] == len(table)
    if env.unwrapped.config.reward.metric == "blocking_rate":
        blocked = (batch.state.jobs["outcome"][0, : len(table)] == JobOutcome.BLOCKED).sum()
        assert blocked > 0
        assert total == pytest.approx(-blocked / len(table))
        return
    mean_run_time = batch.state.jobs["isolated_seconds"][0, : len(table)].mean()
    summed = len(table) if name.endswith("-Jobs-v0") else 1  # reward=total_jct
    assert total == pytest.approx(-summed * info["episode_jct"] / mean_run_time, rel=1e-6)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_command_and_gymnasium_have_one_world(name):
    words = [f"experiment={EXPERIMENTS[name]}", *["form=jobs"] * name.endswith("-Jobs-v0")]
    configs = [composed(command, *words) for command in ("train", "compare", "simulate")]
    groups = ("cluster", "workload", "performance", "restart", "failures", "action", "observation", "reward")
    worlds = [{group: to_plain(config[group]) for group in groups} for config in configs]
    assert worlds[0] == worlds[1] == worlds[2]
    views = []
    for env in (
        gymnasium.make_vec(name, num_envs=2),
        ClusterVectorEnv(2, build_env_config(configs[0], 1024, 0)),
    ):
        observation, info = env.reset(seed=3)
        rng = np.random.default_rng(0)
        for _ in range(100):
            actions = [random_action(env.single_action_space, mask, rng) for mask in info["action_mask"]]
            observation, reward, *_, info = env.step(np.array(actions))
        views.append((observation, reward))
    assert all(np.array_equal(views[0][0][block], views[1][0][block]) for block in views[0][0])
    assert np.array_equal(views[0][1], views[1][1])


def test_ids_are_those_of_the_yamls():
    experiments = {
        file.stem: yaml.safe_load(file.read_text()) for file in (CONF / "experiment").glob("*.yaml")
    }
    given = {one.get("environment_id"): file for file, one in experiments.items()}
    versioned = {name if "-v" in name else f"{name}-Jobs-v0": file for name, file in given.items() if name}
    named = {f"ringyard/{name}": file for name, file in versioned.items()}
    assert named == EXPERIMENTS
    assert set(named) <= set(gymnasium.registry)


def test_a_new_experiment_is_one_yaml(tmp_path, monkeypatch):
    conf = shutil.copytree(CONF, tmp_path / "conf")
    text = (conf / "experiment" / "sharing.yaml").read_text()
    text = text.replace("Sharing-v1", "Mine-v0").replace("/reward: jct", "/reward: makespan")
    (conf / "experiment" / "mine.yaml").write_text(text)
    for module in (
        "ringyard.config_folder",
        "ringyard.mdp.user_config",
        experiments.__name__,
        registration.__name__,
    ):
        monkeypatch.setattr(f"{module}.config_folder", lambda: conf)
    assert experiment_ids()["ringyard/Mine-v0"] == "mine"
    assert "mine" in selection.benchmark_experiments()
    mine, sharing = experiment("mine"), experiment("sharing")
    assert (mine.reward.metric, sharing.reward.metric) == ("makespan", "mean_jct")
    assert mine.cluster == sharing.cluster


def test_importing_ringyard_loads_no_hydra():
    code = (
        "import sys, ringyard; assert not {'hydra', 'omegaconf'} & set(sys.modules);"
        " import gymnasium; gymnasium.make('ringyard/Sharing-v1'); assert 'hydra' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT / "envs")}, check=True)


def test_an_experiment_leaves_hydra_as_it_was():
    GlobalHydra.instance().clear()
    with hydra_initialized():
        version = getbase()
        around = GlobalHydra.instance().hydra
        assert experiment("elastic").cluster.gpu_types == ("t4",) * 16
        assert GlobalHydra.instance().hydra is around
        assert getbase() == version
    experiment("elastic")
    assert not GlobalHydra.instance().is_initialized()


def test_unknown_experiments_name_the_known():
    with pytest.raises(
        ConfigurationError, match=r"'Sharing'; expected sharing; to add one, write Sharing.yaml"
    ):
        experiment("Sharing")
    with pytest.raises(ConfigurationError, match=r"'ringyard/CpuGpu-Weights-v0'; expected cpu_gpu;"):
        experiment("ringyard/CpuGpu-Weights-v0")


@pytest.mark.parametrize("name", ["Sharing-v1", "CpuGpu-v1", "Elastic-v1", "Full-v1"])
def test_an_action_is_the_allocation_it_is_described_as(name):
    env = gymnasium.make(f"ringyard/{name}").unwrapped
    setting = env.config
    rng = np.random.default_rng(4)
    _, info = env.reset(seed=2, options={"workload": 5})
    jobs = env.batch.workload_cache.table(5)
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
            [allocation] = env.batch.allocations(0, action)
            changed += action >= setting.actions.num_starts and not allocation.preempts
            sim.apply([allocation])
        _, _, done, _, info = env.step(action)
        if done:
            break
    assert name == "Sharing-v1" or changed > 10


def test_one_and_many_clusters_agree_with_everything_on():
    setting = experiment("full")
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
    base = experiment("cpu_gpu")
    adjustments = (Adjustment(spread(), core_factor=2.0), Adjustment(core_factor=2.0))
    actions = Actions(num_waiting=1, num_running=2, templates=(pack(),), adjustments=adjustments)
    jobs = replace(
        specs((2, "resnet50_imagenet"), (1, "resnet50_imagenet")), cores_per_worker=np.array([1, 1])
    )
    jobs = replace(jobs, submit_seconds=np.array([0.0, 5.0]))
    sim = Simulator(base.cluster, jobs, base.performance, base.restart)
    batch = ClusterBatch(replace(base, actions=actions, num_workloads=1), 1, state=sim.state)
    batch.resume()
    batch.step(np.array([0]))  # job 0 starts, time goes on to the second arrival
    record = batch.state.jobs[0, 0]
    assert sim.now == 5.0
    assert batch.masks[0, 1:3].all()
    batch.step(np.array([2]))  # more cores in place
    assert (record["cores_per_worker"], record["num_resizes"], record["num_preemptions"]) == (2, 1, 0)
    assert record["last_start_seconds"] == 5.0
    assert record["pause_ends_seconds"] == 5.0 + CORES_SECONDS
    sim = Simulator(base.cluster, jobs, base.performance, base.restart)
    batch = ClusterBatch(replace(base, actions=actions, num_workloads=1), 1, state=sim.state)
    batch.resume()
    batch.step(np.array([0]))
    batch.step(np.array([1]))  # more cores elsewhere: a migration
    record = batch.state.jobs[0, 0]
    assert (record["cores_per_worker"], record["num_preemptions"]) == (2, 1)
    assert record["pause_ends_seconds"] == 5.0 + 30.0


def test_an_agent_gives_rings_shares_of_their_links():
    base = experiment("partel")
    adjustments = (Adjustment(link_share=4.0), Adjustment(link_share=1.0))
    actions = Actions(num_waiting=1, num_running=3, templates=(spread(),), adjustments=adjustments)
    jobs = specs((16, "vgg16"), (16, "vgg16"), (1, "vgg16"), (1, "vgg16"))
    jobs = replace(jobs, submit_seconds=np.array([0.0, 0.0, 0.0, 5.0]))
    config = replace(base, actions=actions, num_workloads=1)
    batch = ClusterBatch(config, 1, state=Simulator(base.cluster, jobs, base.performance).state)
    batch.resume()
    for _ in range(3):  # two rings and a job on one GPU start, and time goes on to the last arrival
        batch.step(np.array([0]))
    records = batch.state.jobs[0]
    assert records["link_share"][:3].tolist() == [1.0, 1.0, 1.0]
    before = records["iteration_seconds"][:2].copy()
    # masked: any share of the job on one server, which ends first, and the share that a ring has
    assert batch.masks[0].tolist() == [True, False, False, True, False, True, False, True]
    [wanted] = batch.allocations(0, 3)
    assert wanted.link_share == 4.0
    batch.step(np.array([3]))
    ring, other = wanted.job, 1 - wanted.job  # the rings are alike
    assert records["link_share"][[ring, other, 2]].tolist() == [4.0, 1.0, 1.0]
    assert records["iteration_seconds"][ring] < before[ring]
    assert records["iteration_seconds"][other] > before[other]
