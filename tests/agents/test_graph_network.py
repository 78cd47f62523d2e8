"""Graphs of operations: how they are drawn, how fast they let a job run, and a network that reads them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hydra.utils import instantiate
from torch import nn

from conftest import composed
from ringyard import Cluster, ClusterEnv
from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import experiment
from ringyard.state.operations import DEPENDENCIES, OPERATIONS, Dependency, Operation, draw_graph, span
from ringyard.workloads import PartitionedJobs
from ringyard_agents.learning.graph_network import GraphExtractor
from ringyard_agents.learning.learner import adapt_env_config

SPACE = spaces.Dict(
    {
        "cluster": spaces.Box(-10, 10, (3,)),
        "operations": spaces.Box(-10, 10, (5 * OPERATIONS,)),
        "dependencies": spaces.Box(-10, 10, (4 * DEPENDENCIES,)),
    }
)


def drawn(number):
    """The operations and dependencies of a graph."""
    operations, dependencies = Operation.zeros(OPERATIONS), Dependency.zeros(DEPENDENCIES)
    count, used = draw_graph(number, operations, dependencies)
    return operations[:count], dependencies[:used]


def graph_of(work, edges):
    """Operations and dependencies by hand."""
    operations, dependencies = Operation.zeros(len(work)), Dependency.zeros(len(edges))
    operations["work"] = work
    for row, (source, target) in zip(dependencies, edges, strict=True):
        row["source"], row["target"] = source, target
    return operations, dependencies


def blocks_of(work, edges):
    """The blocks of one observation: operations have `work` and no other features."""
    operations, dependencies = torch.zeros(OPERATIONS, 5), torch.zeros(DEPENDENCIES, 4)
    operations[: len(work), 0] = torch.tensor(work)
    for row, (source, target) in enumerate(edges):
        dependencies[row] = torch.tensor([source / 16, target / 16, 0.5, 0.0])
    return {
        "cluster": torch.zeros(1, 3),
        "operations": operations.view(1, -1),
        "dependencies": dependencies.view(1, -1),
    }


def extractor(rounds=2):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return GraphExtractor(SPACE, rounds)


@pytest.mark.parametrize(
    ("edges", "quantum", "longest"),
    [
        ([(0, 1), (1, 2)], 1.0, 1.0),  # a chain, too short to split: more workers are no faster
        ([(0, 1), (0, 2)], 1.0, 0.5 + 0.375),  # two branches: the longer one
        ([(0, 1), (1, 2)], 0.25, 0.5 / 2 + 0.375 + 0.125),  # the first one in two parts
        ([(0, 1), (0, 2)], 0.125, 2 * 0.125),  # each in parts of 0.125
        ([(0, 1), (0, 2), (1, 2)], 0.125, 3 * 0.125),  # a skip
    ],
)
def test_what_no_worker_shortens_is_the_longest_path(edges, quantum, longest):
    assert span(*graph_of([0.5, 0.375, 0.125], edges), quantum) == longest


def test_graphs_are_functions_of_their_number():
    for number in range(200):
        operations, dependencies = drawn(number)
        assert (operations["work"].sum(), operations["output"].sum()) == pytest.approx((1.0, 1.0))
        assert (dependencies["source"] < dependencies["target"]).all()
        assert (np.diff(dependencies["target"]) >= 0).all()
        assert set(dependencies["target"]) == set(
            range(1, len(operations))
        )  # each but the first has an input
        depths = operations["depth"]
        for target in range(1, len(operations)):
            before = dependencies["source"][dependencies["target"] == target]
            assert depths[target] == depths[before].max() + 1
        assert drawn(number)[0].tobytes() == operations.tobytes()
        assert drawn(number)[1].tobytes() == dependencies.tobytes()
    assert len({drawn(number)[0].tobytes() for number in range(200)}) == 200


def test_a_job_is_as_fast_as_its_graph_allows():
    cluster, jobs = Cluster.homogeneous(32, 1), PartitionedJobs(50, quantum_seconds=5.0)
    table, other = (jobs.sample(cluster, np.random.default_rng(seed)) for seed in (0, 1))
    even = PartitionedJobs(50).sample(cluster, np.random.default_rng(0))
    assert np.array_equal(table.acceptable_jct, even.acceptable_jct)  # graphs are drawn last
    assert not set(table.graph) & set(other.graph)
    for number, seconds, fixed in zip(table.graph, table.compute_seconds, table.fixed_fraction, strict=True):
        assert fixed == span(*drawn(number), 5.0 / seconds)
    assert (even.graph == -1).all()
    assert not even.fixed_fraction.any()
    with pytest.raises(ConfigurationError, match="quantum_seconds"):
        PartitionedJobs(quantum_seconds=0.0)


def test_an_agent_sees_the_graph_and_not_the_speeds():
    env = ClusterEnv(experiment("operation_graphs"))
    seen, _ = env.reset(seed=3)
    table = env.batch.workload_cache.table(int(env.batch.entries[0]))
    operations, dependencies = drawn(int(table.graph[0]))
    shape = env.metadata["blocks"]["operations"]["shape"]
    work = seen["operations"].reshape(shape)[: len(operations), 0]
    assert work == pytest.approx(operations["work"] / operations["work"].max(), rel=1e-6)
    assert seen["graph"][2] == pytest.approx(operations["work"].max())
    rows = seen["dependencies"].reshape(env.metadata["blocks"]["dependencies"]["shape"])
    assert np.array_equal(16 * rows[: len(dependencies), 0], dependencies["source"])
    assert np.array_equal(16 * rows[: len(dependencies), 1], dependencies["target"])
    assert not rows[len(dependencies) :].any()
    assert not seen["placements"].reshape(env.metadata["blocks"]["placements"]["shape"])[..., 2].any()


def test_the_network_sees_edges_and_no_order():
    work, network = [1.0, 0.5, 0.5, 0.25], extractor()
    chain = network(blocks_of(work, [(0, 1), (1, 2), (2, 3)]))
    assert not torch.allclose(chain, network(blocks_of(work, [(0, 1), (0, 2), (0, 3)])))  # equal sums
    order = [0, 2, 3, 1]  # the same chain with other numbers of its operations
    moved = blocks_of([work[i] for i in order], [(order.index(i), order.index(i + 1)) for i in range(3)])
    assert torch.allclose(network(moved), chain, atol=1e-6)
    blind = extractor(0)
    assert torch.equal(blind(moved), blind(blocks_of(work, [])))


def test_the_network_learns_what_only_edges_show():
    """How many operations need the output of the first one, where all operations look alike."""
    rng, rows, wanted = np.random.default_rng(0), [], []
    for _ in range(64):
        edges = [(int(rng.integers(i)), i) for i in range(1, 6)]
        rows.append(blocks_of([1.0] * 6, edges))
        wanted.append(sum(source == 0 for source, _ in edges) / 5)
    blocks, aim = (
        {name: torch.cat([row[name] for row in rows]) for name in SPACE.spaces},
        torch.tensor(wanted),
    )
    errors = {}
    for rounds in (0, 2):
        network = extractor(rounds)
        head = nn.Linear(network.features_dim, 1)
        optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], 1e-2)
        for _ in range(150):
            loss = (head(network(blocks))[:, 0] - aim).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        errors[rounds] = loss.item() / aim.var().item()
    assert errors[0] > 0.9
    assert errors[2] < 0.1


def test_other_observations_are_an_error():
    with pytest.raises(ConfigurationError, match="observation=operation_graph, flat=False"):
        GraphExtractor(spaces.Box(0, 1, (3,)))
    with pytest.raises(ConfigurationError, match="rounds is -1"):
        GraphExtractor(SPACE, -1)


def test_the_agent_learns_with_the_network():
    config = experiment("operation_graphs")
    learner = instantiate(
        composed("train", "agent=maskable_graph", "agent.num_envs=2").agent, _convert_="all"
    )
    learner.setup({"": adapt_env_config(learner, replace(config, num_workloads=2))}, 0)
    assert isinstance(learner._network.features_extractor, GraphExtractor)
    before = {name: weights.copy() for name, weights in learner.weights().arrays.items()}
    learner.learn(64, lambda scalars: None)
    changed = {name for name, weights in learner.weights().arrays.items() if (weights != before[name]).any()}
    assert any("rounds.0" in name for name in changed)
