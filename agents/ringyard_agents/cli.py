"""The `ringyard` command line: its commands with their arguments, and `--help`."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import yaml

from ringyard_agents.command_line import BAD_INPUT, Arguments, exit_code, fill
from ringyard_agents.hydra_command import run_hydra

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # every command waits for it
#: content of commands.yaml
COMMANDS: dict[str, Any] = yaml.load(Path(__file__).with_name("commands.yaml").read_text(), Loader=_LOADER)

#: {command that takes Hydra overrides: module:function that takes the config}
HYDRA_COMMANDS = {name: one["function"] for name, one in COMMANDS.items() if "arguments" not in one}

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
        lines = [fill(f"  {name:13}{one['summary']}", " " * 15) for name, one in COMMANDS.items()]
        usage = Path(__file__).with_name("usage.txt").read_text()
        print(usage.format(commands="\n".join(lines)), end="")
        return 0 if words else BAD_INPUT
    command, *rest = words
    if {"-V", "--version"} & {*words}:
        import ringyard

        print(f"ringyard {ringyard.__version__}")
    elif command in HYDRA_COMMANDS:
        run_hydra(command, COMMANDS[command]["summary"], HYDRA_COMMANDS[command], rest)
    elif command in COMMANDS:
        _run_parsed(command, rest)
    else:
        from ringyard.checks import suggest
        from ringyard.renamed import explain_renamed

        unknown = f"unknown command {command!r}; expected {suggest(command, COMMANDS)}"
        raise ConfigurationError(explain_renamed("commands", command) or unknown)
    return 0


def _run_parsed(command: str, words: Sequence[str]) -> None:
    """Run a command without Hydra settings, as commands.yaml describes it."""
    from ringyard.checks import require

    os.getcwd()  # raises if the folder was removed, where libraries end the process
    described = COMMANDS[command]
    parser = Arguments(prog=f"ringyard {command}", description=described["description"])
    ranges: dict[str, Any] = {}
    for name, options in described["arguments"].items():
        others = {key: value for key, value in options.items() if key != "range"}
        if "range" in options:
            number: Any = Annotated[int, options["range"]]
            ranges[name] = number if "default" in options else number | None
            others["type"] = int
        parser.add_argument(name, **others)
    given = vars(parser.parse_args(words))
    for name, annotation in ranges.items():
        require(name, given[name.strip("-").replace("-", "_")], annotation)
    module, _, function = described["function"].partition(":")
    getattr(import_module(module), function)(**given)
