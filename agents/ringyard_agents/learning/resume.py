"""What a run that goes on is: its own config, with the few changes that it allows."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard_agents.config.compose import plain
from ringyard_agents.config.safe_load import Trust, check_classes, groups_of_runs
from ringyard_agents.config.schema import check_settings

__all__ = ["check_agreement", "read_run_config", "resumed_config"]

#: settings that a run may change when it goes on
_CHANGEABLE = ("total_decisions", "save_minutes", "num_threads", "device", "plots", "callbacks")
_OF_THE_COMMAND = ("resume", "overwrite", "trust", *_CHANGEABLE)

#: settings that runs of older versions have not, as they ran
_LATER: dict[str, Any] = {
    "worlds": [],
    "init": None,
    "num_threads": None,
    "device": "auto",
    "plots": True,
    "callbacks": {},
    "constraint": {"metric": None, "most": None, "step": 1.0},
}

#: groups whose leaves change any setting
_ANYTHING = ("experiment", "debug")


def read_run_config(file: Path, trust: Trust) -> dict[str, Any]:
    """A run folder's config.yaml, as plain data that names nobody's classes but Ringyard's and trusted ones.

    Raises:
        CheckpointError: it is missing or damaged, or names other classes.
    """
    if not file.is_file():
        raise CheckpointError(f"cannot resume: there is no {file}; give the folder of an earlier run")
    try:
        saved: Any = OmegaConf.to_container(OmegaConf.load(file))
    except (YAMLError, OmegaConfBaseException, ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"cannot resume: {file} is damaged: {error}") from error
    if not isinstance(saved, dict) or "total_decisions" not in saved:
        raise CheckpointError(f"cannot resume: {file} is not of a training run")
    if isinstance(saved.get("evaluate"), dict):  # runs of 0.2 have none
        saved = {**_LATER, **saved, "evaluate": {"patience": None, "prune": None, **saved["evaluate"]}}
    check_classes(saved, groups_of_runs(), trust, str(file))
    try:
        check_settings("train", OmegaConf.create(saved))
    except ConfigurationError as error:
        raise CheckpointError(f"cannot resume: {file} is damaged: {error}") from error
    return saved


def resumed_config(config: DictConfig) -> tuple[DictConfig, int]:
    """(config of the run folder `config.resume` with what this command changes, total_decisions so far).

    Args:
        config: of this command, as Hydra composed it.

    Raises:
        CheckpointError: there is no such run, or its config names classes that are not trusted.
        ConfigurationError: an override that contradicts the run's own settings.
    """
    file = Path(config.resume).expanduser() / "config.yaml"
    saved = read_run_config(file, config.trust)
    asked, words = plain(config), HydraConfig.get().overrides.task
    check_agreement(words, asked, saved, file)
    named = {_key(word).partition(".")[0] for word in words}
    changed = {key: asked[key] for key in _CHANGEABLE if key in named}
    # whom to trust is never for a file to say
    command = {"resume": asked["resume"], "trust": asked["trust"]}
    return OmegaConf.create({**asked, **saved, **changed, **command}), saved["total_decisions"]


def _key(word: str) -> str:
    """What an override is about: `agent.learning_rate` of `++agent.learning_rate=0.1`."""
    key: str = OverridesParser.create().parse_override(word).key_or_group
    return key


def _leaves(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(config, dict) and config:
        for name, value in config.items():
            yield from _leaves(value, f"{path}.{name}" if path else str(name))
    else:
        yield path, config


def check_agreement(words: Sequence[str], asked: Any, saved: Any, file: Path) -> None:
    """Raise ConfigurationError for the first override by which a run's settings would be others.

    Args:
        words: of a command line.
        asked: plain config that they compose.
        saved: plain config of the run.
        file: where that is from.
    """
    new, old = dict(_leaves(asked)), dict(_leaves(saved))
    for word in sorted(words, key=lambda word: "." not in _key(word)):  # a leaf's own word before its group's
        key = _key(word)
        if key.partition(".")[0] in _OF_THE_COMMAND:
            continue
        for leaf in {**new, **old}:
            about = key in _ANYTHING or leaf == key or leaf.startswith(f"{key}.")
            if about and leaf.partition(".")[0] not in _OF_THE_COMMAND and new.get(leaf) != old.get(leaf):
                raise ConfigurationError(
                    f"{word} does not agree with the run that goes on: {leaf} would be {new.get(leaf)!r}, in"
                    f" {file} it is {old.get(leaf)!r}; leave {key} out, a run keeps its settings (only"
                    f" {', '.join(_CHANGEABLE)} may change), or train a new one"
                )
