"""`ringyard COMMAND --help`: groups and settings on a screen; `--help NAME`: all of one of them."""

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

from ringyard_agents.commands.yaml_comments import Setting, defaults_of, said_by, settings_of

__all__ = ["asked_for", "help_page"]

_DEFAULTS = 30  # columns of names with their defaults


def _width() -> int:
    """Columns: the terminal's, 100 where there is none, and no more than the eye follows."""
    return min(max(shutil.get_terminal_size((100, 40)).columns, 80), 140)


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
    groups, settings = _read(command)
    if not topic:
        return _command_page(command, does, groups, settings)
    name, _, choice = topic.partition("=")
    name = name.lstrip("+~")
    group = name.partition("@")[0]
    files = _choices(group)
    if choice in files:
        return f"# {files[choice]}\n{files[choice].read_text()}"
    if files:
        return _group_page(command, group, groups.get(group), files)
    for one in settings:
        if one.name == name:
            return _setting_page(command, one)
    return _inside_page(command, name, groups)


def _read(command: str) -> tuple[dict[str, str | None], list[Setting]]:
    """(choices of the groups, settings) of a command, with those of the yamls that it begins with."""
    from ringyard.config_folder import config_folder

    groups: dict[str, str | None] = {}
    own = config_folder() / f"{command}.yaml"
    settings = settings_of(own)
    for group, choice in defaults_of(own):
        if group:
            groups[group] = choice
        else:
            file = config_folder() / f"{choice}.yaml"
            groups |= {name: leaf for name, leaf in defaults_of(file) if name}
            settings += settings_of(file)
    return groups, settings


def _choices(group: str) -> dict[str, Path]:
    """{name: yaml} of a group, also of those inside: learned/agent."""
    from ringyard.config_folder import config_files, config_folder

    files = config_files(group) if group and (config_folder() / group).is_dir() else {}
    inside = (config_folder() / group).glob("*/*.yaml") if files else ()
    return files | {f"{file.parent.name}/{file.stem}": file for file in inside}


def _command_page(command: str, does: str, groups: dict[str, str | None], settings: Iterable[Setting]) -> str:
    chosen = [f"{name}={'null' if choice is None else choice}" for name, choice in groups.items()]
    lines = [
        f"usage: ringyard {command} [GROUP=CHOICE] [SETTING=VALUE] ...",
        *textwrap.wrap(does, _width()),
        "",
        f"groups; `ringyard {command} --help GROUP` lists its choices:",
        *_columns(chosen),
        "",
        f"settings; `ringyard {command} --help SETTING` says all of it:",
        *(line for one in settings for line in _row(one)),
        "",
        "What is inside a group is set with dots (cluster.num_servers=8); --cfg job prints all of it.",
        "-m sweeps over SETTING=1,2; --config-dir FOLDER has your own yamls; --hydra-help: Hydra's options.",
    ]
    return "\n".join(lines) + "\n"


def _columns(words: Sequence[str]) -> list[str]:
    width = max(map(len, words)) + 2
    each = (_width() - 2) // width
    rows = [words[first : first + each] for first in range(0, len(words), each)]
    return ["  " + "".join(word.ljust(width) for word in row).rstrip() for row in rows]


def _row(setting: Setting) -> list[str]:
    first = setting.default.partition("\n")[0] or "{...}"
    said = textwrap.shorten(f"{setting.name}={first}", _DEFAULTS, placeholder=" ...")
    if said == "...":  # no place to cut it
        said = f"{setting.name}={first}"[: _DEFAULTS - 4] + " ..."
    return _told(f"  {said:{_DEFAULTS}}", setting.comment)


def _told(head: str, comment: str) -> list[str]:
    """A head and, beside it, as many whole statements of a comment as fit a line; the first in any case."""
    statements = re.split(r"(?<=;|\.) (?![^(]*\))", comment)
    width, taken = _width() - len(head) - 2, 1
    while taken < len(statements) and len(_first(statements, taken + 1)) <= width:
        taken += 1
    together = _first(statements, taken).replace(" ...", "\xa0...")  # dots begin no line
    lines = [line.replace("\xa0", " ") for line in textwrap.wrap(together, width)] or [""]
    return [f"{head}  {lines[0]}".rstrip(), *(f"{' ' * len(head)}  {line}" for line in lines[1:])]


def _first(statements: Sequence[str], count: int) -> str:
    """The first statements, with dots if there are more."""
    said = " ".join(statements[:count])
    return said if count == len(statements) else f"{said.rstrip('.; ')} ..."


def _group_page(command: str, group: str, default: str | None, files: dict[str, Path]) -> str:
    width = max(map(len, files))
    lines = [
        f"choices of {group}=... (* by default); `ringyard {command} --help {group}=CHOICE` prints its yaml:",
        *(
            line
            for name, file in files.items()
            for line in _told(f"{'*' if name == default else ' '} {name:{width}}", said_by(file))
        ),
    ]
    return "\n".join(lines) + "\n"


def _setting_page(command: str, setting: Setting) -> str:
    lines = [f"{setting.name}={setting.default}", *textwrap.wrap(setting.comment, _width())]
    return "\n".join(lines) + "\n"


def _inside_page(command: str, name: str, groups: dict[str, str | None]) -> str:
    """A setting inside a group, in each of the group's yamls that have it."""
    from ringyard.errors import ConfigurationError

    group, _, inside = name.partition(".")
    lines = []
    for choice, file in _choices(group).items() if inside and group in groups else ():
        for one in settings_of(file):
            if one.name == inside:
                lines += textwrap.wrap(
                    f"{group}={choice}: {name}={one.default}  {one.comment}", _width(), subsequent_indent="  "
                )
    if not lines:
        raise ConfigurationError(
            f"--help {name}: there is no such group or setting; expected one of {', '.join(groups)}, or a"
            f" setting that `ringyard {command} --help` lists"
        )
    return "\n".join(lines) + "\n"
