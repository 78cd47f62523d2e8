"""What `--help` says, and that nobody waits for it."""

import importlib
import re
import subprocess
import sys

import pytest
import yaml

from conftest import CONF, names
from ringyard_agents.cli import COMMANDS, HYDRA_COMMANDS, main
from ringyard_agents.config.schema import SETTINGS

LARGE = ("torch", "numba", "hydra", "matplotlib", "pandas", "scipy")


@pytest.mark.parametrize("words", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help_imports_nothing_large(words):
    code = (
        "import sys; from ringyard_agents.cli import main; code = main(sys.argv[1:]);"
        f"large = [name for name in {LARGE} if name in sys.modules]; assert not large, large; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: ringyard" in done.stdout


def test_the_table_of_commands_is_complete():
    for place in HYDRA_COMMANDS.values():
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
    assert set(SETTINGS) == set(HYDRA_COMMANDS) <= set(COMMANDS)


def said(capsys, *words, code=0):
    assert main(words) == code
    out, error = capsys.readouterr()
    return out if code == 0 else error


def words_of(text):
    """A text without its line breaks and the signs of comments."""
    return " ".join(text.replace("#", " ").split())


@pytest.mark.parametrize("command", SETTINGS)
def test_a_page_has_every_setting_with_its_comment(capsys, command):
    page = said(capsys, command, "--help")
    for name in SETTINGS[command]:
        top, _, inside = name.partition(".")
        assert re.search(rf"(^|[ @]){inside or top}[:=]", page, re.MULTILINE), name
    comments = re.findall("^[^#].*  (# .*)", (CONF / f"{command}.yaml").read_text(), re.MULTILINE)
    assert comments
    assert all(words_of(one) in words_of(page) for one in comments)


def test_comments_of_the_yamls_are_the_help(capsys):
    page = said(capsys, "train", "--help")
    assert "decisions between evaluations" in page
    assert "the best agent" in said(capsys, "train", "--help", "evaluate.patience")
    assert "decays linearly to 0" in said(capsys, "train", "--help", "agent.learning_rate")
    assert "virtual cluster" in said(capsys, "simulate", "--help", "workload.reader.where.tenant")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_after_help_has_its_page(capsys, command):
    assert said(capsys, "--help", command) == said(capsys, command, "--help") != said(capsys, "--help")


def test_a_group_lists_its_choices_and_a_choice_its_yaml(capsys):
    page = said(capsys, "compare", "--help", "workload")
    for name in names("workload"):
        assert f" {name}: " in page
    assert "* helios_like" in page
    assert "scheduler=CHOICE" in said(capsys, "simulate", "scheduler=sjf", "--help", "scheduler")
    shown = said(capsys, "train", "--help", "agent=evolution")
    assert yaml.safe_load(shown) == yaml.safe_load((CONF / "agent/evolution.yaml").read_text())


def test_an_unknown_topic_is_an_error(capsys):
    error = said(capsys, "train", "--help", "agents", code=2)
    assert error.startswith("ringyard train: --help agents: there is no such group or setting")
    assert len(error.splitlines()) == 1


def test_own_yamls_are_listed(capsys, tmp_path, monkeypatch):
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "mine.yaml").write_text("# My own idea.\n_target_: mine.mine\n")
    monkeypatch.setenv("RINGYARD_CONF", str(tmp_path))
    assert "mine: My own idea." in said(capsys, "simulate", "--help", "scheduler")
