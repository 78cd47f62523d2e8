"""From Hydra configs to objects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import hydra
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ringyard.checks import shown
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.renamed import explain_renamed
from ringyard_agents.config.safe_load import Trust, find_interpolation
from ringyard_agents.shipped_agents import ZOO_PREFIX

#: config groups that make up a simulated world
ENVIRONMENT_GROUPS = ("cluster", "workload", "performance", "restart", "failures")


@dataclass(frozen=True)
class SchedulerEntry:
    """One of the schedulers that a command runs.

    Attributes:
        label: what tables call it.
        scheduler: `name` or `name@placement` of conf/scheduler, or `name:checkpoint` or `zoo:NAME` of a
            trained agent.
        options: replace those of the scheduler's yaml.
        setting: where it stands, as its user knows it.
    """

    label: str
    scheduler: str
    options: Mapping[str, Any] = field(default_factory=dict)
    setting: str = "schedulers"

    @classmethod
    def read(cls, given: Any, setting: str = "schedulers") -> Self:
        """Read an entry of a list of schedulers.

        Args:
            given: the text of a scheduler, or {label: {scheduler: text, options: {name: value}}}.
            setting: name of the list for errors.

        Raises:
            ConfigurationError: it is neither.
        """
        if isinstance(given, str):
            return cls(
                given if given.startswith(ZOO_PREFIX) else given.partition(":")[0], given, setting=setting
            )
        if isinstance(given, Mapping) and len(given) == 1:
            [(label, said)] = given.items()
            known = isinstance(said, Mapping) and {"scheduler"} <= set(said) <= {"scheduler", "options"}
            if known and isinstance(said["scheduler"], str) and isinstance(said.get("options", {}), Mapping):
                return cls(str(label), said["scheduler"], dict(said.get("options", {})), setting)
        raise ConfigurationError(
            f"{setting} has {shown(given)}; expected a name such as fifo@consolidate, or"
            " {LABEL: {scheduler: NAME, options: {OPTION: VALUE}}}"
        )

    @property
    def name(self) -> str:
        """Of the leaf of conf/scheduler."""
        return self.scheduler.partition("@")[0]

    @property
    def is_agent(self) -> bool:
        """Whether it was trained."""
        return ":" in self.scheduler

    @property
    def checkpoint(self) -> str:
        """Of a trained agent: a file, a run folder or `zoo:NAME`."""
        return self.scheduler if self.scheduler.startswith(ZOO_PREFIX) else self.scheduler.partition(":")[2]


def scheduler_config(entry: SchedulerEntry, trust: Trust = ()) -> DictConfig:
    """The resolved config of a scheduler; Hydra must be initialised.

    Args:
        entry: the scheduler and its options.
        trust: the user's classes that an agent may name.

    Raises:
        ConfigurationError: an unknown scheduler, rule or option, or a rule for a scheduler with its own.
    """
    if entry.is_agent:
        config = hydra.compose("entry", ["scheduler=learned/agent"]).scheduler
        own = {"name": entry.label, "trust": trust, "checkpoint": entry.checkpoint}
        return _with_options(entry, config, own)
    name, at, placement = entry.scheduler.partition("@")
    if name not in scheduler_names() or bool(at) != bool(placement):
        found = f"{entry.setting} has {entry.scheduler!r}"
        raise ConfigurationError(
            explain_renamed("schedulers", name, f"{found}, which")
            or f"{found}; expected {', '.join(scheduler_names())}, one of them @placement, or a trained"
            " agent: name:run_folder, for instance mine:runs/quickstart, or zoo:NAME"
        )
    if placement:
        require_placement(entry.scheduler, placement)
    config = hydra.compose("entry", [f"scheduler={name}"] + ([f"placement={placement}"] if placement else []))
    OmegaConf.resolve(config)
    if placement and config.scheduler.get("placement") != config.placement:
        raise ConfigurationError(f"{entry.scheduler}: {name} brings its own placement; write {name}")
    return _with_options(entry, config.scheduler)


def _names_classes(options: Any) -> bool:
    """Whether options, or what is inside them, say which class or function is called."""
    if isinstance(options, Mapping):
        return any(str(key).startswith("_") or _names_classes(value) for key, value in options.items())
    return isinstance(options, list | tuple) and any(_names_classes(value) for value in options)


def _with_options(
    entry: SchedulerEntry, config: DictConfig, given: Mapping[str, Any] | None = None
) -> DictConfig:
    """The config of a scheduler with its own options, which cannot change `given` or name what is called."""
    fixed = {"placement": None, **(given or {})}
    for name, value in (given or {}).items():
        config[name] = value
    try:
        if fixed.keys() & entry.options or _names_classes(entry.options) or find_interpolation(entry.options):
            raise ValueError("an option that is not the entry's to say")
        merged: Any = OmegaConf.merge(config, dict(entry.options))
        return merged
    except (OmegaConfBaseException, ValueError) as error:
        known = ", ".join(sorted(str(key) for key in config if key not in ("_target_", *fixed)))
        options = (f"{entry.name}.{option}" for option in entry.options)
        renamed = next(filter(None, (explain_renamed("scheduler_options", one) for one in options)), None)
        expected = (
            f"options is {shown(dict(entry.options))}; expected some of {known or 'none'}, each a number, a"
            " text or a list; rules go behind the name, as in fifo@pack"
        )
        raise ConfigurationError(f"{entry.label}: {renamed or expected}") from error


def require_placement(where: str, rule: str) -> None:
    """Raise a ConfigurationError unless conf/placement, or a folder of RINGYARD_CONF, has the rule.

    Args:
        where: the rule stands, as its user knows it.
        rule: its name.
    """
    rules = config_files("placement")
    if rule not in rules:
        raise ConfigurationError(
            f"{where} has the placement rule {rule!r}; expected one of {', '.join(rules)}"
        )


def accepts_placement(name: str) -> bool:
    """Whether a scheduler places by a rule of the user's choice; Hydra must be initialised."""
    config = hydra.compose("entry", [f"scheduler={name}", "placement=random"])
    OmegaConf.resolve(config)
    return bool(config.scheduler.get("placement") == config.placement)


def scheduler_names() -> list[str]:
    """The leaves of conf/scheduler and of RINGYARD_CONF, without what is learned."""
    return list(config_files("scheduler"))


def to_plain(config: Any) -> Any:
    """Resolved containers, to be pickled or saved."""
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
