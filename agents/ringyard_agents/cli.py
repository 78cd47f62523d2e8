"""The `ringyard` command."""

import sys
import textwrap
from collections.abc import Sequence

from ringyard_agents.command_line import BAD_INPUT, exit_code
from ringyard_agents.commands import COMMANDS, completion, run

__all__ = ["main"]

_USAGE = """usage: ringyard COMMAND [OVERRIDE ...]

commands:
{commands}

Overrides are Hydra's: ringyard simulate scheduler=sjf workload=csv workload.path=jobs.csv
`ringyard COMMAND --help` lists a command's settings, `ringyard COMMAND --cfg job` prints them.
RINGYARD_CONF (environment) names folders of your own yamls, as mine/scheduler/NAME.yaml (docs/schedulers.md).
docs/metrics.md explains every column of the tables.
Words complete by TAB after eval "$(ringyard -sc install=bash)", for instance in ~/.bashrc.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 on success, 2 on bad input, and what `command_line.exit_code` says.

    Args:
        arguments: as on the command line, without the program; None: the process's own.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = words[:1] if words and words[0] in COMMANDS else []
    return exit_code(" ".join(["ringyard", *known]), lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(_usage(), end="")
        return 0 if words else BAD_INPUT
    command, *rest = words
    if command in completion.FLAGS:
        completion.complete(rest, COMMANDS, run)
        return 0
    if command not in COMMANDS:
        from ringyard.errors import ConfigurationError

        raise ConfigurationError(f"unknown command {command!r}; expected one of {', '.join(COMMANDS)}")
    run(command, rest)
    return 0


def _usage() -> str:
    lines = [
        textwrap.indent(does, " " * 13).replace(" " * 13, f"  {command:11}", 1)
        for command, does in COMMANDS.items()
    ]
    return _USAGE.format(commands="\n".join(lines))
