"""Folders with yaml files: `conf` of the package or the checkout, and the user's in RINGYARD_CONF."""

import functools
import os
from collections.abc import Iterable
from pathlib import Path

from ringyard.errors import ConfigurationError

#: environment variable with the user's folders, separated as in PATH. Each has groups as `conf` does
USER_FOLDERS_VARIABLE = "RINGYARD_CONF"


def config_folder() -> Path:
    """Return the folder `conf`."""
    package = Path(__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parents[1] / "conf"


def _variable_folders() -> list[Path]:
    named = os.environ.get(USER_FOLDERS_VARIABLE, "").split(os.pathsep)
    return [Path(one).expanduser().absolute() for one in named if one]


def _has_a_group(folder: Path) -> bool:
    return any((folder / group).is_dir() for group in _group_names())


def user_config_folders() -> tuple[Path, ...]:
    """Return the folders in RINGYARD_CONF, which must exist and have a group such as `profiles`."""
    folders = _variable_folders()
    for folder in folders:
        if not _has_a_group(folder):
            raise ConfigurationError(
                f"{USER_FOLDERS_VARIABLE} names {folder}; expected folders with profiles/, network/ and so on"
            )
    return tuple(folders)


def add_user_config_folders(folders: Iterable[Path]) -> None:
    """Append those of the `folders` that have a group to RINGYARD_CONF."""
    added = [folder.expanduser().absolute() for folder in folders if _has_a_group(folder.expanduser())]
    named = dict.fromkeys(map(str, [*_variable_folders(), *added]))
    if named:
        os.environ[USER_FOLDERS_VARIABLE] = os.pathsep.join(named)


@functools.cache
def _group_names() -> tuple[str, ...]:
    """Return the names of the folders in `conf`, and `zoo`, the folder of trained agents."""
    return tuple(sorted(["zoo", *(one.name for one in config_folder().iterdir() if one.is_dir())]))


def user_config_files() -> list[Path]:
    """Return all yaml files of the groups in the user's folders, sorted."""
    folders = (folder / group for folder in user_config_folders() for group in _group_names())
    return sorted(file for folder in folders for file in folder.rglob("*.yaml"))


def config_files(group: str) -> dict[str, Path]:
    """Return {name: yaml file} of a `group`, sorted. The user's file replaces one of that name in `conf`."""
    folders = [config_folder(), *reversed(user_config_folders())]
    files = {file.stem: file for folder in folders for file in (folder / group).glob("*.yaml")}
    return dict(sorted(files.items()))
