"""`ringyard fit-hazard`: how soon jobs end, learned from tenants that have ended theirs."""

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
    run_hydra("fit-hazard", "ringyard_agents.predictors.fit_hazard:fit_hazard", words)
