"""Commands whose settings are Hydra's: composed, checked, run, once or in a sweep."""

import importlib.util
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringyard_agents.help_page import asked_for, help_page

__all__ = ["run_hydra"]

_SEARCH_PATH = "hydra.searchpath"

#: beginnings of words of `train` that may name an agent to begin with, or a run to go on with
_SAY_INIT = ("init=", "resume=", "experiment=", "debug=")


def run_hydra(command: str, does: str, recipe: str, words: Sequence[str]) -> None:
    """Run a command whose settings are Hydra's.

    Args:
        command: has its settings in conf/<command>.yaml.
        does: what it does, for --help.
        recipe: `module:function`, which is given the composed config; imported when that is known to be good.
        words: of the command line, after the command.

    Raises:
        Exception: of the job; a sweep has run its others and names those that failed.
    """
    topic = asked_for(words)
    if topic is not None:
        print(help_page(command, does, topic), end="")
        return

    import hydra

    from ringyard.config_folder import add_own_folders, config_folder
    from ringyard_agents.runs.sweep_job import job

    options = _options(words)
    add_own_folders(_folders_named(command, options))
    task = job(command, recipe)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of Hydra's traceback printer
    if command == "train" and any(word.lstrip("+").startswith(_SAY_INIT) for word in words):
        from ringyard_agents.learning.resume import inherited

        words = inherited(words)  # with the parts of the agent that is to learn on
    program = "ringyard" if options.shell_completion else f"ringyard {command}"
    sys.argv = [program, *words]
    options = _options(words)
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


def _folders_named(command: str, options: Namespace) -> list[Path]:
    """Folders of --config-dir and hydra.searchpath that are there, in Hydra's order.

    Args:
        command: has its settings in conf/<command>.yaml, unless --config-name says another.
        options: of the command line, as Hydra's parser reads it.
    """
    from ringyard.config_folder import config_folder

    named = [] if options.config_dir is None else [Path(options.config_dir)]
    places = [config_folder(), *named]
    files = (place / f"{(options.config_name or command).removesuffix('.yaml')}.yaml" for place in places)
    said = _said_by_words(options.overrides)
    if said is None:
        said = next((_said_by_yaml(file) for file in files if file.is_file()), None)
    if isinstance(said, list):
        named += [folder for one in said if (folder := _folder(str(one))) is not None]
    return [folder for folder in named if folder.is_dir()]


def _said_by_words(overrides: list[str]) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for word in overrides:
        if word.lstrip("+").startswith(f"{_SEARCH_PATH}="):
            try:
                return OverridesParser.create().parse_override(word).value()
            except HydraException:  # Hydra will say what is wrong
                return None
    return None


def _said_by_yaml(file: Path) -> Any:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        found = OmegaConf.select(OmegaConf.load(file), _SEARCH_PATH)
        return OmegaConf.to_container(found, resolve=True) if OmegaConf.is_list(found) else None
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeError):  # Hydra will say what is wrong
        return None


def _folder(named: str) -> Path | None:
    """Of `file:///home/me/conf`, a path, or `pkg://my_package.conf`."""
    if not named.startswith("pkg://"):
        return Path(named.removeprefix("file://"))
    module, *inside = named.removeprefix("pkg://").split(".")
    spec = importlib.util.find_spec(module)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    return Path(places[0], *inside) if places else None
