"""Misuses: what no environment, simulator or slot takes. Each is refused by an error of ours that says why.

python tests/attacks/misuse.py
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script: its neighbours

import broken_plugins
import test_plugins as plugged
from ringyard import Allocation, ClusterEnv, ClusterVectorEnv, Simulator
from ringyard.errors import ActionError, ConfigurationError, PlacementError, PluginError, RingyardError
from ringyard.mdp.experiments import experiment
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
    *(np.zeros(4), np.zeros(4, bool), np.zeros(4, object), np.zeros(4, "m8[s]")),
    *(["1"] * 4, [True] * 4, [0, 0, 0, True], [None] * 4, [0, 0, 0, 1.0], [[0], 0, 0, 0], iter([0] * 4)),
    *(np.full(4, 10**6), np.full(4, -1), [0, 0, 0, 10**30], np.full(4, np.nan)),
)
WRONG_SEEDS = (*NOTHING_WHOLE, {})
WRONG_SEED_ROWS = (*WRONG_SEEDS, [], [1] * 3, [1] * 5, [1, 2, 3, -1], [1, 2, 3, "a"], [1.0] * 4, [True] * 4)
WRONG_MASKS = (*WRONG_ACTIONS, np.zeros(4, bool), np.ones(5, bool), np.ones(4), [True] * 4)
WRONG_OPTIONS = (*NOTHING_WHOLE, [], {"wokrload": 1}, {1: 2}, {"workload": 1, "seed": 3})
WRONG_NAMES = (*WRONG_ACTIONS, "step", "reset", "batch", "__class__", "_begin")
#: more than any machine has memory for; the least is refused by an estimate
TOO_MANY = (2**31 - 1, 10**30)
GYMNASIUM = ("ringyard/Cluster-v0", "ringyard/Sharing-v1")


class Misuse(NamedTuple):
    """Values that a call refuses, one by one.

    Attributes:
        call: takes a value.
        values: what it does not take.
        kind: of the error.
        said: what the error says.
    """

    call: Callable[[Any], Any]
    values: Iterable[Any]
    kind: type[RingyardError] = RingyardError
    said: str = r"expected|cannot set|outside"


def broken(tried: Iterable[Misuse]) -> list[str]:
    """What is not refused as it should be, a line each."""
    found = []
    for call, values, kind, said in tried:
        for value in values:
            try:
                found.append(f"{value!r} gave {call(value)!r}")
            except kind as error:
                if not re.search(said, str(error)):
                    found.append(f"{value!r}: {error} says nothing like {said}")
            except Exception as error:
                found.append(f"{value!r}: {error!r}")
    return found


def actions(single: ClusterEnv, vector: ClusterVectorEnv, agents: RingyardVecEnv) -> Iterator[Misuse]:
    """Of environments of 4 clusters where there are several."""
    yield Misuse(single.step, WRONG_ACTIONS, ActionError)
    yield Misuse(vector.step, WRONG_ROWS, ActionError)
    yield Misuse(agents.step, WRONG_ROWS, ActionError)


def resets(single: ClusterEnv, vector: ClusterVectorEnv) -> Iterator[Misuse]:
    """Seeds and options."""
    yield Misuse(lambda seed: single.reset(seed=seed), (*WRONG_SEEDS, []))
    yield Misuse(lambda seed: vector.reset(seed=seed), WRONG_SEED_ROWS)
    for env in (single, vector):
        yield Misuse(lambda options, env=env: env.reset(options=options), WRONG_OPTIONS)
        yield Misuse(lambda one, env=env: env.reset(options={"workload": one}), (*NOTHING_WHOLE, 1024))
    yield Misuse(lambda mask: vector.reset(options={"reset_mask": mask}), WRONG_MASKS)
    yield Misuse(lambda mask: single.reset(options={"reset_mask": mask}), [np.ones(1, bool)])


def resets_of_agents(agents: RingyardVecEnv) -> Iterator[Misuse]:
    """As Stable-Baselines3 has them."""
    yield Misuse(agents.seed, (*WRONG_SEEDS, []))
    yield Misuse(agents.set_options, (*NOTHING_WHOLE, {"workload": 1}))


def constructions(setting) -> Iterator[Misuse]:
    """Arguments that make no environment."""
    wrong_modes = [one for one in (*WRONG_NAMES, 0) if one is not None]
    counts = [*NOTHING_WHOLE, None, 0, *TOO_MANY]
    makes = (ClusterEnv, lambda one: ClusterVectorEnv(2, one), lambda one: RingyardVecEnv(one, 2))
    for make in makes:
        yield Misuse(make, [*NOTHING_WHOLE, 0, [], {}, ""])
        yield Misuse(lambda size, make=make: make(replace(setting, num_workloads=size)), [0, 10**30])
    yield Misuse(lambda count: ClusterVectorEnv(count, setting), counts)
    yield Misuse(lambda count: RingyardVecEnv(setting, count), counts)
    yield Misuse(lambda seed: RingyardVecEnv(setting, 4, seed=seed), [*NOTHING_WHOLE, None])
    yield Misuse(lambda mode: ClusterEnv(setting, render_mode=mode), wrong_modes)
    yield Misuse(lambda mode: ClusterVectorEnv(2, setting, render_mode=mode), [*wrong_modes, "human"])
    limits = [one for one in NOTHING_WHOLE if repr(one) not in ("-1", "np.int64(-1)")]  # -1: no limit
    yield Misuse(lambda steps: ClusterVectorEnv(2, setting, max_episode_steps=steps), [*limits, 0, -2])
    for make in (ClusterEnv, lambda one, **given: ClusterVectorEnv(2, one, **given)):
        yield Misuse(lambda count, make=make: make(setting, num_threads=count), [*NOTHING_WHOLE, 0])
        yield Misuse(
            lambda group, make=make: make(setting, **{group: "scores"}), ["action", "setting", "flat"]
        )
    yield Misuse(lambda mode: ClusterVectorEnv(2, setting, autoreset_mode=mode), [*wrong_modes, None])
    yield Misuse(lambda copies: ClusterVectorEnv(2, setting, copy=copies), ["no", 0, 1.0, None, []])


def made_by_gymnasium(name: str) -> Iterator[Misuse]:
    """The same by a name."""
    settings = [*NOTHING_WHOLE, 0, [], {}, ""]
    yield Misuse(lambda one: gymnasium.make(name, config=one), settings)
    yield Misuse(lambda one: gymnasium.make_vec(name, num_envs=2, config=one), settings)
    yield Misuse(lambda count: gymnasium.make_vec(name, num_envs=count), [0, -1, 1.5, "2", True, TOO_MANY[0]])
    yield Misuse(lambda mode: gymnasium.make_vec(name, num_envs=2, autoreset_mode=mode), ["never", 3])
    for make in (gymnasium.make, gymnasium.make_vec):
        for group in ("action", "observation", "workload", "experiment"):
            yield Misuse(
                lambda one, make=make, group=group: make(name, **{group: one}), [*settings, "scroes"]
            )
        for group in ("flat", "num_workloads", "workload_seed", "limit_seconds"):
            yield Misuse(
                lambda one, make=make, group=group: make(name, **{group: one}), ["3", -1, 1j, len, [0], b"0"]
            )
        yield Misuse(
            lambda word, make=make: make(name, **{word: "scores"}),
            *(["actions", "setting", "Action", "agent", "network"], ConfigurationError, "unexpected keyword"),
        )


def single_clusters(vector: ClusterVectorEnv, agents: RingyardVecEnv) -> Iterator[Misuse]:
    """Clusters of a batch are no environments of their own."""
    unknown = [*WRONG_NAMES, "config", "new"]
    yield Misuse(vector.call, WRONG_NAMES, ConfigurationError)
    yield Misuse(vector.get_attr, WRONG_NAMES, ConfigurationError)
    yield Misuse(lambda name: vector.set_attr(name, 1), unknown, ConfigurationError)
    yield Misuse(lambda name: agents.env_method(name), WRONG_NAMES, ConfigurationError)
    yield Misuse(lambda name: agents.set_attr(name, 1), unknown, ConfigurationError)
    yield Misuse(lambda seed: vector.call("action_masks", seed), [1], ConfigurationError)


def simulators(setting) -> Iterator[Misuse]:
    """Calls of a simulator with wrong flags of observability and wrong allocations."""
    jobs = setting.workload.sample(setting.cluster, np.random.default_rng(0))
    sim = Simulator(setting.cluster, jobs, setting.performance)
    told = [None, 3, {0}, {}, object(), Allocation(0), iter([]), [None], [0], "a"]
    yield Misuse(sim.view, (*NOTHING_WHOLE, None, 0, 3), ConfigurationError)
    yield Misuse(sim.apply, told, PlacementError)


def functions_of_others() -> Iterator[Misuse]:
    """Functions that break what their slot promises, on every way through the house."""
    for way in plugged.WAYS_OF_RULES.values():
        for mistake, reason in broken_plugins.RULES.items():
            said = rf"broken_plugins\.misplace {reason}"
            yield Misuse(way, [broken_plugins.misplacing(mistake)], PluginError, said)
    for compiled in (True, False):
        yield Misuse(
            lambda value, compiled=compiled: plugged.simulate(
                plugged.keyed_scheduler(broken_plugins.misjudge, broken_plugins.fair, value),
                compiled=compiled,
            ),
            [np.nan, None],
            PluginError,
            r"broken_plugins\.misjudge (of job 0 is nan|raised IndexError)",
        )
    yield Misuse(
        lambda value: plugged.play_many(plugged.setting(performance=broken_plugins.mistiming(value))),
        [*plugged.SPEEDS.values(), None],
        PluginError,
        r"broken_plugins\.mistime (gave job \d+, with|raised IndexError)",
    )
    for play in (plugged.play, plugged.play_many):
        yield Misuse(
            lambda value, play=play: play(plugged.setting(observation=broken_plugins.misobserving(7, value))),
            [np.nan, np.inf, 10.5, -11.0],
            PluginError,
            r"broken_plugins\.misobserve wrote \S+ at position 7",
        )


def everything() -> Iterator[Misuse]:
    """All of them."""
    setting = experiment("contention")
    single, vector, agents = ClusterEnv(setting), ClusterVectorEnv(4, setting), RingyardVecEnv(setting, 4)
    for env in (single, vector, agents):
        env.reset()
    yield from actions(single, vector, agents)
    yield from resets(single, vector)
    yield from resets_of_agents(agents)
    yield from constructions(setting)
    for name in GYMNASIUM:
        yield from made_by_gymnasium(name)
    yield from single_clusters(vector, agents)
    yield from simulators(setting)
    yield from functions_of_others()


def attack() -> tuple[int, int]:
    """(misuses tried, refused by our own error); what is not refused is printed."""
    tried = [misuse._replace(values=list(misuse.values)) for misuse in everything()]
    found = broken(tried)
    for line in found:
        print(line)
    total = sum(len(misuse.values) for misuse in tried)
    return total, total - len(found)


if __name__ == "__main__":
    total, refused = attack()
    print(f"misuses: {refused:,} / {total:,} each with our own error")
    sys.exit(refused < total)
