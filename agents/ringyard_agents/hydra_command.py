"""Run a command that takes Hydra overrides, once or as a sweep, or print its `--help [TOPIC]`."""

import os
import re
import sys
import textwrap
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files as files_of
from pathlib import Path

import yaml

from ringyard_agents.command_line import fill

_SEARCH_PATH = "hydra.searchpath"

#: prefixes of overrides of `train` that may name an agent or run to start from
_INHERITING_OPTIONS = ("init=", "resume=")


def run_hydra(command: str, description: str, function_path: str, words: Sequence[str]) -> None:
    """Run a command that takes Hydra overrides; a sweep runs all jobs and names those that failed.

    `function_path`, `module:function`, takes the composed config. It is imported once the config is checked.
    """
    topic = help_topic(words)
    if topic is not None:
        print(help_page(command, description, topic), end="")
        return

    import hydra

    from ringyard.config_folder import add_user_config_folders, config_folder
    from ringyard_agents.runs.sweep_job import HydraJob

    options = _options(words)
    add_user_config_folders(_search_folders(command, options))
    task = HydraJob(command, function_path)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors are raised here instead of printed by Hydra
    if command == "train" and any(word.lstrip("+").startswith(_INHERITING_OPTIONS) for word in words):
        from ringyard_agents.learning.resume import add_inherited_parts

        words = add_inherited_parts(words)  # adds the settings of the agent of init= or resume=
    options = _options(words)
    flags = [word for word in words if word not in options.overrides]
    sys.argv = [f"ringyard {command}", *flags, *options.overrides]  # Hydra wants overrides in one piece
    start = hydra.main(str(config_folder()), command, version_base="1.3")(task)
    if options.multirun and not (options.cfg or options.help or options.info or options.hydra_help):
        from ringyard_agents.report.sweep_report import report_sweep
        from ringyard_agents.runs.sweep import run_sweep

        run_sweep(command, options.overrides, options.config_dir, start, report_sweep)
    else:
        start()
        if task.failures:
            raise task.failures[0]


def _options(words: Sequence[str]) -> Namespace:
    """Parse Hydra's options. Raises ConfigurationError for unknown or refused ones."""
    from hydra._internal.utils import get_args_parser

    from ringyard.errors import ConfigurationError
    from ringyard_agents.command_line import Arguments

    parser = get_args_parser()
    parser.__class__ = Arguments
    options: Namespace = parser.parse_intermixed_args(words)
    options.multirun |= any(word.lstrip("+") == "hydra.mode=MULTIRUN" for word in options.overrides)
    if options.multirun and any(word.startswith("resume=") for word in options.overrides):
        raise ConfigurationError("resume continues one run; call it without -m, once for each run")
    if options.experimental_rerun is not None:
        raise ConfigurationError(
            "--experimental-rerun is refused, since it loads a pickle, which may run any code; give overrides"
        )
    return options


def _search_folders(command: str, options: Namespace) -> list[Path]:
    """Return the existing folders of --config-dir and hydra.searchpath, in Hydra's order."""
    from omegaconf import OmegaConf

    from ringyard.config_folder import config_folder

    named = [] if options.config_dir is None else [Path(options.config_dir)]
    words = [word.lstrip("+") for word in options.overrides if word.lstrip("+").startswith(_SEARCH_PATH)]
    name = f"{(options.config_name or command).removesuffix('.yaml')}.yaml"
    files = (place / name for place in (config_folder(), *named))
    with suppress(Exception):  # Hydra reports the error later
        config = OmegaConf.from_dotlist(words) if words else OmegaConf.load(next(filter(Path.is_file, files)))
        for one in map(str, OmegaConf.select(config, _SEARCH_PATH)):
            package = one.startswith("pkg://")
            named.append(Path(str(files_of(one[6:]))) if package else Path(one.removeprefix("file://")))
    return [folder for folder in named if folder.is_dir()]


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
        return Path(__file__).with_name("help_page.txt").read_text().format(command=command, **texts)
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
