"""Where the yaml files are: inside the installed package, or `conf/` of a checkout."""

from pathlib import Path

__all__ = ["config_folder"]


def config_folder() -> Path:
    """The folder of the configs."""
    package = Path(__file__).parent
    installed = package / "conf"
    return installed if installed.is_dir() else package.parents[1] / "conf"
