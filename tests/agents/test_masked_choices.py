"""What is compiled of drawing and learning choices is what torch computes from the same logits."""

import numpy as np
import pytest
import torch

from ringyard_agents.learning import masked_choices
from ringyard_agents.learning.masked_choices import Choices, add_ppo_gradient, choose

NEVER = -1e8


class Linear:
    """As much of a policy as learning asks for: logits are linear in what is seen."""

    def __init__(self, features, actions):
        self.device, self.pi_features_extractor, self.action_net = (
            torch.device("cpu"),
            None,
            torch.nn.Identity(),
        )
        self.mlp_extractor = torch.nn.Linear(features, actions)
        self.mlp_extractor.forward_actor = self.mlp_extractor.forward
        self.parameters = self.mlp_extractor.parameters

    def extract_features(self, seen, extractor):
        return seen


def some_masks(rng, rows, actions):
    masks = rng.random((rows, actions)) < 0.3
    masks[np.arange(rows), rng.integers(actions, size=rows)] = True
    return masks


def log_softmax(logits, masks):
    return torch.log_softmax(logits.masked_fill(~torch.as_tensor(masks), NEVER), 1)


@pytest.mark.parametrize("seed", range(5))
def test_choices_are_drawn_as_torch_draws_them(seed):
    rng = np.random.default_rng(seed)
    logits, masks = (
        torch.as_tensor(rng.normal(0, 3, (300, 33)), dtype=torch.float32),
        some_masks(rng, 300, 33),
    )
    noise = rng.exponential(size=(300, 33)).astype(np.float32)
    actions, log_probs = choose(logits, masks, noise)
    possible = log_softmax(logits, masks)
    drawn = (possible.exp() / torch.as_tensor(noise)).argmax(1)
    assert np.array_equal(actions, drawn)
    assert np.allclose(log_probs, possible.gather(1, drawn[:, None])[:, 0], atol=1e-5)


def test_a_broken_network_still_chooses_what_is_valid():
    masks = some_masks(np.random.default_rng(0), 20, 7)
    actions, log_probs = choose(torch.full((20, 7), torch.nan), masks, np.ones((20, 7), np.float32))
    assert masks[np.arange(20), actions].all()
    assert np.isnan(log_probs).all()


@pytest.mark.parametrize("seed", range(5))
def test_gradient_is_that_of_the_clipped_loss(seed, monkeypatch):
    monkeypatch.setattr(masked_choices, "_PART", 64)
    rng, count, total, clip, weight = np.random.default_rng(seed), 300, 500, 0.2, 0.05
    network, masks = Linear(6, 9), some_masks(rng, count, 9)
    seen = rng.normal(0, 1, (count, 6)).astype(np.float32)
    actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])
    with torch.no_grad():
        now = log_softmax(network.mlp_extractor(torch.as_tensor(seen)), masks)
    then = now[torch.arange(count), torch.as_tensor(actions)].numpy() + rng.normal(0, 0.3, count)
    advantages = rng.normal(0, 1, count).astype(np.float32)
    advantages[::7] = 0.0
    choices = Choices(seen, masks, actions, then.astype(np.float32), advantages)
    rows = rng.permutation(count)[:250]
    found = add_ppo_gradient(network, choices, rows, total, clip, weight)

    layer = network.mlp_extractor
    exact = torch.nn.Linear(6, 9, dtype=torch.float64)
    exact.load_state_dict(layer.state_dict())
    tensors = (torch.as_tensor(one[rows]) for one in (seen.astype(np.float64), actions, then, advantages))
    seen, actions, then, advantages = tensors
    possible = log_softmax(exact(seen), masks[rows])
    entropy = -(possible.exp() * possible).sum()
    log_ratio = possible.gather(1, actions[:, None])[:, 0] - then.float()
    ratio = torch.exp(log_ratio)
    gain = torch.min(advantages * ratio, advantages * torch.clamp(ratio, 1 - clip, 1 + clip)).sum()
    loss = (-gain - weight * entropy) / total
    loss.backward()
    outside = (torch.abs(ratio - 1) > clip).sum()
    assert 30 < outside < 220
    for one, wanted in zip(layer.parameters(), exact.parameters(), strict=True):
        assert torch.allclose(one.grad.double(), wanted.grad, rtol=1e-4, atol=1e-7)
    wanted = [-gain, -entropy, loss * total, (ratio - 1 - log_ratio).sum(), outside]
    assert np.allclose(found * total, [one.item() for one in wanted], rtol=1e-4)


def test_nothing_is_learnt_from_no_decisions():
    network, none = Linear(6, 9), np.zeros(0, np.int64)
    choices = Choices(np.zeros((0, 6), np.float32), np.zeros((0, 9), np.bool_), none, none, none)
    assert not add_ppo_gradient(network, choices, none, 5, 0.2, 0.05).any()
    assert all(one.grad is None for one in network.parameters())
