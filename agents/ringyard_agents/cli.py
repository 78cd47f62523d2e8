"""The `ringyard` command: its commands, their words, `--help` and completion by the shell."""

import io
import os
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Annotated, Any

from ringyard_agents.command_line import BAD_INPUT, Arguments, exit_code
from ringyard_agents.hydra_command import run_hydra

#: {command: what it does}, in the order of `ringyard --help`
COMMANDS = {
    "simulate": "one scheduler on one workload: a table and per-job times",
    "compare": "several schedulers on the same workloads: table, plots, CSV, TensorBoard",
    "plot": "finished runs on each other: learning curves, JCTs, profiles: `ringyard plot RUN_OR_FOLDER ...`",
    "watch": "schedulers on one workload, side by side in a page for the browser",
    "tune": "the placement rule and options that suit each scheduler in an experiment",
    "train": "train an agent; -m sweeps over seeds and anything else",
    "best": "the best job of a sweep, and the agent to load: `ringyard best SWEEP`",
    "calibrate": "profiles and networks from your own measurements: `ringyard calibrate FILE`",
    "validate": "what ships against your measurements: `ringyard validate CSV` writes a page",
    "reproduce": "a paper's claims beside what is measured: `ringyard reproduce PAPER`",
    "fit": "train the interference predictors IASP and IAPP, and say how wrong they are on unseen jobs",
    "fit-hazard": "learn from a workload's tenants how soon jobs end that have run so long, for `hazard`",
    "traces": "where the public traces are; `ringyard traces NAME FILE` checks a local copy",
}

#: {command that takes Hydra's overrides: module:function that takes the config}
HYDRA_COMMANDS = {
    "simulate": "ringyard_agents.evaluation.simulate:simulate",
    "compare": "ringyard_agents.evaluation.compare:compare_command",
    "watch": "ringyard_agents.watching.watch:watch",
    "tune": "ringyard_agents.evaluation.tune:tune",
    "train": "ringyard_agents.learning.train:train",
    "fit-hazard": "ringyard_agents.predictors.fit_hazard:fit_hazard",
}

_USAGE = """usage: ringyard COMMAND [OVERRIDE ...]

commands:
{commands}

Overrides are Hydra's: ringyard simulate scheduler=sjf workload=csv workload.path=jobs.csv
`ringyard COMMAND --help` lists a command's settings, `ringyard COMMAND --cfg job` prints them.
RINGYARD_CONF (environment) names folders of your own yamls, as mine/scheduler/NAME.yaml (docs/schedulers.md).
docs/metrics.md explains every column of the tables.
Words complete by TAB after eval "$(ringyard -sc install=bash)", for instance in ~/.bashrc.
"""


_COMPLETION = ("-sc", "--shell-completion")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code, as `command_line.exit_code` says.

    Args:
        arguments: as on the command line, without the program; None: those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = words[:1] if words and words[0] in COMMANDS else []
    return exit_code(" ".join(["ringyard", *known]), lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    from ringyard.errors import ConfigurationError

    if not words or words[0] in ("-h", "--help"):
        print(_usage(), end="")
        return 0 if words else BAD_INPUT
    command, *rest = words
    if command in _COMPLETION:
        _complete(rest)
    elif command in HYDRA_COMMANDS:
        run_hydra(command, COMMANDS[command], HYDRA_COMMANDS[command], rest)
    elif command in _PARSED_COMMANDS:
        run, does, arguments = _PARSED_COMMANDS[command]
        parser = Arguments(prog=f"ringyard {command}", description=does)
        for name, about in arguments.items():
            parser.add_argument(name, **about)
        run(parser.parse_args(rest))
    else:
        raise ConfigurationError(f"unknown command {command!r}; expected one of {', '.join(COMMANDS)}")
    return 0


def _usage() -> str:
    lines = [
        textwrap.indent(does, " " * 13).replace(" " * 13, f"  {command:11}", 1)
        for command, does in COMMANDS.items()
    ]
    return _USAGE.format(commands="\n".join(lines))


def _complete(words: Sequence[str]) -> None:
    """Install completion, or print completions of the line in COMP_LINE: Hydra's, and of commands."""
    from ringyard.errors import ConfigurationError

    action, _, shell = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if action not in ("install", "uninstall", "query") or shell not in ("bash", "zsh", "fish"):
        raise ConfigurationError(
            f"{' '.join([_COMPLETION[0], *words])}: expected install, uninstall or query of bash, zsh or"
            f" fish;"
            ' such as eval "$(ringyard -sc install=bash)" in ~/.bashrc'
        )
    command = next(iter(HYDRA_COMMANDS))  # installing is the same for each
    if action == "query":
        line = os.environ.get("COMP_LINE", "")
        program, *said = line.split() or [""]
        end = [""] if line.endswith(" ") else []
        if not said or (len(said) == 1 and not end):
            print(" ".join(one for one in COMMANDS if not said or one.startswith(said[0])))
            return
        command, *rest = said
        os.environ["COMP_LINE"] = " ".join([program, *rest, *end])
    if command not in HYDRA_COMMANDS:
        return
    with redirect_stderr(io.StringIO()), suppress(Exception, SystemExit):  # TAB shows no errors
        run_hydra(command, "", HYDRA_COMMANDS[command], [_COMPLETION[0], *words])


def _plot(given: Namespace) -> None:
    from ringyard.checks import PositiveInt, require
    from ringyard.errors import ConfigurationError

    require("--most", given.most, PositiveInt)

    from ringyard_agents.report.plots import plot_runs

    files, damaged = plot_runs(given.places, Path(given.out), given.format, given.most)
    for file in files:
        print(f"plot: {file}")
    if damaged:
        raise ConfigurationError(f"the other runs are drawn; {'; '.join(damaged)}")


def _best(given: Namespace) -> None:
    from ringyard_agents.runs.sweep_table import print_best

    sweep = Path(given.sweep).expanduser()
    print_best(sweep if sweep.is_dir() else Path("runs", given.sweep), given.folder)


def _calibrate(given: Namespace) -> None:
    from ringyard_agents.calibration.command import calibrate

    links = (given.network, given.interconnect)
    calibrate(given.place, given.out, *links, given.gradient_bytes, given.overwrite)


def _validate(given: Namespace) -> None:
    from ringyard_agents.validation.report import validate

    links = {"network": given.network, "interconnect": given.interconnect}
    chosen = {name: leaf for name, leaf in links.items() if leaf is not None}
    print(f"page: {validate(given.place, given.out, given.performance, chosen)}")


def _reproduce(given: Namespace) -> None:
    from ringyard.checks import require

    require("--seeds", given.seeds, Annotated[int, "[2, 1000000]"] | None)
    require("--workers", given.workers, Annotated[int, "[1, 10000]"] | None)

    from ringyard_agents.reproduction.run import reproduce_paper

    reproduce_paper(given.paper, given.seeds, given.workers)


def _fit(given: Namespace) -> None:
    from ringyard.checks import require
    from ringyard_agents.config.schema import Seed

    require("--seed", given.seed, Seed)

    from ringyard_agents.predictors.fit_interference import fit_interference

    fit_interference(given.data, given.out, given.seed)


def _traces(given: Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from ringyard.errors import ConfigurationError
    from ringyard.workloads.sources import SOURCES, describe_trace

    def show(title: str, rows: Mapping[str, str]) -> None:
        table = Table(title=title, show_header=False, title_justify="left")
        for name, value in rows.items():
            table.add_row(name, value)
        Console().print(table)

    if given.name is None:
        for source in SOURCES:
            said = {"release": source.url, "file": source.file, "licence": source.licence}
            show(f"workload={source.name}", {**said, "GPU jobs": f"{source.jobs:,}", "note": source.note})
        print("check a local copy: ringyard traces NAME FILE")
        return
    if given.file is None:
        raise ConfigurationError(f"{given.name} wants a FILE behind it: ringyard traces NAME FILE")
    show(f"{given.name}: {given.file}", describe_trace(given.name, given.file))


#: {command: (what runs it, what it does, {word: as `add_argument` takes it})}
_PARSED_COMMANDS: dict[str, tuple[Callable[[Namespace], None], str, dict[str, dict[str, Any]]]] = {
    "plot": (
        _plot,
        "Plots of finished runs, several on each other. Training runs: learning curves, a band over seeds,"
        " baselines as lines. Comparisons: distribution of job completion times and what the mean JCT is made"
        " of, for each world; performance profile and interquartile means, over all of them.",
        {
            "places": dict(nargs="+", metavar="RUN_OR_FOLDER", help="a run, or a folder of runs"),
            "--out": dict(default="plots", help="folder for the plots (%(default)s)"),
            "--format": dict(default="png", choices=("png", "pdf", "svg"), help="(%(default)s)"),
            "--most": dict(
                type=int, default=12, help="schedulers in a plot, those of the least mean JCT (%(default)s)"
            ),
        },
    ),
    "best": (
        _best,
        "The best job of a sweep; with several seeds, the best seed of the setting that is best over seeds.",
        {
            "sweep": dict(metavar="SWEEP", help="its folder, or its name= (a folder inside runs/)"),
            "--folder": dict(action="store_true", help="print nothing but the job's folder, for scripts"),
        },
    ),
    "calibrate": (
        _calibrate,
        "Profiles, networks and interconnects from measurements, with errors on held-out rows.",
        {
            "place": dict(metavar="FILE", help="a CSV of measurements (docs/calibration.md: its columns)"),
            "--out": dict(default="calibrated", help="folder for the yamls (%(default)s)"),
            "--network": dict(default="own", help="name of the network, if rows name none (%(default)s)"),
            "--interconnect": dict(default="own", help="and of what is inside a server (%(default)s)"),
            "--gradient-bytes": dict(
                action="append",
                default=[],
                metavar="NAME=BYTES",
                help="of a new model: 4 bytes x parameters in fp32",
            ),
            "--overwrite": dict(action="store_true", help="replace yamls of another hand, too"),
        },
    ),
    "validate": (
        _validate,
        "Compare what ships with your measurements.",
        {
            "place": dict(metavar="CSV", help="a tidy CSV, or a folder of them (docs/calibration.md)"),
            "--out": dict(default="validation", help="folder for the page and its images (%(default)s)"),
            "--performance": dict(default="composite", help="model of conf/performance (%(default)s)"),
            "--network": dict(help="between servers, of conf/network; default: as each set says"),
            "--interconnect": dict(help="inside servers, of conf/interconnect; likewise"),
        },
    ),
    "reproduce": (
        _reproduce,
        "Run a paper's setting and print its claims beside what is measured.",
        {
            "paper": dict(
                metavar="PAPER",
                nargs="?",
                default="",
                help="a yaml of conf/reproduction, such as ones; without it, an error names them all",
            ),
            "--seeds": dict(type=int, help="workloads (2 or more; default: each paper's own, 10 or more)"),
            "--workers": dict(type=int, help="processes (default: one per core)"),
        },
    ),
    "fit": (
        _fit,
        "Train IASP and IAPP on pairs of jobs that share a GPU; prints the error on unseen jobs.",
        {
            "--data": dict(help="folder of measured profiles (Gavel's pairs); default: simulated pairs"),
            "--out": dict(help="write the weights to this .npz file"),
            "--seed": dict(type=int, default=0, help="(%(default)s)"),
        },
    ),
    "traces": (
        _traces,
        "Without words: where each public trace is, and its licence. NAME FILE: what a local copy holds.",
        {
            "name": dict(
                metavar="NAME", nargs="?", help="one that `ringyard traces` lists; csv: your own file"
            ),
            "file": dict(
                metavar="FILE", nargs="?", help="a CSV, or what the trace is published as, maybe .gz"
            ),
        },
    ),
}
