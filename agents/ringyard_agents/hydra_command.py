"""Run a command that takes Hydra overrides, once or as a sweep."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files as files_of
from pathlib import Path

from ringyard_agents.help_page import help_page, help_topic

_SEARCH_PATH = "hydra.searchpath"

#: prefixes of overrides of `train` that may name an agent or run to start from
_INHERITING_OPTIONS = ("init=", "resume=")


def run_hydra(command: str, description: str, function_path: str, words: Sequence[str]) -> None:
    """Run a command that takes Hydra overrides; a sweep runs all jobs and names those that failed.

    `function_path`, `module:function`, takes the composed config. It is imported once the config is checked.
    """
    topic = help_topic(words)
    if topic is not None:
        print(help_page(command, description, topic), end="")
        return

    import hydra

    from ringyard.config_folder import add_user_config_folders, config_folder
    from ringyard_agents.runs.sweep_job import HydraJob

    options = _options(words)
    add_user_config_folders(_search_folders(command, options))
    task = HydraJob(command, function_path)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors are raised here instead of printed by Hydra
    if command == "train" and any(word.lstrip("+").startswith(_INHERITING_OPTIONS) for word in words):
        from ringyard_agents.learning.resume import add_inherited_parts

        words = add_inherited_parts(words)  # adds the settings of the agent of init= or resume=
    options = _options(words)
    flags = [word for word in words if word not in options.overrides]
    sys.argv = [f"ringyard {command}", *flags, *options.overrides]  # Hydra wants overrides in one piece
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
    """Parse Hydra's options. Raises ConfigurationError for unknown or refused ones."""
    from hydra._internal.utils import get_args_parser

    from ringyard.errors import ConfigurationError
    from ringyard_agents.command_line import Arguments

    parser = get_args_parser()
    parser.__class__ = Arguments
    options: Namespace = parser.parse_intermixed_args(words)
    options.multirun |= any(word.lstrip("+") == "hydra.mode=MULTIRUN" for word in options.overrides)
    if options.multirun and any(word.startswith("resume=") for word in options.overrides):
        raise ConfigurationError("resume continues one run; call it without -m, once for each run")
    if options.experimental_rerun is not None:
        raise ConfigurationError(
            "--experimental-rerun is refused, since it loads a pickle, which may run any code; give overrides"
        )
    return options


def _search_folders(command: str, options: Namespace) -> list[Path]:
    """Return the existing folders of --config-dir and hydra.searchpath, in Hydra's order."""
    from omegaconf import OmegaConf

    from ringyard.config_folder import config_folder

    named = [] if options.config_dir is None else [Path(options.config_dir)]
    words = [word.lstrip("+") for word in options.overrides if word.lstrip("+").startswith(_SEARCH_PATH)]
    name = f"{(options.config_name or command).removesuffix('.yaml')}.yaml"
    files = (place / name for place in (config_folder(), *named))
    with suppress(Exception):  # Hydra reports the error later
        config = OmegaConf.from_dotlist(words) if words else OmegaConf.load(next(filter(Path.is_file, files)))
        for one in map(str, OmegaConf.select(config, _SEARCH_PATH)):
            package = one.startswith("pkg://")
            named.append(Path(str(files_of(one[6:]))) if package else Path(one.removeprefix("file://")))
    return [folder for folder in named if folder.is_dir()]
