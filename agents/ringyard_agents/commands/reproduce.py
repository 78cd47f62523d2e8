"""`ringyard reproduce`: a paper's claims beside what is measured."""

from collections.abc import Sequence
from typing import Annotated

from ringyard_agents.command_line import Arguments

__all__ = ["run"]


def run(words: Sequence[str]) -> None:
    """Run one paper.

    Args:
        words: of the command line, after the command.

    Raises:
        RingyardError: bad input.
    """
    from ringyard.checks import require
    from ringyard.config_folder import config_files
    from ringyard.errors import ConfigurationError

    parser = Arguments(
        prog="ringyard reproduce",
        description="Run a paper's setting and print its claims beside what is measured.",
    )
    papers = ", ".join(config_files("reproduction"))
    parser.add_argument("paper", metavar="PAPER", nargs="?", help=f"one of {papers}")
    parser.add_argument("--seeds", type=int, help="workloads (default: each paper's own, 10 or more)")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    if words[:1] == ["agents"]:
        raise ConfigurationError(
            "agents: `python -m tools.agents` trains and judges them, in a checkout of the repository"
        )
    if "--all" in words or any(word.startswith("--out") for word in words):
        raise ConfigurationError(
            "--all, --out: `python -m tools.reproduction` writes the page of papers, in a checkout of the"
            " repository"
        )
    options = parser.parse_args(words)
    if options.paper is None:
        parser.error(f"name a paper: {papers}")
    require("--seeds", options.seeds, Annotated[int, "[2, 1000000]"] | None)
    require("--workers", options.workers, Annotated[int, "[1, 10000]"] | None)

    from ringyard_agents.reproduction.command import reproduce_paper

    reproduce_paper(options.paper, options.seeds, options.workers)
