"""What an environment is handed is what it takes, or an error of ours before anything has happened."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest

from attacks import misuse
from conftest import experiment_ids
from ringyard import ClusterEnv, ClusterVectorEnv
from ringyard.errors import ConfigurationError, EpisodeError
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.experiments import experiment
from ringyard_agents.learning.vec_env import RingyardVecEnv


@pytest.fixture(scope="module")
def setting():
    return experiment("contention")


@pytest.fixture(scope="module")
def single(setting):
    env = ClusterEnv(setting)
    env.reset(seed=0)
    return env


@pytest.fixture(scope="module")
def vector(setting):
    env = ClusterVectorEnv(4, setting)
    env.reset(seed=0)
    return env


@pytest.fixture(scope="module")
def agents(setting):
    env = RingyardVecEnv(setting, 4)
    env.reset()
    return env


def refused(tried):
    """Each value is refused by an error of ours that says what was expected."""
    assert not misuse.broken(tried)


def untouched(env, call):
    before = [array.tobytes() for array in (*env.batch.state, env.batch.observations, env.batch.masks)]
    call()
    assert before == [
        array.tobytes() for array in (*env.batch.state, env.batch.observations, env.batch.masks)
    ]


def test_actions_that_are_none_are_refused(single, vector, agents):
    for env, tried in zip((single, vector, agents), misuse.actions(single, vector, agents), strict=True):
        untouched(env, lambda tried=tried: refused([tried]))


def test_numbers_that_gymnasium_takes_are_actions(single, vector, agents):
    for kind in (int, np.int8, np.uint8, np.int32, np.int64, np.array):
        single.reset(seed=0)
        action = kind(int(single.action_masks().argmax()))
        assert single.action_space.contains(action)
        single.step(action)
    for env in (vector, agents):
        for make in (list, tuple, np.int8, np.uint8, np.int16, np.int64, lambda row: row[::1]):
            env.step(make(env.action_masks().argmax(axis=1)))


def test_seeds_and_options_that_are_none_are_refused(single, vector, agents):
    untouched(single, lambda: untouched(vector, lambda: refused(misuse.resets(single, vector))))
    refused(misuse.resets_of_agents(agents))
    vector.reset(seed=[np.int64(1), 2, None, 3])
    vector.reset(seed=np.arange(4))
    vector.reset(seed=vector.np_random_seed)
    single.reset(seed=single.np_random_seed)


def test_arguments_that_make_no_environment_are_refused(setting):
    refused(misuse.constructions(setting))


def test_the_memory_of_environments_is_known_before_it_is_taken(setting, monkeypatch):
    """The estimate is what they take, give or take what does not grow with their number."""
    small = replace(setting, num_workloads=40)
    batch = ClusterBatch(small, 60)
    holders = (batch.state, batch.episode, batch._out, batch.workload_cache.rows)
    arrays = [one for holder in holders for one in vars(holder).values() if isinstance(one, np.ndarray)]
    taken = sum(array.nbytes for array in arrays)
    told = r"is \d+ with [\d,]+ bytes for each, .* expected at most .* GB, the memory of this machine"
    for make in (lambda: ClusterBatch(small, 60), lambda: RingyardVecEnv(small, 60)):
        monkeypatch.setattr("ringyard.checks._machine_memory_bytes", lambda: 1.01 * taken)
        make()
        monkeypatch.setattr("ringyard.checks._machine_memory_bytes", lambda: 0.99 * taken)
        with pytest.raises(ConfigurationError, match=told):
            make()


@pytest.mark.parametrize("name", misuse.GYMNASIUM)
def test_gymnasium_makes_only_what_makes_sense(name):
    refused(misuse.made_by_gymnasium(name))


def test_clusters_are_no_environments_of_their_own(vector, agents):
    refused(misuse.single_clusters(vector, agents))
    with pytest.raises(ConfigurationError, match="needs render_mode='rgb_array'"):
        vector.render()
    for key, values in {"config": vector.config, "action_space": vector.single_action_space}.items():
        assert vector.get_attr(key) == (values,) * 4
    assert np.array_equal(vector.call("action_masks"), vector.action_masks())


def test_simulators_are_asked_with_information_and_told_allocations(setting):
    refused(misuse.simulators(setting))


@pytest.mark.parametrize("name", sorted(experiment_ids().values()))
def test_a_step_without_an_episode_needs_a_reset(name):
    setting = experiment(name)
    single, vector, agents = ClusterEnv(setting, "rgb_array"), ClusterVectorEnv(2, setting), None
    agents = RingyardVecEnv(setting, 2)
    space = setting.actions.space
    one = np.zeros(space.shape, space.dtype)
    two = np.stack([one, one])
    for call in (
        *(lambda: single.step(one), single.action_masks, single.render),
        *(lambda: vector.step(two), vector.action_masks, lambda: agents.step(two), agents.action_masks),
    ):
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\)") as caught:
            call()
        assert isinstance(caught.value, EpisodeError)
    with pytest.raises(EpisodeError, match="step_async"):
        agents.step_wait()
    vector.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(gymnasium.error.ResetNeeded, match="cluster 1 has no episode yet"):
        vector.step([vector.batch.masks[0].argmax() if space.shape == () else one, one])


def test_a_step_after_the_end_needs_a_reset(setting):
    single = ClusterEnv(setting)
    vector = ClusterVectorEnv(3, setting, autoreset_mode="Disabled")
    single.reset(seed=1)
    vector.reset(seed=0)
    ended = np.zeros(3, bool)
    while not ended.any():
        _, _, done, truncated, _ = vector.step(vector.action_masks().argmax(axis=1))
        ended = done | truncated
    while not single.batch.done[0]:
        single.step(single.action_masks().argmax())
    for env, actions in ((single, 0), (vector, [0, 0, 0])):
        for _ in range(2):
            with pytest.raises(gymnasium.error.ResetNeeded, match="has ended its episode"):
                env.step(actions)
    vector.reset(options={"reset_mask": ended})
    single.reset()
    vector.step(vector.action_masks().argmax(axis=1))
    single.step(single.action_masks().argmax())


def test_nothing_happens_after_close(setting):
    envs = (ClusterEnv(setting), ClusterVectorEnv(1, setting), RingyardVecEnv(setting, 1))
    for env, action in zip(envs, (0, [0], [0]), strict=True):
        env.reset()
        for _ in range(2):
            env.close()
        for call in (env.reset, lambda env=env, action=action: env.step(action)):
            with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="create a new one") as caught:
                call()
            assert isinstance(caught.value, EpisodeError)


@pytest.mark.skipif(
    gymnasium.__version__ in ("1.1.1", "1.2.0", "1.2.1"), reason="their DictInfoToList fails on CartPole, too"
)
def test_gymnasiums_vector_wrappers_find_what_they_expect(setting):
    wrappers = gymnasium.wrappers.vector
    env = wrappers.DictInfoToList(wrappers.RecordEpisodeStatistics(ClusterVectorEnv(2, setting, "SameStep")))
    env.reset(seed=0)
    while True:
        *_, infos = env.step(env.unwrapped.action_masks().argmax(axis=1))
        if any("episode" in info for info in infos):
            break
    ended = next(info for info in infos if "episode" in info)
    assert ended["final_info"]["num_finished"] == setting.workload.num_jobs
    assert ended["episode"]["l"] > 0
