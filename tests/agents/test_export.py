"""Exported graphs choose what the agents choose, on the observations of whole episodes."""

import json

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from torch import nn

from conftest import composed
from ringyard.errors import CheckpointError
from ringyard.mdp.experiments import build_env_config
from ringyard_agents.cli import main
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.learning.agent_file import AGENT_FILE, agent_parts, save_agent
from ringyard_agents.learning.episodes import EpisodeRunner
from ringyard_agents.learning.export import export_policy
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.models import ModelPolicy

onnx = pytest.importorskip("onnx", reason='needs pip install "ringyard[onnx]"')
onnxruntime = pytest.importorskip("onnxruntime", reason='needs pip install "ringyard[onnx]"')
pytest.importorskip("onnxscript", reason='needs pip install "ringyard[onnx]"')

SMALL = ["workload.num_jobs=14", "num_workloads=2"]
QUEUE = ["action=queue", "cluster.num_servers=3", *SMALL]
#: a form: words of `ringyard train`
FORMS = {
    "scores of jobs": ["experiment=sharing", "action=scores", "observation=live_jobs", *SMALL, "agent=evolution"],
    "scores of GPU types, attention": [
        *("experiment=full", "action=scores", "action.type_scores=[p100,t4,v100]", "observation=live_jobs"),
        *("agent=evolution", "agent.network.context=attention", "num_workloads=2"),
    ],
    "weights, standardised": [
        *("experiment=sharing", "form=weights", "agent=ppo", "agent.normalize_observations=true", *SMALL)
    ],
    "attention over jobs": ["experiment=sharing", "form=jobs", "agent=ppo_attention", *SMALL],
    "queue, masked MLP": [*QUEUE, "agent=maskable_mlp"],
    "queue, MLP": [*QUEUE, "agent=ppo_mlp"],
    "queue, pointers": [*QUEUE, "agent=maskable_pointer"],
}
SLOW = {
    "queue, hierarchical": [*QUEUE, "agent=hierarchical", "agent.teacher=null"],
    "queue, graph": ["experiment=operation_graphs", "agent=maskable_graph", "num_workloads=2"],
    "constant weights": ["experiment=sharing", "form=weights", "agent=random_search", *SMALL],
}


def learner_of(words):
    """(learner with random weights, its environment, the parts of its agent) of words of `ringyard train`."""
    config = composed("train", *words)
    parts = agent_parts(config)
    if "num_envs" in parts["agent"]:
        parts["agent"]["num_envs"] = 8
    learner = instantiate(parts["agent"], _convert_="all")
    env_config = adapt_env_config(learner, build_env_config(config, 2, 0))
    learner.setup({"own": env_config}, 0)
    rng = np.random.default_rng(1)
    weights = learner.weights()
    moved = {name: random_weights(name, array, rng) for name, array in weights.arrays.items()}
    return learner, env_config, parts, weights._replace(arrays=moved)


def random_weights(name, array, rng):
    """Random values of the shape of the weights; the moments of a standardisation are those of a training."""
    if "moments" in name:
        return np.stack((rng.normal(size=array.shape[1]), rng.uniform(0.1, 3.0, array.shape[1]), array[2]))
    return rng.normal(0.0, 0.5, array.shape).astype(array.dtype)


def decisions(config, policy):
    """Every (observations, masks, action) of an episode of two clusters, as the policy sees and chooses them."""
    seen = []

    def act(observations, masks, rows):
        action = policy.act(observations, masks)
        copied = {name: one.copy() for name, one in blocks(observations).items()}
        seen.append((copied, masks.copy(), np.array(action)))
        return action

    EpisodeRunner(config, 2).run_episodes(np.arange(2), act)
    return seen


def blocks(observations):
    return observations if isinstance(observations, dict) else {"observation": observations}


def largest_difference(file, seen, policy):
    """Largest difference of actions (of masked logits for discrete ones) between graph and policy."""
    session = onnxruntime.InferenceSession(file)
    names = [one.name for one in session.get_inputs()]
    differences = []
    for observations, masks, action in seen:
        inputs = {**observations, "action_mask": masks.astype(np.int8)}
        found = session.run(None, {name: inputs[name] for name in names})
        if len(found) == 2:
            given = {name: torch.as_tensor(one) for name, one in observations.items()}
            tensors = given["observation"] if policy.flat else given
            options = {"action_masks": masks} if policy.masked else {}
            with torch.no_grad():
                log_probs = policy.network.get_distribution(tensors, **options).distribution.logits.numpy()
            own = torch.log_softmax(torch.as_tensor(found[1]), 1).numpy()
            differences.append(np.abs(own - log_probs)[masks if policy.masked else ...].max())
            top = np.sort(log_probs, 1)[:, -2:]
            clear = top[:, 1] - top[:, 0] > 1e-4  # else two actions are equal
            assert clear.any()
            assert np.array_equal(found[0][clear], action[clear])
        else:
            assert found[0].shape == action.shape
            differences.append(np.abs(found[0] - action).max())
    assert len(seen) > 5
    return max(differences)


@pytest.mark.parametrize(
    "words",
    [*FORMS.values(), *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW.values())],
    ids=[*FORMS, *SLOW],
)
def test_a_graph_chooses_what_the_policy_chooses(words, tmp_path):
    learner, config, _, weights = learner_of(words)
    policy = learner.load(weights)
    seen = decisions(config, policy)
    assert len({one[2].tobytes() for one in seen}) > 1 or "agent=random_search" in words
    export_policy(policy, tmp_path / "x.onnx")
    assert largest_difference(tmp_path / "x.onnx", seen, policy) < 1e-4
