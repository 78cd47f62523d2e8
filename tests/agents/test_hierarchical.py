"""Policies that choose a group of jobs first."""

from functools import partial

import numpy as np
import pytest
import torch
from test_agents import setting

from ringyard.mdp.batch import ClusterBatch
from ringyard.state.arrays import waiting_rows
from ringyard_agents.learning.cloning import CloneTeacher, QueueTeacher
from ringyard_agents.learning.group_relative import GroupRelative
from ringyard_agents.learning.hierarchical import HierarchicalNetwork, HierarchicalPolicy
from ringyard_agents.learning.policies import PointerNetwork

CHANGES, WAIT = 8, 9


def groups_of_actions(batch, b):
    """{group: its valid actions}, by the GPUs that each waiting job asks for."""
    actions, rules = batch.config.actions, len(batch.config.actions.starts)
    jobs = waiting_rows(batch.state, b)
    groups = {}
    for action in np.flatnonzero(batch.masks[b]).tolist():
        group = CHANGES if action < actions.wait else WAIT
        if action < actions.num_starts:
            group = int(np.round(np.log2(batch.state.jobs["asked_gpus"][b, jobs[action // rules]])))
        groups.setdefault(group, []).append(action)
    return groups


@pytest.mark.parametrize("preemptive", [False, True])
def test_a_group_is_chosen_before_its_actions(preemptive):
    """P(group) depends on the group alone, and not on how many jobs it has; inside, the pointer decides."""
    config, rng = setting(preemptive=preemptive), np.random.default_rng(0)
    batch = ClusterBatch(config, 8)
    batch.reset(np.arange(8), np.arange(8))
    torch.manual_seed(0)
    actions = config.actions
    network = HierarchicalNetwork(config.observation.space(config.cluster, actions), actions.mask_size, 16)
    with torch.no_grad():
        network.group.weight.zero_()
        network.group_bias.copy_(torch.randn(len(network.group_bias)))
        network.start.weight.mul_(300.0)
    bias, seen = network.group_bias.detach().numpy(), set()
    for _ in range(12):
        blocks = {name: torch.as_tensor(block) for name, block in batch.split(batch.observations).items()}
        with torch.no_grad():
            found = network(blocks)[0].masked_fill(~torch.as_tensor(batch.masks), -1e8)
            inside = PointerNetwork.forward(network, blocks)[0].numpy()
        probabilities = torch.softmax(found, 1).numpy()
        for b in np.flatnonzero(~batch.done):
            groups = groups_of_actions(batch, b)
            total = sum(np.exp(bias[group]) for group in groups)
            for group, valid in groups.items():
                odds = np.exp(inside[b, valid] - inside[b, valid].max())
                given_group = probabilities[b, valid] / probabilities[b, valid].sum()
                assert np.allclose(given_group, odds / odds.sum(), atol=1e-5)
                if not preemptive:  # changes that are masked for another reason than places count, too
                    expected = np.exp(bias[group]) / total
                    assert np.allclose(probabilities[b, valid].sum(), expected, atol=1e-5)
                seen.add((group, len(valid) // 3))
        chosen = [rng.choice(np.flatnonzero(mask)) for mask in batch.masks]
        batch.step(np.array(chosen), np.flatnonzero(~batch.done))
    assert {group for group, _ in seen} == {0, 1, 2, WAIT} | ({CHANGES} if preemptive else set())
    assert len(seen) > 5  # also several jobs of a group


def test_it_clones_a_heuristic_and_learns():
    teacher = CloneTeacher(partial(QueueTeacher, templates=["consolidate"]), 100, 200)
    learner = GroupRelative(
        partial(HierarchicalPolicy, width=32), num_envs=8, group_size=4, batch_size=512, teacher=teacher
    )
    learner.setup({"one": setting()}, 0)
    measured = {}
    learner.learn(1, measured.update)
    assert measured["imitation/accuracy"] > 0.9
    assert 0 < measured["train/approx_kl"] < 0.1
