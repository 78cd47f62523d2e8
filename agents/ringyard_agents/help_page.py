"""`ringyard COMMAND --help`: groups, and settings as the yamls have them; `--help NAME`: one of these."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import yaml

_WIDTH = 100


def asked_for(words: Sequence[str]) -> str | None:
    """What help is asked for: "" for a command's page, the word behind --help for more; None: none."""
    for position, word in enumerate(words):
        if word in ("-h", "--help"):
            others = [one for one in (*words[position + 1 :], *words[:position]) if not one.startswith("-")]
            return others[0] if others else ""
    return None


def help_page(command: str, does: str, topic: str = "") -> str:
    """The text to print.

    Args:
        command: has its settings in conf/<command>.yaml.
        does: what it does, a line.
        topic: of the command line behind --help: a group, GROUP=CHOICE, a setting; "": the command itself.

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
        said = (f"{'*' if one == groups.get(group) else ' '} {one}: {_first(files[one])}" for one in files)
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
    """({group: its default choice}, settings as they are written) of a yaml and those that it begins with."""
    from ringyard.config_folder import config_folder

    text = (config_folder() / f"{name}.yaml").read_text()
    groups, bodies = dict[str, str | None](), [_body(text)]
    for one in yaml.safe_load(text).get("defaults", ()):
        if isinstance(one, dict):
            groups |= {group: choice for group, choice in one.items() if not group.startswith("override ")}
        elif one != "_self_":
            inner, body = _read(one)
            groups, bodies = groups | inner, [*bodies, body]
    return groups, "\n\n".join(bodies)


def _body(text: str) -> str:
    """A yaml without its first comment and what is Hydra's."""
    text = re.sub(r"\A(#.*\n)+", "", text)
    return re.sub(r"^(defaults|hydra):.*\n(?:[ \t].*\n?|\n)*", "", text, flags=re.MULTILINE).strip()


def _choices(group: str) -> dict[str, Path]:
    """{name: yaml} of a group, also of those inside: learned/agent."""
    from ringyard.config_folder import config_files, config_folder

    files = config_files(group) if group and (config_folder() / group).is_dir() else {}
    inside = (config_folder() / group).glob("*/*.yaml") if files else ()
    return files | {f"{file.parent.name}/{file.stem}": file for file in inside}


def _first(file: Path) -> str:
    """The comment at the beginning of a yaml, its first sentence."""
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
