"""Yaml files of the tools, in `tools/conf`."""

from pathlib import Path

from ringyard.config_folder import user_config_folders

TOOLS_CONF = Path(__file__).parent / "conf"


def tool_config_files(group: str) -> dict[str, Path]:
    """Find the yaml files of a group.

    Args:
        group: folder in `tools/conf`, or in a folder that RINGYARD_CONF names. A file there replaces the one
            of the same name in `tools/conf`.

    Returns:
        {name: yaml}, sorted by name.
    """
    folders = [TOOLS_CONF, *reversed(user_config_folders())]
    files = {file.stem: file for folder in folders for file in (folder / group).glob("*.yaml")}
    return dict(sorted(files.items()))
