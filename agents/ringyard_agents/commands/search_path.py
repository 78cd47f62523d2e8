"""Folders of one's own yamls that a command line names: with --config-dir or hydra.searchpath."""

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ringyard.config_folder import config_folder

__all__ = ["folders_named"]

_SEARCH_PATH = "hydra.searchpath"


def folders_named(command: str, options: argparse.Namespace) -> list[Path]:
    """Those that are there, in the order in which Hydra looks into them.

    Args:
        command: has its settings in conf/<command>.yaml, unless --config-name says another.
        options: of the command line, as Hydra's parser reads it.
    """
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
    for word in overrides:
        if word.lstrip("+").startswith(f"{_SEARCH_PATH}="):
            try:
                return OverridesParser.create().parse_override(word).value()
            except HydraException:  # Hydra will say what is wrong
                return None
    return None


def _said_by_yaml(file: Path) -> Any:
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
