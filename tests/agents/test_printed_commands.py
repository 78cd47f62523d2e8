"""Commands that commands print: each is run as it is printed, and is about the same environment."""

import ast
import json
import re
import shlex

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from conftest import CONF, ROOT, composed, names
from ringyard.config_folder import USER_FOLDERS_VARIABLE
from ringyard_agents.cli import COMMANDS, main
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS
from ringyard_agents.learning.training_run import TrainingRun
from ringyard_agents.report.tensorboard import record_text
from ringyard_agents.runs.sweep_table import environment_words

PRINTED = re.compile(rf"(ringyard (?:{'|'.join(COMMANDS)}) [^`\n]*)")
FEW = ("seeds=1", "plots=false", "tensorboard=false", "workers=1", "name=compared")


def environment(config):
    """The configs of an environment."""
    return {group: OmegaConf.to_container(config[group], resolve=True) for group in ENVIRONMENT_GROUPS}


def run(words, capsys, code=0):
    """Run a command; (its output, what it says on standard error)."""
    GlobalHydra.instance().clear()
    assert main(list(words)) == code, capsys.readouterr().err
    return capsys.readouterr()


def command_in(text, start):
    """The words of the one printed command that begins with some text."""
    (found,) = {one.strip() for one in PRINTED.findall(text) if one.startswith(start)}
    return shlex.split(found)[1:]


def test_commands_that_training_prints_run_in_its_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [
        *(
            "train",
            "-m",
            "experiment=contention_helios",
            "debug=tiny_training",
            "agent.num_envs=8",
            "seed=0,1",
        ),
        *("cluster.num_servers=3", "total_decisions=200", "evaluate.every=200", "num_threads=1"),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "finish", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
        said = run([*words, "name='a b[1]'"], capsys, 130).err
    (name,) = re.findall("the same command with (.*) continues", said)
    single = command_in(said, "ringyard train")
    said = run(single, capsys).out
    assert "agent: runs/a b[1]/0/agent.safetensors" in said
    (curves,) = re.findall("curves: (.*)", said)
    assert shlex.split(curves)[-1] == "runs/a b[1]"

    said = run(
        ["train", *(word for word in words[2:] if word != "seed=0,1"), "seed=1", "name='a b[2]'"], capsys
    ).out
    assert re.search(r"before learning +[\d,.]+ +[+-]\d+\.\d%", said)
    run([*command_in(said, "ringyard compare"), *FEW, "name=once"], capsys)
    trained, compared = (
        OmegaConf.load(tmp_path / "runs" / where / "config.yaml") for where in ("a b[2]", "once")
    )
    assert environment(compared) == environment(trained)

    said = run([*words, *shlex.split(name)], capsys).out
    assert len(list(tmp_path.glob("runs/*/*/training.json"))) == 2
    said = run(command_in(said, "ringyard best"), capsys).out
    assert "objective over 2 seeds" in said  # of one environment
    run([*command_in(said, "ringyard compare"), *FEW], capsys)
    trained, compared = (
        OmegaConf.load(tmp_path / "runs" / where / "config.yaml") for where in ("a b[1]/1", "compared")
    )
    assert environment(compared) == environment(trained)
    assert trained.seed == 1
    (again,) = re.findall(r"    (ringyard compare .*)", record_text(tmp_path / "runs" / "compared"))
    run(shlex.split(again)[1:], capsys)


def test_the_command_of_a_page_makes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    few = ("schedulers=[fifo_backfill,{a b: {scheduler: sjf@pack}}]", "cluster.num_servers=2")
    run(["watch", "workload.num_jobs=6", *few, "name='a b[1]'"], capsys)
    (page,) = tmp_path.glob("runs/*/watch.html")
    text = page.read_text()
    (command,) = re.findall(r'"command":("(?:[^"\\]|\\.)*")', text)
    page.unlink()
    run(shlex.split(json.loads(command))[1:], capsys)
    assert page.read_text() == text


PAPER = """
title: A paper
setup: small
rule: pack
seeds: 2
cases:
  small:
    overrides: [workload.num_jobs=12, cluster.num_servers=2]
    schedulers:
      Agent:
        train: [debug=tiny_training, total_decisions=200, "evaluate.schedulers=[{a b: {scheduler: sjf}}]"]
      FIFO: {scheduler: fifo}
claims: []
deviations: []
"""


@pytest.mark.slow
def test_a_training_of_a_reproduction_can_be_typed(tmp_path, monkeypatch, capsys):
    (tmp_path / "reproduction").mkdir()
    (tmp_path / "reproduction/mine.yaml").write_text(PAPER)
    monkeypatch.setenv(USER_FOLDERS_VARIABLE, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    said = run(["reproduce", "mine", "--workers=1"], capsys).out
    run(command_in(said, "ringyard train"), capsys)
    (config,) = tmp_path.glob("runs/*/config.yaml")
    trained = OmegaConf.load(config)
    assert (trained.cluster.num_servers, trained.total_decisions) == (2, 200)


@pytest.mark.parametrize(
    "experiment",
    [
        one if one in ("contention", "sharing") else pytest.param(one, marks=pytest.mark.slow)
        for one in names("experiment")
    ],
)
def test_the_environment_of_a_job_can_be_typed(tmp_path, experiment):
    overrides = (f"experiment={experiment}", "failures=rare", "++workload.extra='a b'", "~workload._target_")
    config = composed("train", *overrides, "seed=7")
    OmegaConf.save(config, tmp_path / "config.yaml", resolve=True)
    words = environment_words(tmp_path, (*overrides, "seed=7"))
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert environment(compose("compare", words)) == environment(config)


def test_values_in_printed_commands_are_quoted():
    bare = []
    for file in (one for part in ("agents", "baselines", "envs") for one in (ROOT / part).rglob("*.py")):
        for text in ast.walk(ast.parse(file.read_text())):
            if isinstance(text, ast.JoinedStr):
                before = ""
                for piece in text.values:
                    if isinstance(piece, ast.Constant):
                        before += str(piece.value)
                        continue
                    inside = re.search(r"ringyard [a-z-]+ [^`]*$", before)
                    if inside and not ast.unparse(piece.value).startswith("shlex."):
                        bare.append(f"{file.name}:{text.lineno}")
    assert not bare
