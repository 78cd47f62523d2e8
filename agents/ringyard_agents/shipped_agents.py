"""Pretrained agents, `zoo:NAME`: those of the package and those in folders that RINGYARD_CONF names.

mine/zoo/NAME.safetensors replaces a pretrained agent of that name if its recipe mine/zoo/NAME.yaml is there.
"""

import json
from pathlib import Path

from ringyard.checks import shown
from ringyard.config_folder import user_config_folders
from ringyard.errors import CheckpointError

#: what the name of an agent that ships begins with
ZOO = "zoo:"


def zoo_folders() -> list[Path]:
    """Folders of weights and records: of the package, then of RINGYARD_CONF."""
    return [Path(__file__).parent / "zoo", *(folder / "zoo" for folder in reversed(user_config_folders()))]


def shipped_agents() -> dict[str, Path]:
    """{name: weights}, by name.

    Raises:
        CheckpointError: a user's agent has the name of a pretrained one, and no recipe beside it.
    """
    shipped, *own = ({file.stem: file for file in one.glob("*.safetensors")} for one in zoo_folders())
    files = dict(shipped)
    for agents in own:
        for name, file in agents.items():
            if name in shipped and not file.with_suffix(".yaml").is_file():
                raise CheckpointError(
                    f"{file} has the name of an agent that ships; expected another name, or its recipe"
                    f" {name}.yaml beside it, which says that it replaces that one"
                )
        files.update(agents)
    return dict(sorted(files.items()))


def agents_judged_in(world: str) -> list[str]:
    """`zoo:NAME` of the agents whose record has figures of an experiment, by name.

    Raises:
        CheckpointError: a record is none; or see `shipped_agents`.
    """
    agents = shipped_agents().items()
    return [f"{ZOO}{name}" for name, file in agents if world in _judged_in(file.with_suffix(".json"))]


def _judged_in(record: Path) -> list[str]:
    """Worlds of a record; none if there is no such file."""
    try:
        worlds = json.loads(record.read_text())["worlds"] if record.is_file() else []
        return [str(world["label"]) for world in worlds]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{record} is no record of an agent; expected what `python -m tools.agents` writes:"
            f" {shown(error)}"
        ) from error


def agent_place(given: str) -> Path:
    """The file of `zoo:NAME`; the path itself of anything else, which need not exist.

    Raises:
        CheckpointError: no agent of that name ships, or see `shipped_agents`.
    """
    if not given.startswith(ZOO):
        return Path(given).expanduser()
    agents = shipped_agents()
    name = given.removeprefix(ZOO)
    if name not in agents:
        known = ", ".join(ZOO + one for one in agents) or "none: this installation ships no agents"
        raise CheckpointError(f"there is no agent {given!r} in the zoo; expected one of {known}")
    return agents[name]
