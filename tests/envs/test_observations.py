"""Blocks of observations: spaces, lengths and documentation all follow from them."""

import inspect
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import yaml
from hydra.utils import get_method

from conftest import CONF, ROOT, WITH, names
from ringyard import Cluster, ClusterVectorEnv
from ringyard.mdp.actions import Actions, Scores, Weights
from ringyard.mdp.batch import ClusterBatch
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations import queue_and_cluster
from ringyard.mdp.observations.observation import ItemAxis, feature_table

INTRODUCTION = """# Observations

What an agent sees, feature by feature. This page is generated from the blocks in `ringyard.mdp.observations`;
`pytest tests/envs/test_observations.py --update-docs` writes it anew.

Their names are those of `conf/observation`, as in `observation=live_jobs`. An observation is a Dict of
float32 vectors, the blocks, or, with `flat=True`, one Box: the same numbers in the same order, which is that
of Gymnasium's `FlattenObservation`. A block has features of each item, item by item: V visible waiting jobs,
T templates, R running slots, N live jobs that get a score, S servers, O = 16 operations of a graph and D = 29
dependencies between them. `env.metadata["blocks"]` has each block's shape and the names of its features. So
`observation["waiting"].reshape(env.metadata["blocks"]["waiting"]["shape"])` has a row for each waiting job.
Values are within [-10, 10], most within [0, 1]. `s(x, c)` is x / (x + c). Unused slots are 0 and have a 0 in
the block's mask. Running slots are in heap order of ends, or by row if any end is uncertain. Live jobs are in
the order of the job table.
"""
CLUSTER = Cluster((2, 4, 4))
ACTIONS = Actions(num_waiting=5, num_running=7)


def is_for_scores(observation):
    return any(block.axis in (ItemAxis.LIVE, ItemAxis.SUMMARY) for block in observation.blocks)


def actions_of(observation):
    """The kind of actions that an observation is for."""
    if any(block.axis == ItemAxis.SUMMARY for block in observation.blocks):
        return Weights()
    return Scores(num_jobs=5) if is_for_scores(observation) else ACTIONS


def factories():
    """The functions behind conf/observation, those for scores and weights last, by how much they show."""
    leaves = [
        yaml.safe_load((CONF / "observation" / f"{name}.yaml").read_text()) for name in names("observation")
    ]
    found = {get_method(leaf["_target_"]) for leaf in leaves}
    kinds = [Actions, Scores, Weights]
    order = {one: (kinds.index(type(actions_of(one()))), len(one().blocks), one.__name__) for one in found}
    return sorted(found, key=order.__getitem__)


def variants(factory):
    """{name in conf/observation: call} of those of a function that have other arguments than its defaults."""
    found = {}
    for name in names("observation"):
        leaf = yaml.safe_load((CONF / "observation" / f"{name}.yaml").read_text())
        if get_method(leaf.pop("_target_")) is factory and leaf:
            given = ", ".join(f"{argument}={value}" for argument, value in leaf.items())
            found[name] = f"{factory.__name__}({given})"
    return found


def test_yamls_have_the_names_of_the_functions():
    functions = {factory.__name__ for factory in factories()}
    assert functions | {name for one in factories() for name in variants(one)} == set(names("observation"))
    assert functions < set(names("observation"))


@pytest.mark.parametrize("name", names("observation"))
def test_flat_is_gymnasiums_flatten_observation(name):
    blocks, rows = (
        gymnasium.make("ringyard/Sharing-v1", observation=name, flat=one, **WITH.get(name, {}))
        for one in (False, True)
    )
    flattened = gymnasium.wrappers.FlattenObservation(blocks)
    assert flattened.observation_space == rows.observation_space
    vector = gymnasium.wrappers.vector.FlattenObservation(ClusterVectorEnv(2, blocks.unwrapped.config))
    (one, info), (other, _), (many, _) = (env.reset(seed=4) for env in (flattened, rows, vector))
    for _ in range(20):
        assert one.tobytes() == other.tobytes() == many[0].tobytes()
        scored = isinstance(rows.action_space, gymnasium.spaces.Box)
        action = (
            np.zeros(rows.action_space.shape, np.float32) if scored else int(info["action_mask"].argmax())
        )
        (one, *_, info), (other, *_) = flattened.step(action), rows.step(action)
        many, *_ = vector.step(np.stack([action] * 2))


@pytest.mark.parametrize("factory", factories())
def test_blocks_fill_the_row_in_the_order_of_the_space(factory):
    observation = factory(flat=False)
    actions = actions_of(observation)
    lengths = observation.lengths(CLUSTER, actions)
    space = observation.space(CLUSTER, actions)
    assert len(lengths) == len(observation.blocks)  # no name twice
    assert lengths == {name: np.prod(box.shape) for name, box in space.spaces.items()}
    size = sum(lengths.values())
    assert size == observation.size(CLUSTER, actions)
    assert factory(flat=True).space(CLUSTER, actions).shape == (size,)


@pytest.mark.parametrize("factory", factories())
def test_writers_stay_inside_their_row(factory):
    observation = factory(flat=True)
    actions = actions_of(observation)
    setting = replace(experiment("full"), actions=actions, observation=observation, num_workloads=1)
    batch = ClusterBatch(setting, 1)
    batch.reset(np.array([0]), np.array([0]))
    size = observation.size(setting.cluster, actions)
    num_running = actions.items.get("R", (0,))[0]
    for _ in range(200):
        if batch.done[0]:
            batch.reset(np.array([0]), np.array([0]))
        batch.step(batch.masks.argmax(axis=1) if actions is ACTIONS else np.zeros((1, *actions.space.shape)))
        room = np.full(size + 1000, np.nan, np.float32)
        observation.write(batch.state, batch.episode, 0, num_running, observation.parameters, room[:size])
        assert not np.isnan(room[:size]).any()
        assert np.isnan(room[size:]).all()


@pytest.mark.parametrize("factory", factories())
def test_features_of_a_block_have_names_of_their_own(factory):
    for block in factory().blocks:
        assert len({feature.name for feature in block.features}) == len(block.features) > 0, block.name


def test_the_default_has_the_documented_length():
    # 5 jobs x (12 + 1), 5 x 2 templates x 3, 7 running x (7 + 1), 3 servers x 3, 8 of the cluster
    assert queue_and_cluster().size(CLUSTER, ACTIONS) == 65 + 30 + 56 + 9 + 8


def test_blocks_have_their_shapes_and_their_features_names():
    blocks = ClusterEnv().metadata["blocks"]
    assert blocks["waiting"]["shape"] == (16, 12)
    assert blocks["waiting"]["features"][:2] == ("run_time", "gpus")
    said = queue_and_cluster().names(CLUSTER, ACTIONS)
    assert {name: one["shape"] for name, one in said.items()} == {
        "waiting": (5, 12),
        "waiting_mask": (5,),
        "placements": (5, 2, 3),
        "running": (7, 7),
        "running_mask": (7,),
        "servers": (3, 3),
        "cluster": (8,),
    }


@pytest.mark.parametrize("factory", factories())
def test_metadata_describe_the_observation(factory):
    actions = actions_of(factory())
    settings = [
        replace(experiment("full"), actions=actions, observation=factory(one)) for one in (False, True)
    ]
    blocks, flat = map(ClusterEnv, settings)
    for name, box in blocks.observation_space.items():
        said = blocks.metadata["blocks"][name]
        assert (np.prod(said["shape"]),) == box.shape
        assert len(said["features"]) in (1, said["shape"][-1])
    sizes = (np.prod(said["shape"]) for said in flat.metadata["blocks"].values())
    assert (sum(sizes),) == flat.observation_space.shape
    seen, _ = blocks.reset(seed=3)
    row, _ = flat.reset(seed=3)
    assert np.array_equal(np.concatenate([seen[name].ravel() for name in flat.metadata["blocks"]]), row)


def test_the_environments_page_holds_the_table():
    assert feature_table(queue_and_cluster().blocks) in ClusterEnv.__doc__
    assert "| waiting [V x 12] | 0 | run_time |" in ClusterEnv.__doc__


def observations_page(factories):
    """The page docs/observations.md; a block that an earlier observation has is named, not repeated."""
    page = [INTRODUCTION]
    described = set()
    for factory in factories:
        blocks = factory().blocks
        new = [block for block in blocks if block not in described]
        old = ", ".join(f"`{block.name}`" for block in blocks if block in described)
        page.append(f"## `{factory.__name__}`\n\n{(inspect.getdoc(factory) or '').splitlines()[0]}\n")
        page += [f"`{name}` is `{call}`.\n" for name, call in variants(factory).items()]
        page += [f"The blocks above ({old}), followed by:\n"] if old else []
        page.append(feature_table(new))
        described.update(new)
    return "\n".join(page)


def test_the_page_of_observations_is_what_the_code_says(update_docs):
    file = ROOT / "docs" / "observations.md"
    page = observations_page(factories())
    if update_docs:
        file.write_text(page)
    assert file.read_text() == page, "run pytest tests/envs/test_observations.py --update-docs"
