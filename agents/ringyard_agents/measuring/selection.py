"""Which schedulers a comparison runs, and in which worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

import hydra
import numpy as np
import yaml
from omegaconf import DictConfig

from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError, InformationError, SchedulerError
from ringyard_agents.configuration import WORLD, label_of, plain, scheduler_names
from ringyard_agents.measuring.evaluate import build, simulator

__all__ = ["able", "benchmarks", "labels_of", "wants_all", "worlds_of"]

#: of the chosen workload, what a preset's own workload takes over
_FROM_WORKLOAD = ("sizes", "durations", "arrivals")

_LONGEST_LABEL = 60  # characters


def benchmarks() -> list[str]:
    """The experiments that say `benchmark: true`."""
    files = config_files("experiment")
    return [name for name, file in files.items() if yaml.safe_load(file.read_text()).get("benchmark", False)]


def labels_of(config: DictConfig) -> dict[str, str]:
    """{label: entry} of `schedulers`, where "all" stands for every leaf of conf/scheduler.

    Raises:
        ConfigurationError: no entries, two of one label, or a label that cannot name a folder.
    """
    given = [config.schedulers] if isinstance(config.schedulers, str) else list(config.schedulers)
    entries = [name for entry in given for name in (scheduler_names() if entry == "all" else [entry])]
    labels = {label_of(entry): entry for entry in entries}
    taken = [label for label in labels if ":" in labels[label] and label in ("", "all", *scheduler_names())]
    if taken:
        raise ConfigurationError(
            f"schedulers has {labels[taken[0]]!r}; expected a name of its own before the colon, such as mine"
        )
    for label in labels:  # a folder for its curves has that name
        if "/" in label or label in (".", "..") or not label.isprintable() or len(label) > _LONGEST_LABEL:
            raise ConfigurationError(
                f"schedulers has {labels[label]!r}; expected a name of at most {_LONGEST_LABEL} printable"
                " characters without / before the colon, such as mine"
            )
    if not labels or len(labels) != len(entries):
        raise ConfigurationError(f"schedulers is {given}; expected one or more entries of different names")
    return labels


def wants_all(config: DictConfig) -> bool:
    """Whether `schedulers` says "all", alone or beside others."""
    return config.schedulers == "all" or "all" in list(config.schedulers)


def worlds_of(config: DictConfig) -> dict[str, dict[str, Any]]:
    """{name: configs of a world}: the configured one, called "", or those of `presets`.

    A preset keeps its cluster, physics, models, extensions, number of jobs and load; sizes, durations and
    arrivals are the chosen workload's.

    Raises:
        ConfigurationError: an unknown preset, or a workload that presets cannot take over.
    """
    names: Sequence[str] = config.presets if config.presets is not None else []
    known = benchmarks()
    if config.presets is None and wants_all(config):
        names = known
    if not names:
        return {"": {name: plain(config[name]) for name in WORLD}}
    for name in names:
        if name not in known:
            raise ConfigurationError(f"presets has {name!r}; expected some of {', '.join(known)}")
    workload = plain(config.workload)
    missing = [part for part in _FROM_WORKLOAD if part not in workload]
    if missing:
        raise ConfigurationError(
            f"presets take sizes, durations and arrivals from the workload, and this one has no {missing[0]};"
            " choose one such as helios_like, philly_like or pai_like, or set presets=[]"
        )
    return {name: _preset(name, workload, config.preset_load) for name in names}


def _preset(name: str, workload: dict[str, Any], load: float) -> dict[str, Any]:
    """The world of a preset with jobs like those of `workload`."""
    own = hydra.compose("compare", [f"experiment={name}"])
    world = {part: plain(own[part]) for part in WORLD}
    given = world["workload"].get("base", world["workload"])
    if all(part in given for part in _FROM_WORKLOAD):
        given |= {part: workload[part] for part in _FROM_WORKLOAD}
    else:  # jobs of another kind: nothing to keep but their number
        world["workload"] = workload | {"num_jobs": build(given).num_jobs, "load": load}
    return world


def able(
    schedulers: Mapping[str, Mapping[str, Any]], world: Mapping[str, Any], seed: int
) -> tuple[list[str], dict[str, str]]:
    """(schedulers that can serve a world's jobs, {other: why not}).

    Args:
        schedulers: {label: config}.
        world: configs of one world.
        seed: of the comparison.

    Raises:
        RingyardError: bad input other than a scheduler that refuses the workload.
    """
    sim = simulator(world, 0, seed, None)
    fit, refused = [], {}
    for label, config in schedulers.items():
        try:
            scheduler = build(config)
            known = sim.jobs.as_known(scheduler.information)
            scheduler.reset(sim.cluster, known, np.random.default_rng(0))
            fit.append(label)
        except InformationError:
            raise
        except SchedulerError as error:
            refused[label] = str(error)
    return fit, refused
