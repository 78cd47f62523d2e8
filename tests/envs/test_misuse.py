"""What an environment is handed is what it takes, or an error of ours before anything has happened."""

import gymnasium
import numpy as np
import pytest

from ringyard import Allocation, ClusterEnv, ClusterVectorEnv, Simulator
from ringyard.errors import ActionError, ConfigurationError, EpisodeError, PlacementError, RingyardError
from ringyard.mdp.presets import preset
from ringyard.mdp.registration import preset_ids
from ringyard_agents.learning.vec_env import RingyardVecEnv

NOTHING_WHOLE = (
    *("a", "3", b"0", 1.7, 2.0, np.float64(2), np.nan, np.inf, True, np.True_, 1j, -1, np.int64(-1)),
    *((), (0,), [0], [[0]], {0}, {"a": 1}, range(1), object(), len, slice(0), np.datetime64(0, "s")),
    *(np.array([0]), np.array(1.0), np.array("3"), np.array(True), np.zeros((2, 2), int)),
)
WRONG_ACTIONS = (*NOTHING_WHOLE, None, [], {}, 10**6, 10**30)
WRONG_ROWS = (
    *WRONG_ACTIONS,
    *(np.zeros(3, int), np.zeros(5, int), np.zeros((4, 1), int), np.zeros((1, 4), int), [[0]] * 4, [0] * 3),
    *(np.zeros(4), np.zeros(4, bool), np.zeros(4, object), np.zeros(4, np.uint64), np.zeros(4, "m8[s]")),
    *(["1"] * 4, [True] * 4, [0, 0, 0, True], [None] * 4, [0, 0, 0, 1.0], [[0], 0, 0, 0], iter([0] * 4)),
    *(np.full(4, 10**6), np.full(4, -1), [0, 0, 0, 10**30], np.full(4, np.nan)),
)
WRONG_SEEDS = (*NOTHING_WHOLE, {})
WRONG_SEED_ROWS = (*WRONG_SEEDS, [], [1] * 3, [1] * 5, [1, 2, 3, -1], [1, 2, 3, "a"], [1.0] * 4, [True] * 4)
WRONG_MASKS = (*WRONG_ACTIONS, np.zeros(4, bool), np.ones(5, bool), np.ones(4), [True] * 4)
WRONG_OPTIONS = (*NOTHING_WHOLE, [], {"wokrload": 1}, {1: 2}, {"workload": 1, "seed": 3})
WRONG_NAMES = (*WRONG_ACTIONS, "step", "reset", "batch", "__class__", "_begin")


@pytest.fixture(scope="module")
def setting():
    return preset("contention")


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


def refused(call, values, kind=RingyardError):
    """Each value is refused by an error of ours that says what was expected."""
    for value in values:
        with pytest.raises(kind, match=r"expected|cannot set|outside"):
            pytest.fail(f"{value!r} gave {call(value)!r}")


def untouched(env, call):
    before = [array.tobytes() for array in (*env.batch.state, env.batch.observations, env.batch.masks)]
    call()
    assert before == [
        array.tobytes() for array in (*env.batch.state, env.batch.observations, env.batch.masks)
    ]


def test_actions_that_are_none_are_refused(single, vector, agents):
    untouched(single, lambda: refused(single.step, WRONG_ACTIONS, ActionError))
    untouched(vector, lambda: refused(vector.step, WRONG_ROWS, ActionError))
    untouched(agents, lambda: refused(agents.step, WRONG_ROWS, ActionError))


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
    def reset_all():
        refused(lambda seed: single.reset(seed=seed), (*WRONG_SEEDS, []))
        refused(lambda seed: vector.reset(seed=seed), WRONG_SEED_ROWS)
        for env in (single, vector):
            refused(lambda options, env=env: env.reset(options=options), WRONG_OPTIONS)
            refused(lambda chosen, env=env: env.reset(options={"workload": chosen}), (*NOTHING_WHOLE, 1024))
        refused(lambda mask: vector.reset(options={"reset_mask": mask}), WRONG_MASKS)
        refused(lambda mask: single.reset(options={"reset_mask": mask}), [np.ones(1, bool)])

    untouched(single, lambda: untouched(vector, reset_all))
    refused(agents.seed, (*WRONG_SEEDS, []))
    refused(agents.set_options, (*NOTHING_WHOLE, {"workload": 1}))
    vector.reset(seed=[np.int64(1), 2, None, 3])
    vector.reset(seed=np.arange(4))
    vector.reset(seed=vector.np_random_seed)
    single.reset(seed=single.np_random_seed)


def test_arguments_that_make_no_environment_are_refused(setting):
    wrong_modes = [one for one in (*WRONG_NAMES, 0, "human") if one is not None]
    for make in (ClusterEnv, lambda one: ClusterVectorEnv(2, one), lambda one: RingyardVecEnv(one, 2)):
        refused(make, [*NOTHING_WHOLE, 0, [], {}, ""])
    refused(lambda count: ClusterVectorEnv(count, setting), [*NOTHING_WHOLE, None, 0, 10**30])
    refused(lambda count: RingyardVecEnv(setting, count), [*NOTHING_WHOLE, None, 0, 10**30])
    refused(lambda size: RingyardVecEnv(setting, 4, size), [*NOTHING_WHOLE, None, 0, 3])
    refused(lambda seed: RingyardVecEnv(setting, 4, seed=seed), [*NOTHING_WHOLE, None])
    refused(lambda mode: ClusterEnv(setting, render_mode=mode), wrong_modes)
    refused(lambda mode: ClusterVectorEnv(2, setting, render_mode=mode), [*wrong_modes, "rgb_array"])
    refused(lambda mode: ClusterVectorEnv(2, setting, autoreset_mode=mode), [*wrong_modes, None])
    refused(lambda copies: ClusterVectorEnv(2, setting, copy=copies), ["no", 0, 1.0, None, []])


@pytest.mark.parametrize("name", ["ringyard/Cluster-v0", "ringyard/Sharing-v0"])
def test_gymnasium_makes_only_what_makes_sense(name):
    refused(lambda one: gymnasium.make(name, setting=one), [*NOTHING_WHOLE, 0, [], {}, ""])
    refused(lambda one: gymnasium.make_vec(name, num_envs=2, setting=one), [*NOTHING_WHOLE, 0, [], {}, ""])
    refused(lambda count: gymnasium.make_vec(name, num_envs=count), [0, -1, 1.5, "2", True])
    refused(lambda mode: gymnasium.make_vec(name, num_envs=2, autoreset_mode=mode), ["never", 3])


def test_clusters_are_no_environments_of_their_own(vector, agents):
    refused(vector.call, WRONG_NAMES, ConfigurationError)
    refused(vector.get_attr, WRONG_NAMES, ConfigurationError)
    refused(lambda name: vector.set_attr(name, 1), [*WRONG_NAMES, "setting", "new"], ConfigurationError)
    refused(lambda name: agents.env_method(name), WRONG_NAMES, ConfigurationError)
    refused(lambda name: agents.set_attr(name, 1), [*WRONG_NAMES, "setting", "new"], ConfigurationError)
    refused(lambda seed: vector.call("action_masks", seed), [1], ConfigurationError)
    with pytest.raises(ConfigurationError, match="does not render"):
        vector.render()
    for key, values in {"setting": vector.setting, "action_space": vector.single_action_space}.items():
        assert vector.get_attr(key) == (values,) * 4
    assert np.array_equal(vector.call("action_masks"), vector.action_masks())


def test_simulators_are_asked_with_information_and_told_allocations(setting):
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(0))
    sim = Simulator(setting.cluster, jobs, setting.performance)
    refused(sim.view, (*NOTHING_WHOLE, None, 0, 3), ConfigurationError)
    refused(
        sim.apply, [None, 3, {0}, {}, object(), Allocation(0), iter([]), [None], [0], "a"], PlacementError
    )


@pytest.mark.parametrize("name", sorted(preset_ids().values()))
def test_a_step_without_an_episode_needs_a_reset(name):
    setting = preset(name)
    single, vector, agents = ClusterEnv(setting, "rgb_array"), ClusterVectorEnv(2, setting), None
    agents = RingyardVecEnv(setting, 2)
    for call in (
        *(lambda: single.step(0), single.action_masks, single.render),
        *(lambda: vector.step([0, 0]), vector.action_masks, lambda: agents.step([0, 0]), agents.action_masks),
    ):
        with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\)") as caught:
            call()
        assert isinstance(caught.value, EpisodeError)
    with pytest.raises(EpisodeError, match="step_async"):
        agents.step_wait()
    vector.reset(options={"reset_mask": np.array([True, False])})
    with pytest.raises(gymnasium.error.ResetNeeded, match="cluster 1 has no episode yet"):
        vector.step([int(vector.batch.masks[0].argmax()), 0])


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
            with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="make a new one") as caught:
                call()
            assert isinstance(caught.value, EpisodeError)


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
