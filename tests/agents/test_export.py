"""Exported graphs choose what the agents choose, on the observations of whole episodes."""

import json

import numpy as np
import pytest
import torch
from hydra.utils import instantiate

from conftest import composed
from ringyard.errors import CheckpointError
from ringyard.mdp.experiments import build_env_config
from ringyard_agents.cli import main
from ringyard_agents.learning import hub as exporting
from ringyard_agents.learning.agent_file import AGENT_FILE, agent_parts, load_policy, save_agent
from ringyard_agents.learning.episodes import EpisodeRunner
from ringyard_agents.learning.hub import export
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.models import ModelPolicy

onnx = pytest.importorskip("onnx", reason='needs pip install "ringyard[onnx]"')
onnxruntime = pytest.importorskip("onnxruntime", reason='needs pip install "ringyard[onnx]"')
pytest.importorskip("onnxscript", reason='needs pip install "ringyard[onnx]"')

SMALL = ["workload.num_jobs=14", "num_workloads=2"]
LIVE = ["action=scores", "observation=live_jobs"]
QUEUE = ["action=queue", "cluster.num_servers=3", *SMALL]
TYPES = ["action.type_scores=[p100,t4,v100]", "agent.network.context=attention", "num_workloads=2"]
WEIGHTS = ["experiment=sharing", "form=weights", *SMALL]
#: {form: words of `ringyard train`}
FORMS = {
    "scores of jobs": ["experiment=sharing", *LIVE, "agent=evolution", *SMALL],
    "scores of GPU types, attention": ["experiment=full", *LIVE, "agent=evolution", *TYPES],
    "weights, standardised": [*WEIGHTS, "agent=ppo", "agent.normalize_observations=true"],
    "attention over jobs": ["experiment=sharing", "form=jobs", "agent=ppo_attention", *SMALL],
    "queue, masked MLP": [*QUEUE, "agent=maskable_mlp"],
    "queue, pointers": [*QUEUE, "agent=maskable_pointer"],
}
SLOW = {
    "queue, MLP": [*QUEUE, "agent=ppo_mlp"],
    "queue, hierarchical": [*QUEUE, "agent=hierarchical", "agent.teacher=null"],
    "queue, graph": ["experiment=operation_graphs", "agent=maskable_graph", "num_workloads=2"],
    "constant weights": [*WEIGHTS, "agent=random_search"],
}


def save_random(words, folder, **changes):
    """Save an agent with random weights, of words of `ringyard train`, and return its environment."""
    config = composed("train", *words)
    parts = agent_parts(config)
    learner = instantiate(parts["agent"], _convert_="all")
    if "num_envs" in parts["agent"]:
        learner.num_envs = 8
    env_config = adapt_env_config(learner, build_env_config(config, 2, 0))
    learner.setup({"own": env_config}, 0)
    rng = np.random.default_rng(1)
    weights = learner.weights()
    moved = {name: random_weights(name, array, rng) for name, array in weights.arrays.items()}
    save_agent(weights._replace(arrays=moved), parts, folder / AGENT_FILE)
    return env_config


def random_weights(name, array, rng):
    """Random values of the shape of the weights. Moments of a standardisation are as of a training."""
    if "moments" in name:
        return np.stack((rng.normal(size=array.shape[1]), rng.uniform(0.1, 3.0, array.shape[1]), array[2]))
    inputs = array.shape[-1] if array.ndim > 1 else 1
    return rng.normal(0.0, inputs**-0.5, array.shape).astype(array.dtype)


def decisions(config, policy):
    """Every (observations, masks, action) of an episode of two clusters, as the policy sees and chooses."""
    seen = []

    def act(observations, masks, rows):
        action = policy.act(observations, masks)
        blocks = observations if isinstance(observations, dict) else {"observation": observations}
        seen.append(({name: one.copy() for name, one in blocks.items()}, masks.copy(), np.array(action)))
        return action

    EpisodeRunner(config, 2).run_episodes(np.arange(2), act)
    return seen


def differences(file, seen, policy):
    """Yield (differences of actions or log probabilities of graph and policy, outputs of the graph)."""
    session = onnxruntime.InferenceSession(file)
    names = [one.name for one in session.get_inputs()]
    for observations, masks, action in seen:
        inputs = {**observations, "action_mask": masks.astype(np.int8)}
        found = session.run(None, {name: inputs[name] for name in names})
        if len(found) == 1:
            assert found[0].shape == action.shape
            yield np.abs(found[0] - action), found[0]
            continue
        tensors = {name: torch.as_tensor(one) for name, one in observations.items()}
        options = {"action_masks": masks} if policy.masked else {}
        with torch.no_grad():
            one = policy.network.get_distribution(
                tensors["observation"] if policy.flat else tensors, **options
            )
        log_probs = one.distribution.logits.numpy()
        ours = torch.log_softmax(torch.as_tensor(found[1]), 1).numpy()
        top = np.sort(log_probs, 1)[:, -2:]
        clear = top[:, 1] - top[:, 0] > 1e-4  # else two actions are equal
        assert clear.any()
        assert np.array_equal(found[0][clear], action[clear])
        yield np.abs(ours - log_probs)[masks if policy.masked else ...], ours


@pytest.mark.parametrize(
    "words",
    [*FORMS.values(), *(pytest.param(one, marks=pytest.mark.slow) for one in SLOW.values())],
    ids=[*FORMS, *SLOW],
)
def test_a_graph_chooses_what_the_policy_chooses(words, tmp_path):
    config = save_random(words, tmp_path)
    policy, *_ = load_policy(tmp_path / AGENT_FILE)
    seen = decisions(config, policy)
    assert len(seen) > 5
    export(str(tmp_path), str(tmp_path / "agent.onnx"))
    found = list(differences(tmp_path / "agent.onnx", seen, policy))
    assert max(one.max() for one, _ in found) < 1e-4
    # or nothing would be tested
    assert len({outputs.tobytes() for _, outputs in found}) > 1 or "agent=random_search" in words


def test_a_pretrained_agent_is_exported_for_any_number_of_jobs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "zoo:sharing", "sharing.onnx"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "file: sharing.onnx",
        "inputs: jobs, cluster, action_mask",
        "outputs: action",
    ]
    policy, *_ = load_policy(exporting.find_checkpoint("zoo:sharing"))
    rng, seen = np.random.default_rng(0), []
    for clusters, jobs in ((1, 1), (3, 40), (2, 300)):
        present = np.arange(jobs) < rng.integers(1, jobs + 1, clusters)[:, None]
        blocks = {"jobs": rng.normal(size=(clusters, jobs * policy.network.job_features)).astype(np.float32)}
        blocks["cluster"] = rng.normal(size=(clusters, policy.network.cluster_features)).astype(np.float32)
        seen.append((blocks, present, policy.act(blocks, present)))
    assert max(one.max() for one, _ in differences("sharing.onnx", seen, policy)) < 1e-4
    [properties] = onnx.load("sharing.onnx").metadata_props
    about = json.loads(properties.value)
    assert len(about["features"]["jobs"]) == policy.network.job_features
    assert about["agent"]["action"]["_target_"] == "ringyard.mdp.actions.Scores"


def test_what_is_no_network_is_refused(tmp_path, monkeypatch):
    function = ModelPolicy(lambda observation, mask: 0, flat=True, scores=False)
    monkeypatch.setattr(exporting, "load_policy", lambda file, trust: (function, *load_policy(file)[1:]))
    with pytest.raises(CheckpointError, match="cannot be written as an ONNX graph"):
        export("zoo:sharing", str(tmp_path / "x.onnx"))
    assert not list(tmp_path.iterdir())
