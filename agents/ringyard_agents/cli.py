"""The `ringyard` command line: its commands with their arguments, and `--help`."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

from ringyard_agents.command_line import BAD_INPUT, Arguments, exit_code, fill
from ringyard_agents.hydra_command import run_hydra

#: {command: description}, in the order of `ringyard --help`
COMMANDS = {
    "simulate": "run one scheduler on one workload: table of metrics, times of each job",
    "compare": "compare schedulers and agents on the same workloads: tables, CSV, plots, TensorBoard",
    "plot": "plot finished runs together (learning curves, JCTs, profiles): `ringyard plot RUN ...`",
    "watch": "show the schedules of several schedulers side by side, in a page for the browser",
    "leaderboard": "measure schedulers and agents on fixed workloads, and write their rows",
    "judge": "score a file with a scheduler, in a process with limits: `ringyard judge FILE.py`",
    "tune": "search the best placement rule and options of each scheduler in an environment",
    "train": "train an agent (-m runs a sweep over seeds or other settings)",
    "best": "print the best job of a sweep and its agent: `ringyard best SWEEP`",
    "push": "upload an agent with its model card to a model hub, or write both into a folder",
    "load": "copy a pushed agent into a run folder: `ringyard load OWNER/NAME`",
    "export": "write an agent as an ONNX graph: `ringyard export RUN FILE.onnx`",
    "calibrate": "fit profiles and networks to your own measurements: `ringyard calibrate FILE`",
    "validate": "compare the shipped profiles with your measurements: `ringyard validate CSV`",
    "reproduce": "run a paper's experiments and compare results with its claims: `ringyard reproduce PAPER`",
    "traces": "list public traces (`ringyard traces NAME FILE` says what a file holds)",
}

#: {command that takes Hydra overrides: module:function that takes the config}
HYDRA_COMMANDS = {
    "simulate": "ringyard_agents.evaluation.simulate:simulate",
    "compare": "ringyard_agents.evaluation.compare:compare_command",
    "watch": "ringyard_agents.watching.watch:watch",
    "tune": "ringyard_agents.evaluation.tune:tune",
    "train": "ringyard_agents.learning.train:train",
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
"""


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
        lines = [fill(f"  {command:13}{description}", " " * 15) for command, description in COMMANDS.items()]
        print(_USAGE.format(commands="\n".join(lines)), end="")
        return 0 if words else BAD_INPUT
    command, *rest = words
    if {"-V", "--version"} & {*words}:
        import ringyard

        print(f"ringyard {ringyard.__version__}")
    elif command in HYDRA_COMMANDS:
        run_hydra(command, COMMANDS[command], HYDRA_COMMANDS[command], rest)
    elif command in COMMANDS:
        _run_parsed(command, rest)
    else:
        from ringyard.checks import suggest
        from ringyard.renamed import explain_renamed

        unknown = f"unknown command {command!r}; expected {suggest(command, COMMANDS)}"
        raise ConfigurationError(explain_renamed("commands", command) or unknown)
    return 0


def _run_parsed(command: str, words: Sequence[str]) -> None:
    """Run a command without Hydra settings, as conf/commands.yaml describes it."""
    import yaml

    from ringyard.checks import require
    from ringyard.config_folder import config_folder

    os.getcwd()  # raises if the folder was removed, where libraries end the process
    described = yaml.safe_load((config_folder() / "commands.yaml").read_text())[command]
    parser = Arguments(prog=f"ringyard {command}", description=described["description"])
    ranges: dict[str, Any] = {}
    for name, options in described["arguments"].items():
        if "range" in options:
            number: Any = Annotated[int, options.pop("range")]
            ranges[name] = number if "default" in options else number | None
            options["type"] = int
        parser.add_argument(name, **options)
    given = vars(parser.parse_args(words))
    for name, annotation in ranges.items():
        require(name, given[name.strip("-").replace("-", "_")], annotation)
    module, _, function = described["function"].partition(":")
    getattr(import_module(module), function)(**given)
