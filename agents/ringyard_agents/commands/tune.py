"""`ringyard tune`: the placement rule and options that suit each scheduler in a setting."""

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
    run_hydra("tune", "ringyard_agents.measuring.tune:tune", words)
