"""`ringyard reproduce`: papers' claims beside what is measured, and the agents that ship."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Annotated

from ringyard_agents.command_line import Arguments

__all__ = ["run"]


def run(words: Sequence[str]) -> None:
    """Run one paper or all, or train and judge the agents that ship.

    Args:
        words: of the command line, after the command.

    Raises:
        RingyardError: bad input.
    """
    if words[:1] == ["agents"]:
        _agents(words[1:])
        return
    from ringyard.config_folder import config_files

    papers = list(config_files("reproduction"))
    options = _options_of_papers(words, papers)
    names = papers if options.all else [options.paper]
    out = options.out or ("docs/reproduction.md" if options.all else None)

    from ringyard_agents.reproduction.command import reproduce_papers

    reproduce_papers(names, options.seeds, options.workers, out)


def _options_of_papers(words: Sequence[str], papers: Sequence[str]) -> Namespace:
    parser = Arguments(
        prog="ringyard reproduce",
        description="Run a paper's setting and print its claims beside what is measured.",
    )
    parser.add_argument(
        "paper",
        metavar="PAPER",
        nargs="?",
        help=f"one of {', '.join(papers)}; agents: train and judge those that ship "
        "(`ringyard reproduce agents --help`)",
    )
    parser.add_argument("--all", action="store_true", help="every paper")
    parser.add_argument("--seeds", type=int, help="workloads (default: each paper's own, 10 or more)")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--out", help="also write a page (with --all: docs/reproduction.md)")
    options = parser.parse_args(words)
    if options.paper == "agents":
        parser.error("agents comes first: ringyard reproduce agents [--only NAME] ...")
    if (options.paper is None) != options.all:
        parser.error("name one paper, or say --all")
    _require_counts(options, "seeds", "workers")
    return options


def _agents(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard reproduce agents",
        description="Train the agents of conf/zoo, ship the best seeds, judge them, write the page.",
    )
    parser.add_argument("--only", metavar="NAME", help="one agent (default: all)")
    parser.add_argument("--skip-training", action="store_true", help="judge the weights that ship")
    parser.add_argument(
        "--new-worlds",
        action="store_true",
        help="the same, where their record has no figures; it keeps those it has",
    )
    parser.add_argument(
        "--workloads",
        type=int,
        help="in each world, to try it: for the page alone (default: as many as the recipe says)",
    )
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--out", default="docs/agents.md", help="the page (%(default)s)")
    options = parser.parse_args(words)
    _require_counts(options, "workloads", "workers")

    from ringyard_agents.reproduction.zoo_command import reproduce_agents

    reproduce_agents(
        options.only,
        options.skip_training,
        options.workloads,
        options.workers,
        options.out,
        options.new_worlds,
    )


def _require_counts(options: Namespace, of_workloads: str, of_processes: str) -> None:
    from ringyard.checks import require

    require(f"--{of_workloads}", getattr(options, of_workloads), Annotated[int, "[2, 1000000]"] | None)
    require(f"--{of_processes}", getattr(options, of_processes), Annotated[int, "[1, 10000]"] | None)
