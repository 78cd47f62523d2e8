"""Messages for errors of Hydra and OmegaConf in command lines, which say what to type instead."""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from hydra.errors import OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from ringyard.checks import suggest
from ringyard.config_folder import config_files, config_folder
from ringyard.renamed import explain_renamed, renamed_names


def explain_error(error: Exception) -> str:
    """Explain an error of Hydra or OmegaConf in one line, with what to type if that is known."""
    if isinstance(error, MissingMandatoryValue):
        return f"{error.full_key} has no value; give {error.full_key}=..."
    if isinstance(error, OverrideParseException) and error.override.lstrip("+").startswith("environments="):
        form = "\"environments=[contention, {large: ['experiment=elastic', 'cluster.num_servers=64']}]\""
        return f"{error.override} cannot be read; expected words in quotes, such as {form}"
    if isinstance(error, OverrideParseException) and "=" not in error.override:
        return f"{error.override!r} is not SETTING=VALUE; expected words such as seed=1, see --help"
    message, key = str(error).partition("Config search path:")[0], getattr(error.__cause__, "full_key", "")
    if renamed := _explain_renamed(message, error.__cause__, key):
        return renamed
    explanations: dict[str, str] = yaml.safe_load((config_folder() / "messages.yaml").read_text())
    for pattern, text in explanations.items():
        if found := re.search(pattern, message):
            return text.format(*found.group(0, *range(1, len(found.groups()) + 1)), key=key.partition(".")[2])
    if found := re.search(r"Could not find '(.+)/(.+)'\s+Available options in '.+':([^']*)", message):
        group, choice, options = found.groups()
        return f"{group} is {choice!r}; expected {suggest(choice, options.split())}; see --help {group}"
    found = re.match("Could not override '([^']+)'", message)
    if found and (explained := _explain_unknown_setting(found[1], error.__cause__, key)):
        return explained
    lines = (line.strip() for line in message.splitlines() if line.strip())
    return " ".join(line if line[-1] in ".:;,?!" else f"{line}." for line in lines).rstrip(".")


def _explain_renamed(message: str, cause: BaseException | None, key: str) -> str | None:
    """Return what an old setting, choice or scheduler is called today; None for other errors."""
    if found := re.search(r"Could not find '(?:.+/)?([^/']+)/([^/']+)'", message):
        group, choice = found.groups()
        written = f"{group}={choice}"
        return explain_renamed("choices", written) or (
            explain_renamed("schedulers", choice, written) if group == "scheduler" else None
        )
    found = re.search("Could not override '([^']+)'", message)
    if found is None:
        return None
    around = getattr(cause, "parent_node", None)
    today = {str(name) for name in around} if isinstance(around, DictConfig) else set()
    place, _, last = key.rpartition(".")
    if place == "scheduler":
        names = (name for name, new in renamed_names("scheduler_options").items() if new in today)
        name = next((name for name in names if name.endswith(f".{last}")), "")
        return explain_renamed("scheduler_options", name, key)
    if place.startswith("options."):
        return explain_renamed("scheduler_options", key.removeprefix("options."), key)
    return explain_renamed("settings", key) or explain_renamed("settings", found[1])


def setting_paths(config: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of all settings in a plain config, each before those inside of it."""
    for name, value in config.items() if isinstance(config, dict) else ():
        yield f"{prefix}{name}"
        yield from setting_paths(value, f"{prefix}{name}.")


def _explain_unknown_setting(name: str, cause: BaseException | None, key: str) -> str | None:
    group = name.partition(".")[0]
    if group in ("scheduler", "placement") and key in ("", group):  # not an option of a single scheduler
        return (
            f"this command has no {group}=, since it runs several schedulers; expected"
            ' "schedulers=[fifo, srtf@pack, {mine: {scheduler: sjf, options: {reserve_unplaced: true}}}]"'
        )
    around = getattr(cause, "parent_node", None)
    if not isinstance(around, DictConfig):
        return None
    place, _, last = key.rpartition(".")
    paths = setting_paths(OmegaConf.to_container(around, resolve=False), f"{place}." * bool(place))
    inner = {path.rpartition(".")[2]: path for path in sorted(paths, key=lambda path: -path.count("."))}
    if last in inner:
        return f"{name}: there is no {last}{' in ' + place if place else ''}; expected {inner[last]}"
    known = [str(one) for one in around if not str(one).startswith("_") and one != "hydra"]
    if not place:
        known += ["experiment", "form", "debug", *(["sweep"] if "agent" in around else [])]
    if not known:
        return f"{name}: {place} has no settings with its present choice; see --help {group}"
    inside = f" in {place}" if place else ""
    expected = suggest(last, known)
    if expected not in known:
        line = re.compile(rf"^{re.escape(last)}:", re.MULTILINE)
        choices = [(group, *one) for group in map(str, around) for one in config_files(group).items()]
        matching = [one for one in choices if line.search(one[2].read_text())]
        has_it = (f"{group}={choice} {group}.{last}=" for group, choice, _ in matching)
        expected = next(has_it, "") or inner.get(suggest(last, inner)) or f"{expected}; +{name}=... adds it"
    return f"{name}: there is no {last}{inside}; expected {expected}"
