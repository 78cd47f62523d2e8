"""What Hydra and OmegaConf find wrong with words of a command line, in words that say what to write."""

import re
from collections.abc import Callable

from hydra.errors import OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    MissingMandatoryValue,
)

from ringyard_agents.config.target_validation import nearest

__all__ = ["said_of"]


#: {what a plugin of Hydra brings: extra that has it}
_PLUGINS = {
    "sweeper/optuna": "sweeps",
    "launcher/joblib": "sweeps",
    "launcher/submitit_local": "sweeps",
    "launcher/submitit_slurm": "sweeps",
    "launcher/ray": "ray",
    "launcher/ray_aws": "ray",
}


def said_of(error: Exception) -> str:
    """What, got, expected and what to do, where somebody has met the error before; else Hydra's own lines."""
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value; give {error.full_key}=..."
    said = str(error).partition("Config search path:")[0]
    for plugin, extra in _PLUGINS.items():
        if f"'hydra/{plugin}'" in said:
            return f'{plugin} is of a plugin that is not installed: pip install "ringyard[{extra}]"'
    for rule in _RULES:
        text = rule(error, said)
        if text is not None:
            return text
    return " ".join(_ended(line.strip()) for line in said.splitlines() if line.strip()).rstrip(".")


def _ended(line: str) -> str:
    """A line as a sentence."""
    return line if line[-1] in ".:;,?!" else f"{line}."


def _unreadable_worlds(error: Exception, said: str) -> str | None:
    if not (isinstance(error, OverrideParseException) and error.override.lstrip("+").startswith("worlds=")):
        return None
    form = "\"worlds=[contention, {large: ['experiment=elastic', 'cluster.num_servers=64']}]\""
    return f"{error.override} cannot be read; expected words in quotes, such as {form}"


def _agent_as_scheduler(error: Exception, said: str) -> str | None:
    agent = said.partition("Could not find 'scheduler/")[2].partition("'")[0]
    if ":" not in agent:
        return None
    return (
        f"scheduler is {agent}; agents run in `ringyard compare schedulers=[{agent}]`, alone with"
        " scheduler=learned/agent scheduler.checkpoint=zoo:NAME (or a run folder)"
    )


def _unknown_choice(error: Exception, said: str) -> str | None:
    found = re.search(
        r"Could not find '([^']+)/([^'/]+)'\s+Available options in '[^']+':(.*)", said, re.DOTALL
    )
    if found is None:
        return None
    group, choice, options = found.groups()
    return f"{group} is {choice!r}; expected {nearest(choice, options.split())}; see --help {group}"


def _checkpoint(error: Exception, said: str) -> str | None:
    """Once the way to name the one agent of a comparison."""
    if "override 'checkpoint'" not in said:
        return None
    return "checkpoint has gone; name agents among the schedulers: schedulers=[fifo,mine:runs/mine]"


def _schedulers(error: Exception, said: str) -> str | None:
    if "Error merging override schedulers=" not in said:
        return None
    given = said.partition("schedulers=")[2].splitlines()[0]
    form = "[fifo@consolidate, {LABEL: {scheduler: NAME, options: {OPTION: VALUE}}}, ...]"
    return f"schedulers is {given}; expected a list such as {form}"


def _options(error: Exception, said: str) -> str | None:
    if "Could not override 'options'." not in said:
        return None
    given = getattr(error.__cause__, "full_key", "options.").partition(".")[2]
    return (
        f"options has {given}, which conf/tune.yaml has not; expected"
        " +options.NAME.OPTION=[VALUE, ...] to add it, ~options.NAME to leave one out"
    )


def _links(error: Exception, said: str) -> str | None:
    if not ("Could not override" in said and "@performance." in said):
        return None
    return (
        f"{said.splitlines()[0]} This performance model has no network or interconnect to choose;"
        " choose one that has them, too: performance=ring_10gbe (or composed, sharing, aws_g4dn, ...)"
    )


def _of_one_scheduler(error: Exception, said: str) -> str | None:
    found = re.search(r"Could not override '(scheduler|placement)[.']", said)
    if (
        found is None or getattr(error.__cause__, "full_key", found[1]) != found[1]
    ):  # it has one, without that option
        return None
    return (
        f"this command has no {found[1]}=, but several schedulers; name them, with rules and options:"
        ' "schedulers=[fifo, sjf@pack, {mine: {scheduler: fifo, options: {counted: true}}}]"'
    )


def _unknown_setting(error: Exception, said: str) -> str | None:
    found = re.match(r"Could not override '([^']+)'", said)
    cause = error.__cause__
    around = getattr(cause, "parent_node", None)
    if (
        found is None
        or not isinstance(cause, ConfigKeyError | ConfigAttributeError)
        or not isinstance(around, DictConfig)
    ):
        return None
    key = str(cause.key)
    known = [str(name) for name in around if not str(name).startswith("_") and name != "hydra"]
    place = f" in {place}" if (place := str(cause.full_key).rpartition(".")[0]) else ""
    return f"{found[1]}: there is no {key}{place}; expected {nearest(key, known)}; +{found[1]}=... adds it"


def _no_name_of_a_choice(error: Exception, said: str) -> str | None:
    if "Config group override must be a string" not in said:
        return None
    return "a group was given no name of a choice, but a number or null; --help GROUP lists its choices"


def _no_value(error: Exception, said: str) -> str | None:
    if not (isinstance(error, OverrideParseException) and "=" not in error.override):
        return None
    return f"{error.override!r} is no SETTING=VALUE; expected words such as seed=1; see --help"


_RULES: tuple[Callable[[Exception, str], str | None], ...] = (
    _unreadable_worlds,
    _agent_as_scheduler,
    _unknown_choice,
    _checkpoint,
    _schedulers,
    _options,
    _links,
    _of_one_scheduler,
    _unknown_setting,
    _no_name_of_a_choice,
    _no_value,
)
