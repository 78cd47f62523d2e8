"""Texts of `ringyard COMMAND --help` and `--help NAME`, from the yamls and their comments."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import yaml

_WIDTH = 100


def help_topic(words: Sequence[str]) -> str | None:
    """The topic of --help, "" for the command itself; None without --help."""
    for position, word in enumerate(words):
        if word in ("-h", "--help"):
            others = [one for one in (*words[position + 1 :], *words[:position]) if not one.startswith("-")]
            return others[0] if others else ""
    return None


def help_page(command: str, does: str, topic: str = "") -> str:
    """The help of a command, or of a topic.

    Args:
        command: has its settings in conf/<command>.yaml.
        does: what the command does, one line.
        topic: a group, GROUP=CHOICE or a setting; "" for the command itself.

    Raises:
        ConfigurationError: there is no such topic.
    """
    groups, bodies = _read(command)
    if not topic:
        return _command_page(command, does, groups, bodies)
    name, _, choice = topic.lstrip("+~").partition("=")
    group, _, inside = name.partition("@")[0].partition(".")
    files = _choices(group)
    if choice in files and not inside:
        return f"# {files[choice]}\n{files[choice].read_text()}"
    if files and not inside:
        said = (
            f"{'*' if one == groups.get(group) else ' '} {one}: {_first_sentence(files[one])}"
            for one in files
        )
        head = f"choices of {group}=... (* by default); `--help {group}=CHOICE` prints its yaml:"
        return "\n".join([head, *said]) + "\n"
    texts = {f"{group}={one}: ": file.read_text() for one, file in files.items()} if files else {"": bodies}
    key = re.compile(rf"^((?: *#.*\n)*) *{re.escape(name.rpartition('.')[2])}:.*$", re.MULTILINE)
    found = [label + textwrap.dedent(one[0]) for label, text in texts.items() for one in key.finditer(text)]
    if not found:
        from ringyard.errors import ConfigurationError

        raise ConfigurationError(
            f"--help {name}: there is no such group or setting; expected one of {', '.join(groups)}, or a"
            f" setting that `ringyard {command} --help` lists"
        )
    return "\n".join(found) + "\n"


def _read(name: str) -> tuple[dict[str, str | None], str]:
    """({group: default choice}, text of the settings) of a yaml and its defaults."""
    from ringyard.config_folder import config_folder

    text = (config_folder() / f"{name}.yaml").read_text()
    groups, bodies = dict[str, str | None](), [_settings_text(text)]
    for one in yaml.safe_load(text).get("defaults", ()):
        if isinstance(one, dict):
            groups |= {group: choice for group, choice in one.items() if not group.startswith("override ")}
        elif one != "_self_":
            inner, body = _read(one)
            groups, bodies = groups | inner, [*bodies, body]
    return groups, "\n\n".join(bodies)


def _settings_text(text: str) -> str:
    """A yaml without its first comment and Hydra's parts."""
    text = re.sub(r"\A(#.*\n)+", "", text)
    return re.sub(r"^(defaults|hydra):.*\n(?:[ \t].*\n?|\n)*", "", text, flags=re.MULTILINE).strip()


def _choices(group: str) -> dict[str, Path]:
    """{name: yaml} of a group and of groups inside it, such as learned/agent."""
    from ringyard.config_folder import config_files, config_folder

    files = config_files(group) if group and (config_folder() / group).is_dir() else {}
    inside = (config_folder() / group).glob("*/*.yaml") if files else ()
    return files | {f"{file.parent.name}/{file.stem}": file for file in inside}


def _first_sentence(file: Path) -> str:
    """The first sentence of a yaml's first comment."""
    said = re.match(r"(?:# @package.*\n)?((?:#.*\n)*)", file.read_text())
    text = " ".join(line.lstrip("# ") for line in said[1].splitlines()) if said else ""
    return re.split(r"(?<=\.) ", text)[0]


def _command_page(command: str, does: str, groups: dict[str, str | None], bodies: str) -> str:
    chosen = "  ".join(f"{name}={'null' if choice is None else choice}" for name, choice in groups.items())
    return f"""usage: ringyard {command} [GROUP=CHOICE] [SETTING=VALUE] ...
{does}

groups; `ringyard {command} --help GROUP` lists its choices, --help GROUP=CHOICE prints a yaml:
{textwrap.fill(chosen, _WIDTH, initial_indent="  ", subsequent_indent="  ")}

settings, as `ringyard {command} SETTING=VALUE`; dots for what is inside (output.gantt=jobs.png):
{textwrap.indent(bodies, "  ")}

What is inside a group is set with dots (cluster.num_servers=8); --cfg job prints all of it.
-m sweeps over SETTING=1,2; --config-dir FOLDER has your own yamls; --hydra-help: Hydra's options.
"""
