"""`ringyard reproduce`: papers' claims beside what is measured, and the agents that ship."""

from collections.abc import Sequence

__all__ = ["run"]


def run(words: Sequence[str]) -> None:
    """Run it.

    Args:
        words: of the command line, after the command.

    Raises:
        RingyardError: bad input.
    """
    from ringyard_agents.reproduction.command import main as reproduce

    reproduce(words)
