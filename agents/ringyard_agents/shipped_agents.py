"""Agents that ship: what `zoo:NAME` means, wherever a trained agent's run folder is taken."""

from pathlib import Path

from ringyard.errors import CheckpointError

__all__ = ["ZOO", "agent_place", "shipped_agents", "zoo_folder"]

#: what the name of an agent that ships begins with
ZOO = "zoo:"


def zoo_folder() -> Path:
    """Where weights and records of the agents are that ship."""
    return Path(__file__).parent / "zoo"


def shipped_agents() -> dict[str, Path]:
    """{name: weights} of the agents that ship, by name."""
    return {file.stem: file for file in sorted(zoo_folder().glob("*.safetensors"))}


def agent_place(given: str) -> Path:
    """The file of `zoo:NAME`; the path itself of anything else, which need not exist.

    Raises:
        CheckpointError: no agent of that name ships.
    """
    if not given.startswith(ZOO):
        return Path(given).expanduser()
    agents = shipped_agents()
    name = given.removeprefix(ZOO)
    if name not in agents:
        known = ", ".join(ZOO + one for one in agents) or "none: this installation ships no agents"
        raise CheckpointError(f"there is no agent {given!r} in the zoo; expected one of {known}")
    return agents[name]
