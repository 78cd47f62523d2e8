"""`ringyard compare`: several schedulers on the same workloads."""

from collections.abc import Sequence

from ringyard_agents.commands.hydra_command import run_hydra

__all__ = ["run"]


def run(words: Sequence[str]) -> None:
    """Run it.

    Args:
        words: of the command line, after the command.

    Raises:
        RingyardError: bad input.
    """
    run_hydra("compare", "ringyard_agents.measuring.compare:compare", words)
