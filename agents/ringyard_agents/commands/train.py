"""`ringyard train`: train an agent."""

from collections.abc import Sequence

from ringyard_agents.commands.hydra_command import run_hydra

__all__ = ["run"]

#: beginnings of words that may name an agent to begin with, or a run to go on with
_SAY_INIT = ("init=", "resume=", "experiment=", "debug=")


def run(words: Sequence[str]) -> None:
    """Run it.

    Args:
        words: of the command line, after the command.

    Raises:
        RingyardError: bad input.
    """
    run_hydra("train", "ringyard_agents.learning.train:train", words, _with_agent)


def _with_agent(words: Sequence[str]) -> Sequence[str]:
    """The words, with the parts of the agent that is to learn on, if they name one."""
    if not any(word.lstrip("+").startswith(_SAY_INIT) for word in words):
        return words
    from ringyard_agents.learning.warm_start import inherited

    return inherited(words)
