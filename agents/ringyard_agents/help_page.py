"""The pages of `ringyard COMMAND --help [TOPIC]`, made from the yamls and their comments."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

import yaml

from ringyard_agents.command_line import fill

#: a line of a yaml: its indent, its setting, and the comment behind it
_LINE = re.compile(r"""( *)((?:[^"'#]|"[^"]*"|'[^']*'|(?<=\S)#)*?)\s*(?:(?:^|(?<=\s))#(.*))?""")


def help_topic(words: Sequence[str]) -> str | None:
    """Return the topic after --help, "" for the command itself, or None without --help."""
    for position, word in enumerate(words):
        if word in ("-h", "--help"):
            others = [one for one in (*words[position + 1 :], *words[:position]) if not one.startswith("-")]
            return others[0] if others else ""
    return None


def help_page(command: str, description: str, topic: str = "") -> str:
    """Return the help of a command or of a `topic`: a group, GROUP=CHOICE or a setting."""
    groups, bodies = _read(command)
    if not topic:
        chosen = "  ".join(f"{name}={'null' if one is None else one}" for name, one in groups.items())
        texts = {"description": fill(description), "groups": fill(f"  {chosen}", "  ")}
        texts["settings"] = wrap_yaml(textwrap.indent(bodies, "  "))
        return Path(__file__).with_suffix(".txt").read_text().format(command=command, **texts)
    name, _, choice = topic.lstrip("+~").partition("=")
    group, _, inside = name.partition("@")[0].partition(".")
    files = _choices(group)
    if choice in files and not inside:
        return f"# {files[choice]}\n{wrap_yaml(files[choice].read_text())}"
    if files and not inside:
        lines = (
            fill(f"{'*' if one == groups.get(group) else ' '} {one}: {_first_sentence(files[one])}", "    ")
            for one in files
        )
        head = fill(f"choices of {group}=... (*: default); --help {group}=CHOICE prints a yaml:")
        return "\n".join([head, *lines]) + "\n"
    texts = {f"{group}={one}: ": file.read_text() for one, file in files.items()} if files else {"": bodies}
    key = re.compile(rf"^((?: *#.*\n)*) *{re.escape(name.rpartition('.')[2])}:.*$", re.MULTILINE)
    found = [label + textwrap.dedent(one[0]) for label, text in texts.items() for one in key.finditer(text)]
    if not found:
        from ringyard.checks import suggest
        from ringyard.errors import ConfigurationError

        raise ConfigurationError(
            f"--help {name}: there is no such group or setting; expected {suggest(name, groups)}, or a"
            f" setting that `ringyard {command} --help` lists"
        )
    return wrap_yaml("\n".join(found) + "\n")


def wrap_yaml(text: str) -> str:
    """Break the lines of a yaml that do not fit the terminal, with the comment of a setting above it."""
    lines = []
    for line in text.splitlines():
        if fill(line).rstrip() == line.rstrip():
            lines.append(line)
            continue
        found = _LINE.fullmatch(line)
        indent, setting, comment = found.groups() if found else ("", line, None)
        lines += [fill(f"{indent}#{comment}", f"{indent}# ")] if comment else []
        lines += [fill(indent + setting, f"{indent}    ")] if setting else []
    return "\n".join(lines) + "\n"


def _read(name: str) -> tuple[dict[str, str | None], str]:
    """Return ({group: default choice}, text of the settings) of a yaml and the yamls it includes."""
    from ringyard.config_folder import config_folder

    text = (config_folder() / f"{name}.yaml").read_text()
    # without its first comment and Hydra's parts
    own = re.sub(r"^(defaults|hydra):.*\n(?:[ \t].*\n?|\n)*", "", re.sub(r"\A(#.*\n)+", "", text), flags=re.M)
    groups, bodies = dict[str, str | None](), [own.strip()]
    for one in yaml.safe_load(text).get("defaults", ()):
        if isinstance(one, dict):
            groups |= {group: choice for group, choice in one.items() if not group.startswith("override ")}
        elif one != "_self_":
            inner, body = _read(one)
            groups, bodies = groups | inner, [*bodies, body]
    return groups, "\n\n".join(bodies)


def _choices(group: str) -> dict[str, Path]:
    """Return {name: yaml} of a group and of the groups inside it, such as learned/agent."""
    from ringyard.config_folder import config_files, config_folder

    files = config_files(group) if group and (config_folder() / group).is_dir() else {}
    inside = (config_folder() / group).glob("*/*.yaml") if files else ()
    return files | {f"{file.parent.name}/{file.stem}": file for file in inside}


def _first_sentence(file: Path) -> str:
    """Return the first sentence of a yaml's first comment."""
    comment = re.match(r"(?:# @package.*\n)?((?:#.*\n)*)", file.read_text())
    text = " ".join(line.lstrip("# ") for line in comment[1].splitlines()) if comment else ""
    return re.split(r"(?<=\.) ", text)[0]
