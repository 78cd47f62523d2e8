"""Schedulers and training environments as users name them, and their Hydra configs."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ringyard.checks import shown, suggest
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.renamed import explain_renamed
from ringyard_agents.config.safe_load import Trust, check_plain, config_nodes
from ringyard_agents.shipped_agents import ZOO_PREFIX

#: config groups of a simulated environment; "environment" in this package is {group: plain config}
ENVIRONMENT_GROUPS = ("cluster", "workload", "performance", "restart", "failures")

INTERFACE_GROUPS = ("observation", "action")  #: groups of what a model of another library reads and does


@dataclass(frozen=True)
class SchedulerEntry:
    """A scheduler as a user names it."""

    label: str  #: name in tables
    #: `name` or `name@placement` of conf/scheduler, or `name:checkpoint` or `zoo:NAME` of an agent
    scheduler: str
    #: options that replace those of the scheduler's yaml
    options: Mapping[str, Any] = field(default_factory=dict)
    setting: str = "schedulers"  #: setting that lists it, for errors

    @classmethod
    def read(cls, given: Any, setting: str = "schedulers") -> Self:
        """Read an entry of a list `setting`: a name or {label: {scheduler: name, options: {name: value}}}."""
        if isinstance(given, str):
            label = given if given.startswith(ZOO_PREFIX) else given.partition(":")[0]
            return cls(label, given, setting=setting)
        if isinstance(given, Mapping) and len(given) == 1:
            [(label, value)] = given.items()
            if isinstance(value, Mapping) and {"scheduler"} <= set(value) <= {"scheduler", "options"}:
                name, options = value["scheduler"], value.get("options", {})
                if isinstance(name, str) and isinstance(options, Mapping):
                    return cls(str(label), name, dict(options), setting)
        raise ConfigurationError(
            f"{setting} has {shown(given)}; expected a name such as fifo@consolidate, or"
            " {LABEL: {scheduler: NAME, options: {OPTION: VALUE}}}"
        )

    @property
    def name(self) -> str:
        """Name in conf/scheduler."""
        return self.scheduler.partition("@")[0]

    @property
    def is_agent(self) -> bool:
        """Whether the scheduler is a trained agent."""
        return ":" in self.scheduler

    @property
    def checkpoint(self) -> str:
        """File, run folder or `zoo:NAME` of a trained agent."""
        return self.scheduler if self.scheduler.startswith(ZOO_PREFIX) else self.scheduler.partition(":")[2]


def scheduler_config(
    entry: SchedulerEntry, trust: Trust = (), interface: Mapping[str, Any] | None = None
) -> DictConfig:
    """Compose the resolved config of a scheduler. Hydra must be initialised.

    An agent may load classes of `trust`. A model.zip needs `interface`, {group of `INTERFACE_GROUPS`:
    config}.
    """
    if entry.is_agent:
        config = hydra.compose("entry", ["scheduler=learned/agent"]).scheduler
        own: Mapping[str, Any] = dict.fromkeys(INTERFACE_GROUPS)
        if interface and entry.checkpoint.endswith(".zip"):
            own = interface
        fixed = {"name": entry.label, "trust": trust, "checkpoint": entry.checkpoint, **own}
        return _with_options(entry, config, fixed)
    name, at, placement = entry.scheduler.partition("@")
    if name not in scheduler_names() or bool(at) != bool(placement):
        found = f"{entry.setting} has {entry.scheduler!r}"
        if Path(name).suffix in (".zip", ".safetensors"):
            reason = "give it a label" if Path(name).is_file() else "there is no such file"
            raise ConfigurationError(f"{found}: {reason}; expected a label and a file, such as mine:{name}")
        raise ConfigurationError(
            explain_renamed("schedulers", name, f"{found}, which")
            or f"{found}; expected {suggest(name, scheduler_names())}, perhaps with @placement, or an agent:"
            " label:run_folder, such as mine:runs/quickstart, mine:model.zip, or zoo:NAME"
        )
    if placement:
        require_placement(entry.scheduler, placement)
    config = hydra.compose("entry", [f"scheduler={name}"] + ([f"placement={placement}"] if placement else []))
    OmegaConf.resolve(config)
    if placement and config.scheduler.get("placement") != config.placement:
        raise ConfigurationError(f"{entry.scheduler}: {name} has its own placement; expected {name}")
    return _with_options(entry, config.scheduler)


def _with_options(
    entry: SchedulerEntry, config: DictConfig, fixed: Mapping[str, Any] | None = None
) -> DictConfig:
    """Merge an entry's options into a config. They can neither change `fixed` nor name a class to call."""
    reserved = {"placement": None, **(fixed or {})}
    for name, value in (fixed or {}).items():
        config[name] = value
    try:
        check_plain(entry.options)
        calls = any(key.startswith("_") for key, _ in config_nodes(entry.options))
        if reserved.keys() & entry.options or calls:
            raise ValueError("an option that entries cannot set")
        merged: Any = OmegaConf.merge(config, dict(entry.options))
        return merged
    except (OmegaConfBaseException, ValueError) as error:
        known = ", ".join(sorted(str(key) for key in config if key not in ("_target_", *reserved)))
        options = (f"{entry.name}.{option}" for option in entry.options)
        renamed = next(filter(None, (explain_renamed("scheduler_options", one) for one in options)), None)
        expected = (
            f"options is {shown(dict(entry.options))}; expected some of {known or 'none'}, each a number, a"
            " text or a list; a placement rule is part of the name: fifo@pack"
        )
        raise ConfigurationError(f"{entry.label}: {renamed or expected}") from error


def require_placement(where: str, rule: str) -> None:
    """Raise a ConfigurationError unless conf/placement or RINGYARD_CONF has the rule that a setting names."""
    rules = config_files("placement")
    if rule not in rules:
        raise ConfigurationError(f"{where} has the placement rule {rule!r}; expected {suggest(rule, rules)}")


def accepts_placement(name: str) -> bool:
    """Return whether users can choose the placement rule of a scheduler. Hydra must be initialised."""
    config = hydra.compose("entry", [f"scheduler={name}", "placement=random"])
    OmegaConf.resolve(config)
    return bool(config.scheduler.get("placement") == config.placement)


def scheduler_names() -> list[str]:
    """Return the names in conf/scheduler and in folders of RINGYARD_CONF, without agents."""
    return list(config_files("scheduler"))


def plain_groups(config: Any, groups: Iterable[str] = ENVIRONMENT_GROUPS) -> dict[str, Any]:
    """Return {group: plain config} of some groups of a config."""
    return {group: to_plain(config[group]) for group in groups}


def to_plain(config: Any) -> Any:
    """Convert a config into resolved plain containers, which can be pickled or saved."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


OWN = "own"  #: label of the environment that the run's own settings describe

#: groups that are the same in all environments of a run, because the agent is made for them
_SHARED = ("observation", "action", "reward", "cost")

#: groups and settings that the overrides of another environment may change
_CHANGEABLE = (*ENVIRONMENT_GROUPS, "limit_seconds", "experiment", "debug")


def compose_environments(
    own: Mapping[str, Any], others: Sequence[Any], check: Callable[[Any], None] | None = None
) -> dict[str, DictConfig]:
    """Return {label: config} of all environments of a run. Hydra must be initialised.

    `own` describes the run's own environment. `others` are names of experiments, or {label: [override, ...]}
    in words of the command line. `check` may refuse each composed config. Observation, action and reward are
    those of the run in every environment; overrides of them are an error.
    """
    simulated = {name: own[name] for name in (*ENVIRONMENT_GROUPS, *_SHARED, "limit_seconds")}
    configs = {OWN: simulated}
    for entry in others:
        label, overrides = _parse_entry(entry)
        if label in configs:
            raise ConfigurationError(
                f"environments has {label!r} twice; expected a label of its own for each environment:"
                " {label: [experiment=..., ...]}"
            )
        configs[label] = {**simulated, **_compose_overrides(label, overrides)}
        if check is not None:
            check(configs[label])
    return {label: OmegaConf.create(config) for label, config in configs.items()}


def _parse_entry(entry: Any) -> tuple[str, list[str]]:
    """Return (label, overrides) of an entry of the setting `environments`."""
    given = {entry: [f"experiment={entry}"]} if isinstance(entry, str) else entry
    if isinstance(given, Mapping) and len(given) == 1:
        [(label, overrides)] = given.items()
        words = isinstance(overrides, list) and all(isinstance(word, str) for word in overrides)
        if words and isinstance(label, str) and label and label.isprintable() and "/" not in label:
            return label, overrides
    raise ConfigurationError(
        f"environments has {shown(entry)}; expected the name of an experiment, or {{label: [override, ...]}},"
        " such as {large: ['experiment=elastic', 'cluster.num_servers=64']}"
    )


def _compose_overrides(label: str, overrides: list[str]) -> dict[str, Any]:
    """Compose `ENVIRONMENT_GROUPS` and `limit_seconds` of another environment."""
    try:
        for word in overrides:
            override = OverridesParser.create().parse_override(word)
            if re.split("[./]", override.package or override.key_or_group)[0] not in _CHANGEABLE:
                raise ConfigurationError(
                    f"environments: {label}: {word} does not change what is simulated; expected a setting of"
                    f" {', '.join(_CHANGEABLE)}: all other settings are the same in every environment"
                )
            check_plain(override.value())  # an escaped interpolation is one once the word is read
        other = hydra.compose("train", overrides)
        return {"limit_seconds": other.limit_seconds, **plain_groups(other)}
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigurationError(f"environments: {label}: {' '.join(str(error).split())}") from error
