"""The pointer policy's compiled network is what torch computes, forward and backward."""

from copy import deepcopy

import learns_together
import numpy as np
import pytest
import torch

from ringyard import Cluster
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.observations import queue_and_cluster, queue_cluster_and_resources
from ringyard.placement import consolidate, pack, spread
from ringyard_agents.learning.hardware import Hardware
from ringyard_agents.learning.policies import PointerNetwork

CLUSTER = Cluster.homogeneous(3, 4)
WORLDS = {
    "default": (queue_and_cluster(), Actions()),
    "one template": (queue_and_cluster(), Actions(num_waiting=5, num_running=3, templates=(pack(),))),
    "resources": (
        queue_cluster_and_resources(),
        Actions(num_waiting=4, templates=(consolidate(), pack(), spread())),
    ),
}


def made(name, width, rows, seed):
    """(network, what it sees, gradients by its two results)."""
    observation, actions = WORLDS[name]
    space = observation.space(CLUSTER, actions)
    torch.manual_seed(seed)
    network = PointerNetwork(space, int(actions.space.n), width)
    for one in network.parameters():
        torch.nn.init.normal_(one, 0.0, 0.3)
    blocks = {block: torch.randn(rows, *box.shape) for block, box in space.spaces.items()}
    for block in ("waiting_mask", "running_mask"):
        blocks[block] = (torch.rand(blocks[block].shape) < 0.3).float()
        blocks[block][::9] = 0.0
    starts = blocks["waiting_mask"].repeat_interleave(len(actions.starts), 1)
    chosen = torch.cat((starts, torch.ones(rows, 1)), 1)
    return network, blocks, (torch.randn(chosen.shape) * chosen, torch.randn(rows, width))


def answers(network, forward, blocks, by_results):
    """[logits, context, *gradients] of parameters that take part."""
    results = forward(blocks)
    own = [one for name, one in network.named_parameters() if not name.startswith("stop")]
    return [one.detach() for one in results] + list(torch.autograd.grad(results, own, by_results))


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(("width", "rows"), [(64, 200), (16, 50), (7, 1)])
def test_results_and_gradients_are_those_of_torch(name, width, rows):
    single, blocks, by_results = made(name, width, rows, width)
    network = deepcopy(single).double()
    doubled = {block: values.double() for block, values in blocks.items()}
    by_doubled = [one.double() for one in by_results]
    wanted = answers(network, network.forward_by_torch, doubled, by_doubled)
    found = answers(network, network.forward, doubled, by_doubled)
    for one, other in zip(found, wanted, strict=True):
        most = float(other.abs().max()) + 1.0
        assert torch.allclose(one, other, rtol=0.0, atol=1e-7 * most)  # shares are of single precision
    for one, other in zip(answers(single, single.forward, blocks, by_results), wanted, strict=True):
        assert (one.double() - other).norm() <= 0.05 * other.norm() + 1e-5  # a relu may go the other way


def test_gradients_are_what_small_steps_show():
    single, blocks, _ = made("one template", 4, 6, 3)
    network = deepcopy(single).double()
    doubled = {block: values.double() for block, values in blocks.items()}
    own = [one for name, one in network.named_parameters() if not name.startswith("stop")]
    assert torch.autograd.gradcheck(lambda *parameters: network(doubled), own)


@pytest.mark.parametrize("what", ["logits", "context"])
def test_gradients_by_one_result_alone(what):
    network, blocks, by_results = made("default", 16, 40, 0)
    which = ("logits", "context").index(what)
    found, wanted = (
        torch.autograd.grad(forward(blocks)[which], own, by_results[which], allow_unused=True)
        for forward in (network.forward, network.forward_by_torch)
        for own in [[network.job[0].weight, network.server[0].weight, network.context_to_job.weight]]
    )
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, torch.zeros_like(one) if other is None else other, rtol=1e-3, atol=1e-5)


def test_windows_on_rows_of_observations_are_read_as_they_are():
    network, blocks, _ = made("default", 16, 20, 1)
    rows = torch.cat([block.flatten(1) for block in blocks.values()], 1)
    parts = torch.split(rows, [block[0].numel() for block in blocks.values()], 1)
    windows = {name: part.view(blocks[name].shape) for name, part in zip(blocks, parts, strict=True)}
    with torch.inference_mode():
        for found, wanted in zip(network(windows), network(blocks), strict=True):
            assert torch.equal(found, wanted)


def test_a_row_does_not_depend_on_the_others():
    network, blocks, _ = made("default", 16, 40, 2)
    with torch.no_grad():
        whole, part = network(blocks)[0], network({name: block[:7] for name, block in blocks.items()})[0]
    assert np.allclose(whole[:7], part, atol=1e-5)


def test_learning_by_torch_alone_is_learning_by_kernels(monkeypatch):
    # on a GPU the network goes by torch's operations: here a processor learns by them
    compiled = learns_together.learn("group_relative", Hardware())
    monkeypatch.setattr(PointerNetwork, "forward", PointerNetwork.forward_by_torch)
    by_torch = learns_together.learn("group_relative", Hardware())
    assert by_torch["decisions"] == compiled["decisions"]
    for key, values in compiled.items():
        assert np.allclose(by_torch[key], values, rtol=1e-3, atol=1e-5), key
    assert any((by_torch[key] != values).any() for key, values in compiled.items())
