"""`ringyard watch`: schedulers on one workload, in a page for the browser."""

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
    run_hydra("watch", "ringyard_agents.watching.watch:watch", words)
