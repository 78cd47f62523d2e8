"""Recipes of the pretrained agents in tools/conf/zoo: how they are trained and evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard_agents.config.schema import Seed
from ringyard_agents.shipped_agents import zoo_folders
from tools.config_files import TOOLS_CONF, tool_config_files

_Words = Annotated[Sequence[str], "not empty"]
_Entries = Annotated[Sequence[str | Mapping[str, object]], "not empty"]
_Workloads = Annotated[int, "[2, 1000000]"]

#: Ringyard's own, what agents' scores go through unless a recipe says otherwise
_RULES = ("allocator", "allocator_attained")

#: {field: what it may be} of a world; where a recipe says it, for all of its worlds that do not
_OF_WORLDS: Mapping[str, Any] = {
    "best": str,
    "references": _Entries,
    "rules": _Entries,
    "workloads": _Workloads,
}
_OF_ONE: Mapping[str, Any] = {"title": str, "overrides": Sequence[str]}
_OF_AGENT: Mapping[str, Any] = {
    "title": str,
    "train": _Words,
    "seeds": Annotated[Sequence[Seed], "not empty"],
    "worlds": Annotated[Mapping[str, Mapping[str, object]], "not empty"],
    "elsewhere": Mapping[str, Mapping[str, object]],
    "files": Mapping[str, str],
}


@dataclass(frozen=True)
class World:
    """Where an agent is judged.

    Attributes:
        label: of the world.
        title: in words.
        overrides: words of `ringyard compare` that make it.
        best: conf/tuned: the rules and options that suit each scheduler.
        references: published schedulers, as `compare` takes them, "all" for each of the agent's class
            (`tools.zoo.competitors`); the agent is held against the best.
        rules: shown beside; the first is what the agent's scores go through, with every score at 0.
        workloads: how many.
    """

    label: str
    title: str
    overrides: Sequence[str]
    best: str
    references: Sequence[str | Mapping[str, Any]]
    rules: Sequence[str | Mapping[str, Any]]
    workloads: int


@dataclass(frozen=True)
class Recipe:
    """An agent of the zoo.

    Attributes:
        name: of the agent and its yaml.
        title: what it is for.
        train: words of `ringyard train`, without seed and name.
        seeds: of training.
        worlds: with a table each, the agent's own first.
        elsewhere: with a row each.
        files: {path: where it is to be had} of traces that are not ours to ship.
        home: folder of its weights and its record.
    """

    name: str
    title: str
    train: Sequence[str]
    seeds: Sequence[int]
    worlds: Sequence[World]
    elsewhere: Sequence[World]
    files: Mapping[str, str]
    home: Path

    @property
    def weights(self) -> Path:
        """The agent that ships."""
        return self.home / f"{self.name}.safetensors"

    @property
    def record(self) -> Path:
        """How it was trained, and its figures."""
        return self.home / f"{self.name}.json"

    @property
    def missing(self) -> str:
        """The files that are not there, in words; empty: all are."""
        return "; ".join(
            f"{file} ({where})" for file, where in self.files.items() if not Path(file).is_file()
        )

    def words(self, seed: int) -> list[str]:
        """Of `ringyard train`."""
        return [*self.train, f"seed={seed}", f"name={self.folder(seed).name}"]

    def folder(self, seed: int) -> Path:
        """Where a training run writes."""
        return Path("runs", f"zoo_{self.name}_{seed}")


def read_recipes(only: str | None = None) -> list[Recipe]:
    """Every recipe, or one.

    Raises:
        ConfigurationError: no such recipe, or one that makes no sense.
    """
    files = tool_config_files("zoo")
    if only is not None and only not in files:
        raise ConfigurationError(
            f"there is no agent {only!r} in tools/conf/zoo; expected one of {', '.join(files)}"
        )
    return [_read(name, file) for name, file in files.items() if only in (None, name)]


def _read(name: str, file: Path) -> Recipe:
    try:
        content: Any = yaml.safe_load(file.read_text())
    except (UnicodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{file} is no yaml of a recipe: {error}") from error
    require(str(file), content, Mapping[str, object])
    given = {"elsewhere": {}, "files": {}, "rules": _RULES, **content}
    _check(str(file), given, _OF_AGENT, _OF_WORLDS)
    if len(set(given["seeds"])) != len(given["seeds"]):
        raise ConfigurationError(f"{file}.seeds is {given['seeds']}; expected different ones")
    usual = {key: given[key] for key in _OF_WORLDS if key in given}
    worlds, elsewhere = (
        [_world(f"{file}: {part}.{label}", label, {**usual, **one}) for label, one in given[part].items()]
        for part in ("worlds", "elsewhere")
    )
    labels = [world.label for world in (*worlds, *elsewhere)]
    if len(set(labels)) != len(labels):
        raise ConfigurationError(
            f"{file} has worlds of one label: {', '.join(labels)}; expected different ones"
        )
    return Recipe(
        name,
        given["title"],
        given["train"],
        given["seeds"],
        worlds,
        elsewhere,
        given["files"],
        zoo_folders()[0] if TOOLS_CONF in file.parents else file.parent,
    )


def _world(where: str, label: str, given: Mapping[str, Any]) -> World:
    _check(where, given, {**_OF_ONE, **_OF_WORLDS}, {})
    return World(label, **given)


def _check(where: str, given: Mapping[str, Any], needed: Mapping[str, Any], maybe: Mapping[str, Any]) -> None:
    known = {**needed, **maybe}
    missing, unknown = [key for key in needed if key not in given], [key for key in given if key not in known]
    if missing or unknown:
        wrong = [*(f"no {key}" for key in missing), *(f"{key}, which is not known" for key in unknown)]
        raise ConfigurationError(f"{where} has {', '.join(wrong)}; expected {', '.join(known)}")
    for key, value in given.items():
        require(f"{where}.{key}", value, known[key])
