"""Where the yaml files are: in the installed package or `conf/` of a checkout; and folders of one's own."""

import os
from pathlib import Path

from ringyard.errors import ConfigurationError

__all__ = ["OWN_FOLDERS", "config_files", "config_folder", "own_folders"]

#: environment variable: folders of one's own, separated as in PATH, each with groups as in `conf/`
OWN_FOLDERS = "RINGYARD_CONF"


def config_folder() -> Path:
    """The folder of the configs."""
    package = Path(__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parents[1] / "conf"


def own_folders() -> tuple[Path, ...]:
    """Folders that RINGYARD_CONF names.

    Raises:
        ConfigurationError: one of them is not there.
    """
    folders = [
        Path(one).expanduser().absolute() for one in os.environ.get(OWN_FOLDERS, "").split(os.pathsep) if one
    ]
    for folder in folders:
        if not folder.is_dir():
            raise ConfigurationError(
                f"{OWN_FOLDERS} names {folder}; expected folders with profiles/, network/ and so on"
            )
    return tuple(folders)


def config_files(group: str) -> dict[str, Path]:
    """{name: yaml} of a group, by name; a yaml of one's own replaces the one of that name which ships."""
    folders = [config_folder(), *reversed(own_folders())]
    files = {file.stem: file for folder in folders for file in (folder / group).glob("*.yaml")}
    return dict(sorted(files.items()))
