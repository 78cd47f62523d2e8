"""A run whose name another had before: the same command goes on, another is refused or replaces it."""

from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from ringyard.errors import ConfigurationError
from ringyard_agents.runs.record import again, require_command

__all__ = ["refuse_another"]

#: settings that say how a run is run and where else it is written, not what it finds
_OF_THE_RUN = (
    *("name", "overwrite", "rerun", "workers", "trust", "gym"),
    *("plots", "tensorboard", "output", "out", "file"),
)


def _leaves(config: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(config, dict) or not config:
        return {path: config}
    found: dict[str, Any] = {}
    for name, value in config.items():
        found |= _leaves(value, f"{path}.{name}" if path else str(name))
    return found


def refuse_another(folder: Path, command: str, config: DictConfig) -> None:
    """Raise a ConfigurationError if a folder has a run with other settings, unless `overwrite` says so.

    A run of another command is not replaced in any case.

    Args:
        folder: of the run; there may be none.
        command: that is to write there.
        config: of the command.
    """
    require_command(folder, command)
    file = folder / "config.yaml"
    if config.overwrite or not file.is_file():
        return
    try:
        before = _leaves(yaml.safe_load(file.read_text()))
    except (yaml.YAMLError, UnicodeError, RecursionError):
        before = {}
    now = _leaves(OmegaConf.to_container(config, resolve=True))
    for name in (*before, *now):
        if name.partition(".")[0] in _OF_THE_RUN or (name in before) > (name in now):
            continue  # a setting that an older version had
        if name not in before and name.partition(".")[0] not in before:
            continue  # one that it had not
        if before.get(name) != now.get(name):
            raise ConfigurationError(
                f"{folder} has a run with {name}={before.get(name)}, now it is {now.get(name)}; give another"
                f" name=, or replace it: {again(folder)} overwrite=true"
            )
