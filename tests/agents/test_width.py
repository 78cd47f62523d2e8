"""Pages, tables and progress at 80 columns; every unknown key with a near name is told that name."""

import csv
import io
import re
import sys

import pytest
import yaml
from omegaconf import OmegaConf
from rich.console import Console

from conftest import composed
from ringyard.errors import ConfigurationError
from ringyard_agents.cli import COMMANDS, HYDRA_COMMANDS, main
from ringyard_agents.command_line import fit_terminal
from ringyard_agents.config.schema import check_settings
from ringyard_agents.hydra_command import _choices, _read, wrap_yaml
from ringyard_agents.report.tables import print_note, print_table

#: {command: its groups, also those without a choice}
GROUPS = {command: list(_read(command)[0]) for command in HYDRA_COMMANDS}
EVERY_GROUP = list(dict.fromkeys(group for own in GROUPS.values() for group in own))
FAST = ["workload.num_jobs=8", "plots=false", "tensorboard=false"]


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def lines_of(capsys, *words, code=0):
    """Lines that a command prints; those on standard error if it fails."""
    assert main(words) == code
    said = capsys.readouterr()
    return said.out.splitlines() if code == 0 else said.err.splitlines()


def too_wide(lines):
    return [one for one in lines if len(one) > 80]


def test_every_page_of_help_fits(capsys):
    pages = [["--help"], *([command, "--help"] for command in COMMANDS)]
    for command, groups in GROUPS.items():
        settings = [key for key in yaml.safe_load(_read(command)[1]) if key not in groups]
        pages += [[command, "--help", topic] for topic in (*groups, *settings)]
    for group in EVERY_GROUP:
        pages += [["train", "--help", f"{group}={choice}"] for choice in _choices(group)]
    assert len(pages) > 200
    wide = []
    for words in pages:
        lines = lines_of(capsys, *words)
        assert lines, words
        # a path is not broken, nor is a word
        wide += [(words, one) for one in too_wide(lines) if " " in one.strip().removeprefix("# ")]
    assert not wide


@pytest.mark.parametrize("group", EVERY_GROUP)
def test_wrapped_yamls_say_the_same(group):
    for file in _choices(group).values():
        text = file.read_text()
        wrapped = wrap_yaml(text)
        assert yaml.safe_load(wrapped) == yaml.safe_load(text), file
        before, after = (sorted(one.replace("#", " ").split()) for one in (text, wrapped))
        assert before == after, file  # no word is lost


def test_an_error_fits_a_terminal_and_stays_one_line_in_a_pipe(capsys, monkeypatch):
    words = ("compare", "experiment=cpu_gpu", "experiments=[cpu_gpu,sharing]", "name=none")
    (line,) = lines_of(capsys, *words, code=2)
    assert len(line) > 80
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    lines = lines_of(capsys, *words, code=2)
    assert len(lines) > 1
    assert not too_wide(lines)
    assert [lines[0][0], *(one[:2] for one in lines[1:])] == ["r", *["  "] * (len(lines) - 1)]
    assert " ".join(one.strip() for one in lines) == line
    command = f"`ringyard train resume={'x' * 60} name=y`"
    fitted = fit_terminal(f"ringyard train: the user's run is there; type {command} or open 'my own runs'")
    assert fitted.splitlines() == [
        "ringyard train: the user's run is there; type",
        f"  {command}",
        "  or open 'my own runs'",
    ]


def near(name):
    """A misspelling: the last but one letter is missing."""
    return name[:-2] + name[-1]


@pytest.mark.parametrize("command", HYDRA_COMMANDS)
def test_misspelt_settings_are_told_the_right_one(command, capsys):
    optional = [group for group, choice in _read(command)[0].items() if choice is None]
    assert {"experiment", "debug"} <= set(optional)
    every = command == "watch"  # all commands have one way to the message
    settings = yaml.safe_load(_read(command)[1]) if every else ()
    for name in (*optional, *(one for one in settings if len(one) > 4)):
        (line,) = lines_of(capsys, command, f"{near(name)}=1", code=2)
        assert line.endswith(f"expected {name}"), line


@pytest.mark.parametrize("command", HYDRA_COMMANDS)
def test_misspelt_settings_that_are_added_are_told_the_right_one(command):
    config = composed(command)
    OmegaConf.set_struct(config, False)
    groups, bodies = _read(command)
    for name in (*groups, *yaml.safe_load(bodies)):
        if len(name) < 6 or "/" in name or "@" in name:
            continue
        with pytest.raises(ConfigurationError, match=f"there is no setting {near(name)}; expected {name}$"):
            check_settings(command, OmegaConf.merge(config, {near(name): 1}))
    check_settings(command, OmegaConf.merge(config, {"mine": 1}))  # for interpolations of users' own yamls


@pytest.mark.parametrize("command", COMMANDS)
def test_misspelt_commands_are_told_the_right_one(command, capsys):
    (line,) = lines_of(capsys, near(command) + "x", code=2)
    assert line.endswith(f"expected {command}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare", "schedulers=[fifoo]"], "expected fifo, perhaps"),
        (["compare", "schedulers=[fifo@consolidat]"], "expected consolidate"),
        (["compare", "schedulers=[fifo,srtf]", "reference=srft"], "expected srtf"),
        (["compare", "schedulers=[mine:zoo:jointt]"], "expected zoo:joint"),
        (["traces", "helio", "x.csv"], "expected helios"),
        (["reproduce", "codda"], "expected coda"),
        (["train", "--help", "experimnt"], "expected experiment"),
        (["train", "experimnt=elastic"], "expected experiment"),
        (["train", "experiment=elastc"], "expected elastic"),
        (["simulate", "scheduler=fifoo"], "expected fifo"),
        (["simulate", "workload=heliso"], "expected helios"),
    ],
)
def test_misspelt_names_are_told_the_right_one(words, expected, capsys):
    (line,) = lines_of(capsys, *words, code=2)
    assert expected in line


@pytest.mark.parametrize("words", [["-V"], ["--version"], *([one, "--version"] for one in COMMANDS)])
def test_the_version_is_printed(capsys, words):
    (line,) = lines_of(capsys, *words)
    assert line.startswith("ringyard ")
    assert line.removeprefix("ringyard ")[0].isdigit()


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    """Runs `ringyard compare` in an empty folder: (lines on standard output, folder)."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        lines = lines_of(capsys, "compare", "seeds=2", "workers=1", "name=run", *FAST, *words)
        return lines, tmp_path / "runs" / "run"

    return run


def test_the_comparison_at_80_columns_has_its_main_numbers(compared):
    label = "a_long_label_of_a_scheduler_that_somebody_has_tuned"
    schedulers = f"schedulers=[fifo_backfill,srtf,{{{label}: {{scheduler: sjf@pack}}}}]"
    lines, folder = compared(schedulers)
    lines = lines[next(i for i, one in enumerate(lines) if one.startswith("means over")) :]
    table = lines[: next(i for i, one in enumerate(lines) if one.startswith("* best"))]
    assert not too_wide(table)
    text = " ".join(" ".join(table).split())
    for header in ("scheduler", "mean JCT", "vs fifo_backfill", "gap to bound"):
        assert all(word in text for word in header.split()), header
    assert "p99" not in text
    row = next(one for one in table if one.strip().startswith("srtf"))
    assert "*" in row
    assert row.count("[") == 2
    assert "all columns are in table.csv and table.md" in lines
    columns = next(csv.reader((folder / "table.csv").read_text().splitlines()))
    assert {"p99_jct", "worst_fairness", "makespan", "p_holm", "ratio_low", "gap_to_bound"} <= set(columns)


@pytest.mark.parametrize("terminal", [True, False])
def test_notes_and_tables_are_as_narrow_as_the_console(terminal):
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, no_color=True)
    print_note(console, "word " * 40)
    names = [f"column {number}" for number in range(20)]
    print_table(console, "title " * 20, [dict.fromkeys(names, "12,345")], names)
    lines = plain_lines(console.file.getvalue().splitlines())
    assert lines[0].count("word") == 16
    assert not too_wide(lines)


def test_both_files_called_jobs_have_the_same_columns(compared, capsys):
    _, folder = compared("schedulers=[sjf]")
    lines_of(capsys, "simulate", "scheduler=sjf", "name=one", "output.jobs_csv=x/jobs.csv", FAST[0])
    files = (folder / "jobs.csv", folder.parent / "one" / "jobs.csv", folder.parents[1] / "x" / "jobs.csv")
    headers = {tuple(next(csv.reader(file.read_text().splitlines()))) for file in files}
    assert len(headers) == 1


def plain_lines(lines):
    """Lines as a terminal shows them, each step of a progress bar as one."""
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part) for one in lines for part in one.split("\r")]


def test_progress_of_comparisons_fits(compared, monkeypatch):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    lines, _ = compared("schedulers=[fifo_backfill,sjf]")
    shown = plain_lines(lines)
    assert any("4/4 runs" in one for one in shown)
    assert not too_wide(shown)


@pytest.mark.slow
def test_progress_of_training_fits(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    words = ("debug=tiny_training", "total_decisions=1000000000", "num_workloads=64", "name=learnt")
    stop = ("agent.num_envs=8", "evaluate.patience=1", "evaluate.every=200")
    shown = plain_lines(lines_of(capsys, "train", *words, *stop))
    assert any(one.startswith("learning") and "/1,000,000,000 mean_jct" in one for one in shown)
    assert not too_wide(shown)
