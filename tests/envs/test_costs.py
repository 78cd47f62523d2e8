"""Costs of steps by hand, and vector rewards: each component is the scalar reward of its name."""

import pickle
import warnings
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from conftest import random_action
from ringyard import Cluster, ClusterEnv, ClusterVectorEnv, EnvConfig, JobTable, experiment
from ringyard.errors import ConfigurationError, ConfigurationWarning
from ringyard.mdp import costs, rewards
from ringyard.mdp.actions import Actions
from ringyard.mdp.actions.space import Reject, Template
from ringyard.mdp.experiments import choose_config
from ringyard.placement import consolidate
from ringyard_agents.learning.vec_env import RingyardVecEnv

#: rewards that can be components
PARTS = ("jct", "total_jct", "slowdown", "makespan", "utilisation", "blocking", "fairness", "worst_fairness")


class Three:
    """Three jobs of 10, 10 and 30 s on one GPU, submitted together, with deadlines after 12, 12 and 40 s."""

    num_jobs = 3

    def __init__(self, **columns):
        self.columns = {"deadline_seconds": np.array([12.0, 12.0, 40.0])} | columns

    def sample(self, cluster, rng):
        jobs = JobTable.from_columns([0.0, 0.0, 0.0], [1, 1, 1], [10.0, 10.0, 30.0])
        return replace(jobs, **self.columns)


def one_gpu(cost, workload=None, **others):
    """One GPU, on which jobs start in the order of their rows by action 0, or are rejected by action 1."""
    starts = (Template(consolidate()), Reject())
    world = EnvConfig(Cluster((1,)), workload or Three(), actions=Actions(num_waiting=3, templates=starts))
    return replace(world, cost=cost, num_workloads=1, **others)


def costs_of(env, choose=lambda mask: int(mask.argmax()), jobs=3):
    """[steps] costs of an episode in jobs of three, and the times at which they came."""
    _, info = env.reset(seed=0)
    assert info["cost"] == 0.0
    found, times, over = [], [], False
    while not over:
        *_, done, truncated, info = env.step(choose(info["action_mask"]))
        found.append(info["cost"].item() * jobs)
        times.append(env.batch.state.clusters["now"].item(0))
        over = done or truncated
    assert env.batch.episode_costs() == pytest.approx([sum(found) / jobs])
    return found, times


def test_deadline_misses_count_when_a_deadline_passes():
    """Jobs end at 10, 20 and 50 s. The second is late at 12 s (seen at 20 s), the third at 40 s."""
    assert costs_of(ClusterEnv(one_gpu(costs.deadline_misses()))) == ([0, 1, 1], [10, 20, 50])


def test_a_job_that_is_still_there_is_late_and_an_episode_may_end_before():
    found, times = costs_of(ClusterEnv(one_gpu(costs.deadline_misses(), limit_seconds=15.0)))
    assert (found, times) == ([0, 1], [10, 15])


def test_rejected_jobs_miss_deadlines_that_they_had():
    def reject(mask):
        return 1 if mask[1] else int(mask.argmax())

    found, _ = costs_of(ClusterEnv(one_gpu(costs.deadline_misses())), reject)
    assert sum(found) == 3
    soft = Three(deadline_seconds=np.array([np.inf, 5.0, np.inf]))
    found, _ = costs_of(ClusterEnv(one_gpu(costs.deadline_misses(), soft)), reject)
    assert sum(found) == 1


def test_a_job_that_leaves_by_its_acceptable_time_misses_its_deadline():
    hard = Three(deadline_seconds=np.full(3, np.inf), acceptable_jct=np.array([np.inf, 15.0, np.inf]))
    found, _ = costs_of(ClusterEnv(one_gpu(costs.deadline_misses(), hard)))
    assert sum(found) == 1


def test_slowdown_violations_are_completion_times_above_a_multiple_of_run_times():
    """Completion times are 10, 20 and 50 s; run times alone are 10, 10 and 30 s."""
    for slowdown, expected in ((1.0, [0, 1, 1]), (1.6, [0, 1, 1]), (1.9, [0, 1, 0]), (2.0, [0, 0, 0])):
        found, times = costs_of(ClusterEnv(one_gpu(costs.slowdown_violations(slowdown))))
        assert (found, times) == (expected, [10, 20, 50])


def test_the_worst_rho_is_the_sum_of_its_costs():
    """Three jobs share the GPU: crowding is their number while a job is there."""
    env = ClusterEnv(one_gpu(costs.worst_fairness()))
    found, _ = costs_of(env, jobs=1)
    rhos = [1 / 3, 2.0 / ((10 * 3 + 10 * 2) / 20), (50 / 30) / ((10 * 3 + 10 * 2 + 30 * 1) / 50)]
    assert np.cumsum(found) == pytest.approx(np.maximum.accumulate(rhos))
    assert sum(found) == pytest.approx(env.batch.metrics(0).worst_fairness)


def test_without_deadlines_a_warning_says_so():
    free = Three(deadline_seconds=np.full(3, np.inf))
    with pytest.warns(ConfigurationWarning, match="no job has deadline_seconds or acceptable_jct"):
        found, _ = costs_of(ClusterEnv(one_gpu(costs.deadline_misses(), free)))
    assert sum(found) == 0


def test_info_has_a_cost_only_where_one_is_asked_for():
    for cost, there in (("none", False), ("worst_fairness", True)):
        env = gymnasium.make("ringyard/Cluster-v0", cost=cost)
        _, info = env.reset(seed=0)
        assert ("cost" in info) == there
    with pytest.raises(ConfigurationError, match="cost is 'deadlines'; expected deadline_misses"):
        gymnasium.make("ringyard/Cluster-v0", cost="deadlines")
    with pytest.raises(ConfigurationError, match=r"cost.slowdown is 0.5; expected a number in \[1, inf\)"):
        costs.slowdown_violations(0.5)


@pytest.mark.parametrize("cost", ["slowdown_violations", "worst_fairness"])
def test_checkers_find_nothing_with_a_cost(cost):
    env = gymnasium.make("ringyard/Sharing-Weights-v0", cost=cost)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)
        env.reset(seed=0)
        assert isinstance(env.step(env.action_space.sample())[1], float)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_infos_of_many_clusters_have_the_costs_of_single_ones(mode):
    config = replace(
        experiment("sharing", form="weights", cost="slowdown_violations"),
        limit_seconds=4000.0,
        num_workloads=4,
    )
    ours, theirs = ClusterVectorEnv(3, config, mode), [partial(ClusterEnv, config)] * 3
    theirs, total = SyncVectorEnv(theirs, autoreset_mode=mode), 0.0
    found = [env.reset(seed=0)[1] for env in (ours, theirs)]
    rng, resets = np.random.default_rng(0), 0
    for _ in range(200):
        assert data_equivalence(*found)
        actions = rng.uniform(-1, 1, (3, 6)).astype(np.float32)
        steps = [env.step(actions) for env in (ours, theirs)]
        assert np.array_equal(steps[0][1], steps[1][1])
        found, total = [step[4] for step in steps], total + steps[0][4]["cost"].sum()
        if mode is AutoresetMode.DISABLED and (over := steps[0][2] | steps[0][3]).any():
            resets += 1
            found = [env.reset(options={"reset_mask": over})[1] for env in (ours, theirs)]
    assert total > 0
    assert resets > 0 or mode is not AutoresetMode.DISABLED


@pytest.mark.parametrize("form", ["jobs", "queue", "weights"])
def test_components_are_the_scalar_rewards_to_the_digit(form):
    config = replace(experiment("sharing", form=form), limit_seconds=1000.0, num_workloads=4)
    scalars = {
        name: replace(config, reward=choose_config(None, None, {"reward": name}).reward) for name in PARTS
    }
    whole = replace(config, reward=rewards.vector(PARTS), cost=costs.worst_fairness())
    env, others = ClusterVectorEnv(2, whole), [ClusterVectorEnv(2, one) for one in scalars.values()]
    assert env.reward_space.shape == env.get_attr("reward_space")[0].shape == (len(PARTS),)
    _, info = env.reset(seed=0)
    for other in others:
        other.reset(seed=0)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(150):
        actions = np.array(
            [random_action(env.single_action_space, mask, rng) for mask in info["action_mask"]]
        )
        _, vectors, done, truncated, info = env.step(actions)
        assert vectors[0] in env.reward_space
        assert np.array_equal(vectors, np.transpose([other.step(actions)[1] for other in others]))
        assert env.batch.rewards == pytest.approx(vectors.sum(axis=1)) or ends
        ends += (done | truncated).sum()
    assert ends > 0
    assert (vectors != 0).any()


def test_one_cluster_returns_a_vector_and_copies_go_on_alike():
    config = replace(one_gpu(costs.deadline_misses()), reward=rewards.vector(("jct", "makespan")))
    env = ClusterEnv(config)
    env.reset(seed=0)
    env.step(0)
    for copy in (env.fork(), pickle.loads(pickle.dumps(env))):
        one, two = env.fork(), copy
        while True:
            steps = [each.step(int(each.action_masks().argmax())) for each in (one, two)]
            assert data_equivalence(*steps)
            assert steps[0][1].shape == (2,)
            assert steps[0][1].dtype == np.float64
            if steps[0][2]:
                break
        assert (one.batch.episode_costs(), env.batch.episode_costs()) == (pytest.approx([2 / 3]), 0.0)
    scalar = ClusterEnv(one_gpu(None)).reward_space
    assert (scalar.shape, scalar.dtype) == ((), np.float64)


def test_stable_baselines_infos_have_costs_and_learners_get_the_sum():
    config = replace(one_gpu(costs.deadline_misses()), reward=rewards.vector(("jct", "makespan")))
    env, single = RingyardVecEnv(config, 1), ClusterEnv(config)
    env.reset()
    single.reset(seed=0)
    for _ in range(3):
        action = int(env.action_masks()[0].argmax())
        _, [gained], _, [info] = env.step(np.array([action]))
        _, vector, _, _, expected = single.step(action)
        assert (gained, info["cost"]) == (np.float32(vector.sum()), expected["cost"])


@pytest.mark.parametrize("names", [(), ("saved_jct",), "jct", ("jct", "jtc")])
def test_components_that_are_none_are_refused(names):
    with pytest.raises(ConfigurationError, match=r"reward\.names"):
        rewards.vector(names)
