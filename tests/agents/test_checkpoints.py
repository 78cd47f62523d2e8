"""Agents and run folders on disk: whole, damaged, hostile, pretrained."""

import base64
import contextlib
import itertools
import json
import math
import re
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

from attacks import hostile_agents
from conftest import WORDS_OF, names
from ringyard import Cluster
from ringyard.config_folder import config_folder
from ringyard.errors import CheckpointError, ConfigurationError, RingyardError
from ringyard.mdp.experiments import build_env_config
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.learning.agent_file import (
    AGENT_FILE,
    LAST_FILE,
    agent_parts,
    find_checkpoint,
    load_policy,
    read_agent,
    save_agent,
)
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.resume import read_run_config
from ringyard_agents.runs.run_folder import register_run_folders
from ringyard_agents.runs.sweep import plan_sweep
from ringyard_agents.shipped_agents import shipped_agents
from small_simulations import random_jobs, rings, simulated

#: names of `hostile_agents.doors`, which need a run
DOORS = [
    *("agent", "agent.zip", "last state of a run", "run config", "environments of a run", "tuned options"),
    *("training.json", "config of a plotted run", "run.json", "job.json", "zoo record", "rows of a trace"),
    *("JSON lines of a trace", "measurements", "interference weights", "hazard network", "cached results"),
]


def leaf_text(agent):
    """The text of a leaf of conf/agent."""
    return (config_folder() / "agent" / f"{agent}.yaml").read_text()


def begun(agent):
    """(config, learner in its environment) of a leaf of conf/agent."""
    scores = ["debug=tiny", "num_workloads=8", "action=scores", "observation=live_jobs"]
    discrete = re.search("num_envs|group_relative", leaf_text(agent))
    words = ["debug=tiny_training"] if discrete else scores
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        config = compose("train", [*words, "name=small", f"agent={agent}", *WORDS_OF.get(agent, [])])
    learner = instantiate(config.agent, _convert_="all")
    learner.setup({"one": adapt_env_config(learner, build_env_config(config, 4, 0))}, 0)
    return config, learner


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run folder with a small agent."""
    folder = tmp_path_factory.mktemp("runs")
    config, learner = begun("group_relative")
    save_agent(learner.weights(), agent_parts(config), folder / AGENT_FILE)
    state, numbers = learner.state(), {"best": math.inf, "latest": math.nan, "evaluated": -1, "price": 0.0}
    metadata = {"learner": dict(state.metadata), "evaluation": numbers}
    Checkpoint(state.arrays, metadata).write(folder / LAST_FILE)
    OmegaConf.save(config, folder / "config.yaml", resolve=True)
    return folder


def test_missing_and_damaged_agents_are_named(tmp_path, trained):
    with pytest.raises(CheckpointError, match="no trained agent"):
        find_checkpoint(None, tmp_path)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        find_checkpoint(str(tmp_path / AGENT_FILE))
    assert load_policy(find_checkpoint(str(trained)))[0].act
    whole = (trained / AGENT_FILE).read_bytes()
    rng = np.random.default_rng(0)
    damaged = [b"", b"not a file of ours", whole[:7], whole[: len(whole) // 2], whole + b"more", whole[8:]]
    for _ in range(100):  # one bit each
        changed = bytearray(whole)
        changed[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        damaged.append(bytes(changed))
    for content in damaged:
        (tmp_path / AGENT_FILE).write_bytes(content)
        with pytest.raises(CheckpointError, match=re.escape(AGENT_FILE)):
            load_policy(tmp_path / AGENT_FILE)


@pytest.mark.parametrize(
    "changes",
    [{"evaluate": 3}, {"agent": None}, {"save_minutes": "a"}, {"seed": -1}, {"total_decisions": np.nan}],
)
def test_a_damaged_config_names_the_setting(tmp_path, trained, changes):
    config = OmegaConf.load(trained / "config.yaml")
    file = tmp_path / "config.yaml"
    OmegaConf.save(config, file)
    assert read_run_config(file, ())
    for key, value in changes.items():
        config[key] = value
    OmegaConf.save(config, file)
    with pytest.raises(CheckpointError, match=rf"config.yaml is damaged: {next(iter(changes))}"):
        read_run_config(file, ())
    del config[next(iter(changes))]
    OmegaConf.save(config, file)
    with pytest.raises(CheckpointError, match=r"config.yaml is (damaged|not the config of a training run)"):
        read_run_config(file, ())


def test_weights_that_are_none_of_the_networks_are_refused(tmp_path, trained):
    saved = Checkpoint.read(trained / AGENT_FILE)
    for change in (
        lambda weights: np.full_like(weights, np.nan),
        lambda weights: np.full_like(weights, -np.inf),
        lambda weights: weights.astype(np.float64),
        lambda weights: weights.astype(bool),
        lambda weights: weights.reshape(-1),
    ):
        changed = {name: change(weights) for name, weights in saved.arrays.items()}
        Checkpoint(changed, saved.metadata).write(tmp_path / AGENT_FILE)
        with pytest.raises(CheckpointError, match="these weights are not of this network"):
            load_policy(tmp_path / AGENT_FILE)


def test_an_agent_that_cannot_choose_says_so(tmp_path, trained):
    saved = Checkpoint.read(trained / AGENT_FILE)

    def play(change, parts):
        changed = {name: change(weights) for name, weights in saved.arrays.items()}
        action = saved.metadata["parts"]["action"] | parts
        facts = {**saved.metadata, "parts": {**saved.metadata["parts"], "action": action}}
        Checkpoint(changed, facts).write(tmp_path / AGENT_FILE)
        agent = load_agent(str(tmp_path / AGENT_FILE))
        cluster = Cluster.homogeneous(2, 4)
        simulated(agent, cluster, random_jobs(np.random.default_rng(0), 8, 4), rings())

    play(lambda weights: weights, {})
    with pytest.raises(CheckpointError, match="cannot choose an action"):
        play(lambda weights: np.full_like(weights, 1e38), {})
    with pytest.raises(CheckpointError, match="not of the same training"):
        play(lambda weights: weights, {"num_waiting": 17})


@pytest.mark.parametrize("name", DOORS)
def test_no_file_of_another_person_runs_code(tmp_path, trained, name):
    """Payloads at places of a file that is sound without them, through every way in."""
    door = hostile_agents.doors(trained / AGENT_FILE, trained / "config.yaml")[name]
    found = hostile_agents.attack(door, tmp_path, at_least=20)
    assert found["tried"] > 20
    assert found["ran"] == 0
    if door.refuses:
        assert found["refused"] == found["tried"]


def test_every_way_in_accepts_what_is_sound(tmp_path, trained):
    doors = hostile_agents.doors(trained / AGENT_FILE, trained / "config.yaml")
    assert [*doors] == DOORS
    for name, door in doors.items():
        if name not in ("agent.zip", "environments of a run"):  # the content alone is not sound
            (tmp_path / door.file).write_bytes(door.encode(door.sound))
            door.read(tmp_path / door.file)


def agents_by_learner():
    """Leaves of conf/agent; those with the learner of one before are slow."""
    seen = {None}
    for name in names("agent"):
        learner = next(iter(re.findall(r"^_target_: (\S+)", leaf_text(name), re.MULTILINE)), None)
        yield pytest.param(name, marks=[pytest.mark.slow] if learner in seen else [])
        seen.add(learner)


@contextlib.contextmanager
def little_memory(most=150_000_000):
    """Check that this process does not grow by more bytes meanwhile."""
    status = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    before = int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1])
    yield
    assert 1024 * (int(re.search(r"VmHWM:\s+(\d+)", status.read_text())[1]) - before) < most


@pytest.mark.parametrize("name", [*agents_by_learner(), "zoo:joint"])
def test_no_size_in_an_agent_takes_memory(tmp_path, name):
    """Every value of the configs and of the weights' description, and every argument left out, made huge."""
    if name.startswith("zoo:"):
        sound = Checkpoint.read(shipped_agents()[name.removeprefix("zoo:")])
    else:
        config, learner = begun(name)
        weights = learner.weights()
        facts = {"parts": agent_parts(config), "weights": dict(weights.metadata)}
        sound = Checkpoint(weights.arrays, json.loads(json.dumps(facts)))
    refused, walked = set(), set()
    with little_memory():
        for path, huge in hostile_agents.size_changes(sound.metadata):
            changed = hostile_agents.put(sound.metadata, path, huge)
            walked.add(".".join(map(str, path)))
            Checkpoint(sound.arrays, changed).write(tmp_path / AGENT_FILE)
            with contextlib.suppress(RingyardError):  # sizes that only training uses are no error
                load_policy(tmp_path / AGENT_FILE)
                continue
            refused.add(".".join(map(str, path)))
    described = {f"weights.{one}" for one in hostile_agents.SIZES}
    assert refused >= {"parts.agent", "parts.action", "parts.observation"} | (described & walked)


def zeros(format_bits):
    """300 MB of zeros, compressed to 0.3 MB."""
    compressor = zlib.compressobj(wbits=format_bits)
    return b"".join(compressor.compress(b"0" * 10**6) for _ in range(300)) + compressor.flush()


@pytest.mark.parametrize(
    "name", ["cached results", "rows of a trace", "measurements", "interference weights"]
)
def test_no_compressed_file_takes_memory(tmp_path, trained, name):
    door = hostile_agents.doors(trained / AGENT_FILE, trained / "config.yaml")[name]
    file = tmp_path / door.file
    if name == "cached results":
        packed = base64.b64encode(zeros(15)).decode()
        file.write_text(json.dumps({"key": "key", "result": packed}) + "\n")
    elif name == "interference weights":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.npy", bytes(3 * 10**8))
    else:
        file.write_bytes(zeros(31))
    assert file.stat().st_size < 10**6
    with little_memory(), contextlib.suppress(RingyardError):
        assert not door.read(file)


def test_a_file_cannot_claim_more_than_it_has(tmp_path, trained):
    content = (trained / AGENT_FILE).read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    name = next(one for one in header if one != "__metadata__")
    for change in ({"shape": [10**9, 10**3]}, {"shape": [0, 10**18]}, {"data_offsets": [0, 10**12]}):
        text = json.dumps(header | {name: header[name] | change}).encode()
        (tmp_path / AGENT_FILE).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
        with pytest.raises(CheckpointError, match=AGENT_FILE):
            load_policy(tmp_path / AGENT_FILE)
    (tmp_path / AGENT_FILE).write_bytes((10**12).to_bytes(8, "little") + content[8:])
    with pytest.raises(CheckpointError, match=AGENT_FILE):
        load_policy(tmp_path / AGENT_FILE)


@pytest.mark.parametrize("name", ["+callbacks.x", "hydra.launcher._target_", "agent", "seed"])
def test_no_study_of_another_person_sets_what_the_sweep_does_not_search(tmp_path, monkeypatch, name):
    """Optuna's sweeper makes an override of every parameter of a trial that waits."""
    optuna = pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    register_run_folders()
    value = f"{{_target_:pathlib.Path.touch,self:{tmp_path / 'mark'}}}"
    storage = "sqlite:///study.db"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(study_name="theirs", storage=storage)
        choices = {name: optuna.distributions.CategoricalDistribution([value])}
        waiting = optuna.trial.TrialState.WAITING
        study.add_trial(optuna.trial.create_trial(state=waiting, params={name: value}, distributions=choices))
    words = ["hydra/sweeper=optuna", "hydra.sweeper.study_name=theirs", "agent.learning_rate=choice(0.1,0.2)"]
    with pytest.raises(ConfigurationError, match=re.escape(name)):
        plan_sweep("train", [*words, f"hydra.sweeper.storage={storage}"])
    with pytest.raises(ConfigurationError, match="pickles"):
        plan_sweep("train", [*words, "hydra.sweeper.storage=redis://localhost"])


def test_the_attack_on_agents_would_see_what_runs(tmp_path, trained):
    sound = Checkpoint.read(trained / AGENT_FILE)
    known = {"pathlib.Path.touch", "pandas.read_pickle", "torch.load", f"{hostile_agents.MODULE}.Anything"}
    ran = set()
    with hostile_agents.trap(tmp_path) as ran_something:
        for node in hostile_agents.calls(tmp_path / "mark"):
            if isinstance(node, dict) and str(node.get("_target_")) in known:
                facts = {**sound.metadata, "parts": {**sound.metadata["parts"], "agent": node}}
                (tmp_path / AGENT_FILE).write_bytes(Checkpoint(sound.arrays, facts).to_bytes())
                with pytest.raises(CheckpointError):
                    load_policy(tmp_path / AGENT_FILE, trust=True)
                ran |= {node["_target_"]} if ran_something() else set()
    assert ran == known


def test_agents_may_name_what_the_user_names(tmp_path, trained):
    saved = Checkpoint.read(trained / AGENT_FILE)
    network = saved.metadata["parts"]["agent"]["network"]
    network["_target_"] = "toy_learner.Pointer"
    saved.write(tmp_path / AGENT_FILE)
    with pytest.raises(CheckpointError, match=r"trust=\[toy_learner\.Pointer\]"):
        load_policy(tmp_path / AGENT_FILE)
    for trust in ("toy_learner.Pointer", ["toy_learner.Pointer"], True):
        assert load_policy(tmp_path / AGENT_FILE, trust)[0].act


def test_pretrained_agents_have_todays_names():
    """What is read is what the file says: no table of earlier names stands between."""
    for file in shipped_agents().values():
        assert read_agent(file)[0] == Checkpoint.read(file).metadata["parts"]
        assert load_policy(file)[0].act


@pytest.mark.parametrize(
    ("experiments", "agents"),
    [
        (names("experiment"), ["maskable_mlp"]),
        (["sharing"], names("agent")),
        pytest.param(names("experiment"), names("agent"), marks=pytest.mark.slow),
    ],
)
def test_what_conf_makes_is_trusted(tmp_path, experiments, agents):
    file = tmp_path / "config.yaml"
    for experiment, agent in itertools.product(experiments, agents):
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            config = compose("train", [f"experiment={experiment}", f"agent={agent}", "name=small"])
        OmegaConf.save(config, file, resolve=True)
        assert read_run_config(file, ()) == OmegaConf.to_container(config, resolve=True)
