"""Models of Stable-Baselines3 and sb3-contrib, torch modules and functions are compared like schedulers."""

import base64
import json
import os
import pickle
import zipfile
from dataclasses import replace

import gymnasium
import numpy as np
import pandas as pd
import pytest
import sb3_contrib
import stable_baselines3
import torch

import ringyard_agents
from ringyard import ClusterEnv, experiment, queue_and_cluster
from ringyard.errors import ActionError, CheckpointError, ConfigurationError, PluginError
from ringyard_agents.cli import main

SMALL = {"experiment": "helios_like", "overrides": ["workload.num_jobs=20"], "seeds": 1}
WORDS = ["experiment=helios_like", "workload.num_jobs=20", "seeds=1"]
#: every algorithm of the two libraries for discrete actions: (class, arguments)
ALGORITHMS = {
    **{name: (getattr(stable_baselines3, name), {}) for name in ("A2C", "PPO")},
    **{name: (getattr(sb3_contrib, name), {}) for name in ("ARS", "MaskablePPO", "RecurrentPPO", "TRPO")},
    "DQN": (stable_baselines3.DQN, {"buffer_size": 10}),
    "QRDQN": (sb3_contrib.QRDQN, {"buffer_size": 10}),
}
#: algorithms with policies that read one row of numbers only
ROWS = ("ARS",)


@pytest.fixture(scope="module")
def environments():
    """{whether observations are one row: environment}."""
    config = experiment("helios_like")
    return {flat: ClusterEnv(replace(config, observation=queue_and_cluster(flat))) for flat in (False, True)}


def untrained(name, env, **options):
    """A model of random weights."""
    algorithm, arguments = ALGORITHMS[name]
    policy = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
    if isinstance(env.observation_space, gymnasium.spaces.Dict):
        policy = policy.replace("Mlp", "MultiInput")
    return algorithm(policy, env, seed=0, device="cpu", **arguments, **options)


def first_valid(observation, mask):
    return int(mask.argmax())


def mean_jct(model, *overrides):
    given = {**SMALL, "overrides": [*SMALL["overrides"], *overrides]}
    [mean] = ringyard_agents.evaluate(model, **given)["mean_jct"]
    return mean


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_model_and_its_zip_act_as_it_predicts(name, environments, tmp_path):
    env = environments[name in ROWS]
    options = {"activation_fn": torch.nn.ReLU, "net_arch": [8]} if name == "PPO" else {}
    model, state = untrained(name, env, policy_kwargs=options), None
    model.save(tmp_path / "model.zip")
    loaded = ringyard_agents.load(tmp_path / "model.zip", env, trust=True)
    given = ringyard_agents.load(model, env)
    observation, info = env.reset(seed=1)
    for _ in range(10):
        mask = info["action_mask"]
        masks = {"action_masks": mask} if name == "MaskablePPO" else {}
        action, state = model.predict(observation, state, deterministic=True, **masks)
        assert action == given.act(observation, mask) == loaded.act(observation, mask)
        observation, _, _, _, info = env.step(int(action) if mask[action] else int(mask.argmax()))


def test_a_model_is_compared_like_a_scheduler(environments):
    for flat in (False, True):
        model = untrained("MaskablePPO", environments[flat])

        def chosen(observation, mask, model=model, flat=flat):
            read = np.concatenate([*map(np.ravel, observation.values())]) if flat else observation
            return model.predict(read, deterministic=True, action_masks=mask)[0]

        table = ringyard_agents.compare(["fifo_backfill", model, {"same": chosen}], **SMALL)
        table = table.set_index("scheduler")
        assert table["mean_jct"]["MaskablePPO"] == table["mean_jct"]["same"]
        assert table["capabilities"]["MaskablePPO"] == "start"


class Descending(torch.nn.Module):
    """Logits that fall from action to action, for blocks of observations."""

    def __init__(self, actions):
        super().__init__()
        self.actions = actions

    def forward(self, blocks):
        return -torch.arange(self.actions).expand(len(blocks["cluster"]), self.actions).float()


def test_modules_and_functions_choose_among_valid_actions(environments):
    actions = int(environments[False].action_space.n)
    assert mean_jct(Descending(actions)) == mean_jct(first_valid)
    with pytest.raises(
        CheckpointError, match=rf"Descending returned .*expected a logit per action.*{actions}"
    ):
        mean_jct(Descending(actions - 1))
    pair = Descending(actions)
    pair.forward = lambda blocks: (Descending(actions)(blocks), None)
    with pytest.raises(
        CheckpointError, match=r"Descending returned \(.*expected a logit per action, a tensor"
    ):
        mean_jct(pair)


def test_scores_of_zero_are_the_allocator():
    scores = mean_jct(
        lambda observation, mask: np.zeros(mask.shape), "action=scores", "observation=live_jobs"
    )
    assert scores == mean_jct("allocator")


def test_a_zip_is_not_opened_without_trust(environments, tmp_path, monkeypatch, capsys):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    monkeypatch.chdir(tmp_path)
    pickled = base64.b64encode(pickle.dumps(Bomb())).decode()
    with zipfile.ZipFile("model.zip", "w") as stream:
        stream.writestr("data", json.dumps({"policy_class": {":type:": "", ":serialized:": pickled}}))
    for load in (
        lambda: ringyard_agents.load("model.zip", environments[False]),
        lambda: ringyard_agents.load("model.zip", environments[False], trust=["os.system"]),
        lambda: ringyard_agents.compare(["mine:model.zip"], **SMALL),
        lambda: ringyard_agents.compare([{"mine": "model.zip"}], **SMALL),
    ):
        with pytest.raises(
            CheckpointError, match="runs any code in it; if you trust it whole, add trust=true"
        ):
            load()
    assert main(["compare", "schedulers=[mine:model.zip]", *WORDS]) == 2
    assert "add trust=true" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    with pytest.raises(CheckpointError, match="is not a model of Stable-Baselines3"):
        ringyard_agents.load("model.zip", environments[False], trust=True)
    assert (tmp_path / "ran").exists()


def test_the_command_line_compares_a_zip(environments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = untrained("MaskablePPO", environments[False])
    model.save("model.zip")
    words = ["schedulers=[fifo_backfill,mine:model.zip]", *WORDS, "name=run", "plots=false"]
    assert main(["compare", *words, "trust=true", "tensorboard=false", "workers=1"]) == 0
    table = pd.read_csv("runs/run/table.csv", index_col="scheduler")
    assert table["mean_jct"]["mine"] == pytest.approx(mean_jct(model))
    with pytest.raises(CheckpointError, match=r"in Python overrides=\['trust=true'\], or load\(.*trust=True"):
        mean_jct("mine:model.zip")
    assert mean_jct("mine:model.zip", "trust=true") == mean_jct(model)
    assert mean_jct(ringyard_agents.load("model.zip", environments[False], trust=True)) == mean_jct(model)


def test_bad_models_are_refused_before_anything_runs(environments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = untrained("PPO", environments[True])
    with pytest.raises(CheckpointError, match="PPO cannot act in this environment: its observation_space"):
        ringyard_agents.compare(["fifo_backfill", model], experiment="sharing")
    with pytest.raises(ConfigurationError, match="does not say which environment it is for"):
        ringyard_agents.load(model)
    for nothing in (5, stable_baselines3.PPO):
        with pytest.raises(CheckpointError, match="expected a model of Stable-Baselines3, a torch module"):
            ringyard_agents.load(nothing, environments[False])
    (tmp_path / "model.zip").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="is not a model of Stable-Baselines3 or sb3-contrib"):
        ringyard_agents.load("model.zip", environments[False], trust=True)
    with pytest.raises(CheckpointError, match=r"there is no checkpoint none\.zip"):
        ringyard_agents.compare(["mine:none.zip"], **SMALL)


class Forgetful:
    """A model with a `predict` that returns no state."""

    def predict(self, observation, state=None, deterministic=True):
        return np.array([0])


def fails(observation, mask):
    raise LookupError("no such weight")


@pytest.mark.parametrize(
    ("model", "error", "said"),
    [
        (Forgetful(), CheckpointError, r"predict returned array.*expected the pair \(actions, state\)"),
        (fails, PluginError, "LookupError: no such weight"),
        (Descending(1), CheckpointError, "expected a logit per action"),
    ],
)
def test_errors_of_a_model_name_it(model, error, said):
    own = getattr(model, "__name__", type(model).__name__)
    for label, given in ((own, model), ("mine", {"mine": model})):
        with pytest.raises(error, match=f"^{label}: .*{said}"):
            mean_jct(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"": first_valid}, "schedulers has the label ''; expected 1 to 60 printable characters"),
        ({"a/b": "fifo"}, "schedulers has the label 'a/b'"),
        ("none.zip", r"has 'none.zip': there is no such file; expected .* such as mine:none.zip"),
        ("runs/a/agent.safetensors", "there is no such file"),
        ("here.zip", r"has 'here.zip': give it a label; expected .* such as mine:here.zip"),
    ],
)
def test_names_that_are_none_say_what_to_type(given, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.zip").touch()
    with pytest.raises(ConfigurationError, match=said):
        mean_jct(given)


@pytest.mark.parametrize("answer", [None, 0.5, 10**6, "wait", [0, 1]])
def test_an_answer_that_is_no_action_is_refused(answer):
    def wrong(observation, mask):
        return answer

    with pytest.raises(ActionError, match=r"wrong: .*expected an integer from 0 to"):
        mean_jct(wrong)
