"""Commands whose settings are Hydra's: composed, checked, run, once or in a sweep."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from ringyard_agents.commands import COMMANDS
from ringyard_agents.commands.help_page import asked_for, help_page

__all__ = ["run_hydra"]


def _as_they_are(words: Sequence[str]) -> Sequence[str]:
    return words


def run_hydra(
    command: str,
    recipe: str,
    words: Sequence[str],
    rewritten: Callable[[Sequence[str]], Sequence[str]] = _as_they_are,
) -> None:
    """Run a command whose settings are Hydra's.

    Args:
        command: has its settings in conf/<command>.yaml.
        recipe: `module:function`, which is given the composed config; imported when that is known to be good.
        words: of the command line, after the command.
        rewritten: makes of them what Hydra reads, once it knows folders of one's own.

    Raises:
        Exception: of the job; a sweep has run its others and names those that failed.
    """
    topic = asked_for(words)
    if topic is not None:
        print(help_page(command, COMMANDS[command], topic), end="")
        return

    import hydra

    from ringyard.config_folder import add_own_folders, config_folder
    from ringyard_agents.commands.search_path import folders_named
    from ringyard_agents.runs.sweep_job import job

    options = _options(words)
    add_own_folders(folders_named(command, options))
    task = job(command, recipe)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of Hydra's traceback printer
    program = "ringyard" if options.shell_completion else f"ringyard {command}"
    sys.argv = [program, *rewritten(words)]
    options = _options(sys.argv[1:])
    start = hydra.main(str(config_folder()), command, version_base="1.3")(task)
    if options.multirun and not (options.cfg or options.help or options.info or options.hydra_help):
        from ringyard_agents.report.sweep_report import report_sweep
        from ringyard_agents.runs.sweep import run_sweep

        run_sweep(command, options.overrides, options.config_dir, start, report_sweep)
    else:
        start()
        if task.failures:
            raise task.failures[0]


def _options(words: Sequence[str]) -> Namespace:
    """Options of a command line, as Hydra reads it.

    Raises:
        ConfigurationError: some that Hydra does not have, or that we do not want.
    """
    from hydra._internal.utils import get_args_parser

    from ringyard.errors import ConfigurationError
    from ringyard_agents.command_line import Arguments

    parser = get_args_parser()
    parser.__class__ = Arguments
    options: Namespace = parser.parse_intermixed_args(words)
    if options.multirun and any(word.startswith("resume=") for word in options.overrides):
        raise ConfigurationError("resume goes on with one run as it is; call it without -m, once for each")
    if options.experimental_rerun is not None:
        raise ConfigurationError(
            "--experimental-rerun loads a pickle, which may run any code; give overrides"
        )
    return options
