"""Commands whose settings are Hydra's: composed, checked, run, once or in a sweep."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

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
        Exception: of the first job that failed; a sweep has run its others.
    """
    topic = asked_for(words)
    if topic is not None:
        print(help_page(command, COMMANDS[command], topic), end="")
        return

    import hydra

    from ringyard.config_folder import config_folder, own_folders
    from ringyard_agents.files import remove_if_empty
    from ringyard_agents.record import register_run_folders, run_folders
    from ringyard_agents.settings import check_settings

    register_run_folders()
    if own_folders():
        from ringyard.mdp.presets import search_own_folders

        search_own_folders()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of Hydra's traceback printer
    sys.argv = [f"ringyard {command}", *rewritten(words)]
    _check_options()

    failures: list[Exception] = []
    folders: set[Path] = set()  # of the run, or of a sweep and its runs

    @hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=command)
    def entry(config: Any) -> None:
        folders.update(run_folders())
        try:
            check_settings(command, config)
            module, _, name = recipe.partition(":")
            getattr(importlib.import_module(module), name)(config)
        except Exception as error:  # a sweep goes on with its other jobs
            failures.append(error)

    try:
        entry()
    finally:
        for folder in sorted(folders, reverse=True):  # made by Hydra, before anything was found wrong
            remove_if_empty(folder)
    if failures:
        raise failures[0]


def _check_options() -> None:
    """Raise a ConfigurationError for options that Hydra does not have, or that we do not want."""
    from hydra._internal.utils import get_args_parser

    from ringyard.errors import ConfigurationError
    from ringyard_agents.command_line import Arguments

    parser = get_args_parser()
    parser.__class__ = Arguments
    options = parser.parse_args()
    if options.multirun and any(word.startswith("resume=") for word in options.overrides):
        raise ConfigurationError("resume goes on with one run as it is; call it without -m, once for each")
    if options.experimental_rerun is not None:
        raise ConfigurationError(
            "--experimental-rerun loads a pickle, which may run any code; give overrides"
        )
