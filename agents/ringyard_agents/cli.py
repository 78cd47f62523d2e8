"""The `ringyard` command line: its commands with their arguments, `--help` and shell completion."""

import io
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Annotated, Any

from ringyard_agents.command_line import BAD_INPUT, Arguments, exit_code
from ringyard_agents.help_page import fill
from ringyard_agents.hydra_command import run_hydra

#: {command: description}, in the order of `ringyard --help`
COMMANDS = {
    "simulate": "run one scheduler on one workload: table of metrics, times of each job",
    "compare": "compare schedulers and agents on the same workloads: tables, CSV, plots, TensorBoard",
    "plot": "plot finished runs together (learning curves, JCTs, profiles): `ringyard plot RUN ...`",
    "watch": "show the schedules of several schedulers side by side, in a page for the browser",
    "tune": "search the best placement rule and options of each scheduler in an environment",
    "train": "train an agent (-m runs a sweep over seeds or other settings)",
    "best": "print the best job of a sweep and its agent: `ringyard best SWEEP`",
    "calibrate": "fit profiles and networks to your own measurements: `ringyard calibrate FILE`",
    "validate": "compare the shipped profiles with your measurements: `ringyard validate CSV`",
    "reproduce": "run a paper's experiments and compare results with its claims: `ringyard reproduce PAPER`",
    "fit": "train the interference predictors IASP and IAPP on measured pairs: `ringyard fit FILE`",
    "fit-hazard": "fit the remaining run times of each tenant's jobs, for the scheduler `hazard`",
    "traces": "list public traces (`ringyard traces NAME FILE` says what a file holds)",
}

#: {command that takes Hydra overrides: module:function that takes the config}
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

Overrides have Hydra's syntax:
  ringyard simulate scheduler=sjf workload=csv workload.path=jobs.csv
`ringyard COMMAND --help` lists the settings of a command,
`ringyard COMMAND --cfg job` prints their values.
`ringyard --version` prints the version.
The variable RINGYARD_CONF names folders of your own yamls (docs/schedulers.md).
docs/metrics.md explains the columns of the tables.
Tab completion, such as in ~/.bashrc: eval "$(ringyard -sc install=bash)"
"""


_COMPLETION = ("-sc", "--shell-completion")
_HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command (None: of this process's words) and return its exit code (`command_line.exit_code`)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = words[:1] if words and words[0] in COMMANDS else []
    return exit_code(" ".join(["ringyard", *known]), lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    from ringyard.errors import ConfigurationError

    if len(words) > 1 and words[0] in _HELP:
        words = [words[1], "--help", *words[2:]]
    if not words or words[0] in _HELP:
        lines = [fill(f"  {command:11}{description}", " " * 13) for command, description in COMMANDS.items()]
        print(_USAGE.format(commands="\n".join(lines)), end="")
        return 0 if words else BAD_INPUT
    command, *rest = words
    if {"-V", "--version"} & {*words}:
        import ringyard

        print(f"ringyard {ringyard.__version__}")
    elif command in _COMPLETION:
        _complete(rest)
    elif command in HYDRA_COMMANDS:
        run_hydra(command, COMMANDS[command], HYDRA_COMMANDS[command], rest)
    elif command in _PARSED_COMMANDS:
        os.getcwd()  # raises if the folder was removed, where libraries end the process
        _PARSED_COMMANDS[command](_parser(command).parse_args(rest))
    else:
        from ringyard.checks import suggest

        raise ConfigurationError(f"unknown command {command!r}; expected {suggest(command, COMMANDS)}")
    return 0


def _complete(words: Sequence[str]) -> None:
    """Install shell completion, or print the completions of the line in COMP_LINE."""
    from ringyard.errors import ConfigurationError

    action, _, shell = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if action not in ("install", "uninstall", "query") or shell not in ("bash", "zsh", "fish"):
        raise ConfigurationError(
            f"{' '.join([_COMPLETION[0], *words])}: expected install=, uninstall= or query= with bash, zsh or"
            ' fish, such as eval "$(ringyard -sc install=bash)" in ~/.bashrc'
        )
    command = next(iter(HYDRA_COMMANDS))  # installing is the same for all of them
    if action == "query":
        line = os.environ.get("COMP_LINE", "")
        program, *typed = line.split() or [""]
        end = [""] if line.endswith(" ") else []
        if not typed or (len(typed) == 1 and not end):
            print(" ".join(one for one in COMMANDS if not typed or one.startswith(typed[0])))
            return
        command, *rest = typed
        os.environ["COMP_LINE"] = " ".join([program, *rest, *end])
    if command not in HYDRA_COMMANDS:
        return
    with redirect_stderr(io.StringIO()), suppress(Exception, SystemExit):  # TAB shows no errors
        run_hydra(command, "", HYDRA_COMMANDS[command], [_COMPLETION[0], *words])


def _plot(given: Namespace) -> None:
    from ringyard.checks import PositiveInt, require
    from ringyard.errors import ConfigurationError

    require("--max-schedulers", given.max_schedulers, PositiveInt)

    from ringyard_agents.report.plots import plot_runs

    files, damaged = plot_runs(given.places, Path(given.out), given.format, given.max_schedulers)
    for file in files:
        print(f"plot: {file}")
    if damaged:
        raise ConfigurationError(f"some runs could not be plotted: {'; '.join(damaged)}")


def _best(given: Namespace) -> None:
    from ringyard_agents.runs.sweep_table import print_best

    sweep = Path(given.sweep).expanduser()
    named = Path("runs", sweep)
    print_best(named if named.is_dir() and not sweep.is_dir() else sweep, given.folder)


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

    from ringyard_agents.predictors.fit_interference import fit_measurements

    fit_measurements(given.file, given.out, given.seed)


def _traces(given: Namespace) -> None:
    from omegaconf import OmegaConf
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    from ringyard.errors import ConfigurationError
    from ringyard.workloads.sources import describe_trace, trace_sources

    def show(title: str, rows: Iterable[Sequence[str]], *header: str) -> None:
        columns = [Column(name, overflow="fold") for name in header or ("", "")]
        table = Table(*columns, title=escape(title), show_header=bool(header), title_justify="left")
        for row in rows:
            table.add_row(*map(escape, row))
        Console().print(table)

    if given.name is None:
        for name, facts in trace_sources().items():
            texts = [(title, f"{fact:,}" if isinstance(fact, int) else fact) for title, fact in facts.items()]
            show(f"workload={name}", texts)
        print("What is understood of a local copy: ringyard traces NAME FILE")
        return
    if given.file is None:
        raise ConfigurationError(
            f"there is no file of {given.name} to check; expected `ringyard traces NAME FILE`"
        )
    for word in given.settings:
        if not word.lstrip("+").startswith("workload.reader.") or "=" not in word:
            raise ConfigurationError(
                f"{word!r} is no setting of a reader; expected workload.reader.NAME=VALUE"
            )
    words = [word.lstrip("+").removeprefix("workload.reader.") for word in given.settings]
    settings: Any = OmegaConf.to_container(OmegaConf.from_dotlist(words))
    found = describe_trace(given.name, given.file, **settings)
    show(f"{given.name}: {given.file}", found.facts.items())
    show("", [(name, *texts) for name, texts in found.columns.items()], "column", "read as", "values")
    if found.left_out:
        show("", found.left_out.items(), "left out", "rows")


#: {command of conf/commands.yaml: function of its arguments}
_PARSED_COMMANDS: dict[str, Callable[[Namespace], None]] = {
    "plot": _plot,
    "best": _best,
    "calibrate": _calibrate,
    "validate": _validate,
    "reproduce": _reproduce,
    "fit": _fit,
    "traces": _traces,
}


def _parser(command: str) -> Arguments:
    """Return the parser of a command's arguments, as conf/commands.yaml describes them."""
    import yaml

    from ringyard.config_folder import config_folder

    described = yaml.safe_load((config_folder() / "commands.yaml").read_text())[command]
    parser = Arguments(prog=f"ringyard {command}", description=described["description"])
    for name, options in described["arguments"].items():
        parser.add_argument(name, **options | ({"type": int} if "type" in options else {}))
    return parser
