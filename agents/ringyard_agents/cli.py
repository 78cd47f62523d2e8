"""The `ringyard` command: which commands there are, their words, what `--help` and the shell's TAB say."""

import io
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Annotated

from ringyard_agents.command_line import BAD_INPUT, Arguments, exit_code
from ringyard_agents.hydra_command import run_hydra

__all__ = ["COMMANDS", "HYDRA_COMMANDS", "main"]

#: {command: what it does}, in the order of `ringyard --help`
COMMANDS = {
    "simulate": "one scheduler on one workload: a table and per-job times",
    "compare": "several schedulers on the same workloads: table, plots, CSV, TensorBoard",
    "plot": "finished runs on each other: learning curves, JCTs, profiles: `ringyard plot RUN_OR_FOLDER ...`",
    "watch": "schedulers on one workload, side by side in a page for the browser",
    "tune": "the placement rule and options that suit each scheduler in a setting",
    "train": "train an agent; -m sweeps over seeds and anything else",
    "best": "the best job of a sweep, and the agent to load: `ringyard best SWEEP`",
    "calibrate": "profiles and networks from your own measurements: `ringyard calibrate FILE`",
    "validate": "what ships against your measurements: `ringyard validate CSV` writes a page",
    "reproduce": "a paper's claims beside what is measured: `ringyard reproduce PAPER`",
    "fit": "train the interference predictors IASP and IAPP, and say how wrong they are on unseen jobs",
    "fit-hazard": "learn from a workload's tenants how soon jobs end that have run so long, for `hazard`",
    "traces": "where the public traces are; `ringyard traces NAME FILE` checks a local copy",
}

#: {command whose words are all Hydra's: module:function that takes the config}, imported when it is called
HYDRA_COMMANDS = {
    "simulate": "ringyard_agents.evaluation.simulate:simulate",
    "compare": "ringyard_agents.evaluation.compare:compare",
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
    """Run a command; 0 on success, 2 on bad input, and what `command_line.exit_code` says.

    Args:
        arguments: as on the command line, without the program; None: the process's own.
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
    elif command in _PARSED:
        _PARSED[command](rest)
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
    """Install completion, or answer what may stand at the end of the line in COMP_LINE.

    Hydra completes groups, choices and settings of a command; which commands there are, it does not know.
    """
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


def _plot(words: Sequence[str]) -> None:
    from ringyard.errors import ConfigurationError

    parser = Arguments(
        prog="ringyard plot",
        description="Plots of finished runs, several on each other. Training runs: learning curves, a band"
        " over the seeds of runs that differ in nothing else, baselines as lines. Comparisons: distribution"
        " of job completion times and what the mean JCT is made of, for each world; performance profile and"
        " interquartile means, over all of them.",
    )
    parser.add_argument(
        "places", nargs="+", metavar="RUN_OR_FOLDER", help="a run, or a folder with runs, such as a sweep's"
    )
    parser.add_argument("--out", default="plots", help="folder for the plots (%(default)s)")
    parser.add_argument("--format", default="png", choices=("png", "pdf", "svg"), help="(%(default)s)")
    parser.add_argument(
        "--most", type=int, default=12, help="schedulers in a plot, those of the least mean JCT (%(default)s)"
    )
    options = parser.parse_args(words)
    from ringyard.checks import Count, require

    require("--most", options.most, Count)

    from ringyard_agents.report.plots import plot_runs

    files, damaged = plot_runs(options.places, Path(options.out), options.format, options.most)
    for file in files:
        print(f"plot: {file}")
    if damaged:
        raise ConfigurationError(f"the other runs are drawn; {'; '.join(damaged)}")


def _best(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard best",
        description="The best job of a sweep; with several seeds, the best seed of the setting that is best"
        " over seeds.",
    )
    parser.add_argument("sweep", metavar="SWEEP", help="its folder, or its name= (a folder inside runs/)")
    parser.add_argument(
        "--folder", action="store_true", help="print nothing but the job's folder, for scripts"
    )
    options = parser.parse_args(words)
    given = Path(options.sweep).expanduser()

    from ringyard_agents.runs.sweep_table import print_best

    print_best(given if given.is_dir() else Path("runs", options.sweep), options.folder)


def _calibrate(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard calibrate",
        description="Profiles, networks and interconnects from measurements, with errors on held-out rows.",
    )
    parser.add_argument(
        "place",
        metavar="FILE",
        help="a CSV: model, gpu_type, placement, batch, seconds and more (docs/calibration.md)",
    )
    parser.add_argument("--out", default="calibrated", help="folder for the yamls (%(default)s)")
    parser.add_argument(
        "--network", default="own", help="name of the network, if rows name none (%(default)s)"
    )
    parser.add_argument("--interconnect", default="own", help="and of what is inside a server (%(default)s)")
    parser.add_argument(
        "--gradient-bytes",
        action="append",
        default=[],
        metavar="NAME=BYTES",
        help="of a model that has no profile: 4 bytes x parameters in fp32",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace yamls of another hand, too")
    options = parser.parse_args(words)

    from ringyard_agents.calibration.command import calibrate

    links = (options.network, options.interconnect)
    calibrate(options.place, options.out, *links, options.gradient_bytes, options.overwrite)


def _validate(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard validate",
        description="Compare what ships with your measurements.",
    )
    parser.add_argument(
        "place",
        metavar="CSV",
        help="a tidy CSV, or a folder of them (docs/calibration.md)",
    )
    parser.add_argument(
        "--out", default="validation", help="folder for the page and its images (%(default)s)"
    )
    parser.add_argument(
        "--performance", default="composed", help="performance model, of conf/performance (%(default)s)"
    )
    parser.add_argument("--network", help="between servers, of conf/network; default: as each set says")
    parser.add_argument("--interconnect", help="inside servers, of conf/interconnect; likewise")
    options = parser.parse_args(words)

    from ringyard_agents.validation.report import validate

    links = {"network": options.network, "interconnect": options.interconnect}
    given = {name: leaf for name, leaf in links.items() if leaf is not None}
    print(f"page: {validate(options.place, options.out, options.performance, given)}")


def _reproduce(words: Sequence[str]) -> None:
    from ringyard.checks import require
    from ringyard.config_folder import config_files
    from ringyard.errors import ConfigurationError

    parser = Arguments(
        prog="ringyard reproduce",
        description="Run a paper's setting and print its claims beside what is measured.",
    )
    papers = ", ".join(config_files("reproduction"))
    parser.add_argument("paper", metavar="PAPER", nargs="?", help=f"one of {papers}")
    parser.add_argument("--seeds", type=int, help="workloads (default: each paper's own, 10 or more)")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    if words[:1] == ["agents"]:
        raise ConfigurationError(
            "agents: `python -m tools.agents` trains and judges them, in a checkout of the repository"
        )
    if "--all" in words or any(word.startswith("--out") for word in words):
        raise ConfigurationError(
            "--all, --out: `python -m tools.reproduction` writes the page of papers, in a checkout of the"
            " repository"
        )
    options = parser.parse_args(words)
    if options.paper is None:
        parser.error(f"name a paper: {papers}")
    require("--seeds", options.seeds, Annotated[int, "[2, 1000000]"] | None)
    require("--workers", options.workers, Annotated[int, "[1, 10000]"] | None)

    from ringyard_agents.reproduction.run import reproduce_paper

    reproduce_paper(options.paper, options.seeds, options.workers)


def _fit(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard fit",
        description="Train IASP and IAPP on pairs of jobs that share a GPU; prints the error on unseen jobs.",
    )
    parser.add_argument(
        "--data", help="folder of measured profiles (Gavel's pairs); default: simulated pairs"
    )
    parser.add_argument("--out", help="write the weights to this .npz file")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    options = parser.parse_args(words)

    from ringyard.checks import require
    from ringyard_agents.config.schema import Seed

    require("--seed", options.seed, Seed)

    from ringyard_agents.predictors.fit_interference import fit_interference

    fit_interference(options.data, options.out, options.seed)


def _traces(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard traces",
        usage="ringyard traces [-h] | ringyard traces NAME FILE",
        description="Without words: where each public trace is, and its licence. NAME FILE: what a local"
        " copy holds.",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="of a trace, as workload=NAME: helios, philly, pai; csv: your own file",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="the copy: a CSV, or what the trace is published as, maybe .gz",
    )
    options = parser.parse_args(words)
    if (options.name is None) != (options.file is None):
        parser.error(f"{options.name} wants a FILE behind it: ringyard traces NAME FILE")

    from ringyard_agents.traces import list_traces, report_trace

    if options.name is None:
        list_traces()
    else:
        report_trace(options.name, options.file)


_PARSED: dict[str, Callable[[Sequence[str]], None]] = {
    "plot": _plot,
    "best": _best,
    "calibrate": _calibrate,
    "validate": _validate,
    "reproduce": _reproduce,
    "fit": _fit,
    "traces": _traces,
}
