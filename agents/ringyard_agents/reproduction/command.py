"""The command line of `ringyard reproduce`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from ringyard.checks import require
from ringyard_agents.command_line import Arguments
from ringyard_agents.measuring.statistics import caution
from ringyard_agents.reproduction.page import claim_rows, page
from ringyard_agents.reproduction.run import papers, reproduce

__all__ = ["main"]


def main(words: Sequence[str]) -> None:
    """Run one paper or all, or train and judge the agents that ship.

    Args:
        words: as on the command line, after `reproduce`.

    Raises:
        RingyardError: bad input.
    """
    if words[:1] == ["agents"]:
        from ringyard_agents.reproduction.zoo_command import reproduce_agents

        reproduce_agents(words[1:])
        return
    parser = Arguments(
        prog="ringyard reproduce",
        description="Run a paper's setting and print its claims beside what is measured.",
    )
    parser.add_argument(
        "paper", nargs="?", help=f"one of {', '.join(papers())}; agents: train and judge those that ship"
    )
    parser.add_argument("--all", action="store_true", help="every paper")
    parser.add_argument(
        "--seeds", type=int, default=None, help="workloads (default: each paper's own, 10 or more)"
    )
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one per core)")
    parser.add_argument("--out", default=None, help="also write a page (with --all: docs/reproduction.md)")
    options = parser.parse_args(words)
    if options.paper == "agents":
        parser.error("agents comes first: ringyard reproduce agents [--only NAME] ...")
    if (options.paper is None) != options.all:
        parser.error("name one paper, or say --all")
    require("--seeds", options.seeds, Annotated[int, "[2, 1000000]"] | None)
    require("--workers", options.workers, Annotated[int, "[1, 10000]"] | None)
    console = Console()
    done = []
    out = options.out or ("docs/reproduction.md" if options.all else None)
    for paper in papers() if options.all else [options.paper]:
        one = reproduce(paper, options.seeds, options.workers, lambda line: console.print(line, style="dim"))
        done.append(one)
        table = Table(title=f"{one.title}; {one.seeds} seeds", title_justify="left")
        for title in ("claim", "claimed", "measured [95% CI]", "reproduced"):
            table.add_column(title)
        for row in claim_rows(one.measured):
            table.add_row(*row)
        console.print(table)
        warning = caution(one.seeds)
        if warning is not None:
            console.print(warning, soft_wrap=True, highlight=False)
        if out is not None:  # what has been computed stays if a later paper fails
            file = Path(out).expanduser()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(page(done))
    if out is not None:
        console.print(f"page: {out}", soft_wrap=True)
