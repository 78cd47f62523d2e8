"""What `--help` says, and that nobody waits for it."""

import importlib
import re
import subprocess
import sys

import pytest

from conftest import CONF, names
from ringyard_agents.cli import main
from ringyard_agents.commands import COMMANDS, OF_CONFIGS
from ringyard_agents.commands.yaml_comments import said_by, settings_of
from ringyard_agents.settings import SETTINGS

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
    folder = CONF.parent / "agents/ringyard_agents/commands"
    for command in COMMANDS:
        assert (folder / f"{command}.py").is_file() != (command in OF_CONFIGS)
    for place in OF_CONFIGS.values():
        module, _, name = place.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
    assert set(SETTINGS) == {*OF_CONFIGS, "train"} <= set(COMMANDS)


def said(capsys, *words, code=0):
    assert main(words) == code
    out, error = capsys.readouterr()
    return out if code == 0 else error


@pytest.mark.parametrize("command", SETTINGS)
def test_a_page_fits_a_screen_and_has_every_setting(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "100")
    page = said(capsys, command, "--help")
    lines = page.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    tops = {name.partition(".")[0] for name in SETTINGS[command]}
    shown = {line.split("=")[0].partition(".")[0].strip() for line in lines if line.startswith("  ")}
    shown |= {word.partition("=")[0] for line in lines for word in line.split()}
    assert tops <= shown


@pytest.mark.parametrize("columns", ["60", "100", "200"])
@pytest.mark.parametrize("command", SETTINGS)
def test_no_statement_is_cut_in_its_middle(capsys, monkeypatch, command, columns):
    monkeypatch.setenv("COLUMNS", columns)
    _, _, page = said(capsys, command, "--help").partition("says all of it:\n")
    rows = page.partition("\n\n")[0]
    for one in settings_of(CONF / f"{command}.yaml"):
        row = re.search(rf"^  {re.escape(one.name)}=.*\n(?: {{30,}}.*\n)*", f"{rows}\n", re.MULTILINE)
        told = " ".join(row[0][34:].split()).removesuffix(" ...")
        rest = " ".join(one.comment.split()).removeprefix(told)
        assert one.comment.startswith(told[:20])
        assert rest == "" or rest[0] in ";.", (one.name, told, rest)
    assert max(map(len, page.splitlines())) <= max(min(int(columns), 140), 98)


def test_comments_of_the_yamls_are_the_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = said(capsys, "train", "--help")
    assert "decisions between evaluations" in page
    assert "The best agent" in said(capsys, "train", "--help", "evaluate.patience")
    assert "falls linearly to 0" in said(capsys, "train", "--help", "agent.learning_rate")
    assert "virtual cluster" in said(capsys, "simulate", "--help", "workload.reader.where.vc")


def test_a_group_lists_its_choices_and_a_choice_its_yaml(capsys):
    page = said(capsys, "compare", "--help", "workload")
    for name in names("workload"):
        assert f" {name} " in page
    assert "* helios_like" in page
    assert "scheduler=CHOICE" in said(capsys, "simulate", "scheduler=sjf", "--help", "scheduler")
    assert (CONF / "agent/evolution.yaml").read_text() in said(capsys, "train", "--help", "agent=evolution")


def test_an_unknown_topic_is_an_error(capsys):
    error = said(capsys, "train", "--help", "agents", code=2)
    assert error.startswith("ringyard train: --help agents: there is no such group or setting")
    assert len(error.splitlines()) == 1


def test_own_yamls_are_listed(capsys, tmp_path, monkeypatch):
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler" / "mine.yaml").write_text("# My own idea.\n_target_: mine.mine\n")
    monkeypatch.setenv("RINGYARD_CONF", str(tmp_path))
    assert "mine                My own idea." in said(capsys, "simulate", "--help", "scheduler")


def test_settings_are_read_as_they_are_written(tmp_path):
    file = tmp_path / "some.yaml"
    file.write_text(
        "# What it is,\n# and more.\ndefaults:\n  - run\na: [1,\n  2]  # behind\n# above\nb:\n"
        "  c: '#x'  # inside\ntable:\n  x: {y: 1}\nlast:  # a block\n  d: null"
    )
    found = {one.name: (one.default, one.comment) for one in settings_of(file)}
    assert said_by(file) == "What it is, and more."
    assert found == {
        "a": ("[1, 2]", "behind"),
        "b.c": ("'#x'", "inside"),
        "table": ("\nx: {y: 1}", ""),
        "last.d": ("null", ""),
    }
