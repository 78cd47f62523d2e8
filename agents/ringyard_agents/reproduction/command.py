"""`ringyard reproduce`: papers' claims, printed and written as they are measured."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ringyard_agents.evaluation.statistics import small_sample_warning
from ringyard_agents.reproduction.page import claim_rows, page
from ringyard_agents.reproduction.run import reproduce

__all__ = ["reproduce_papers"]


def reproduce_papers(names: Sequence[str], seeds: int | None, workers: int | None, out: str | None) -> None:
    """Run papers' settings and print their claims beside what is measured.

    Args:
        names: of `papers()`.
        seeds: workloads; None: each paper's own.
        workers: processes; None: one per core.
        out: also write a page there.

    Raises:
        RingyardError: bad input.
    """
    console = Console()
    done = []
    for paper in names:
        one = reproduce(paper, seeds, workers, lambda line: console.print(line, style="dim"))
        done.append(one)
        table = Table(title=f"{one.title}; {one.seeds} seeds", title_justify="left")
        for title in ("claim", "claimed", "measured [95% CI]", "reproduced"):
            table.add_column(title)
        for row in claim_rows(one.measured):
            table.add_row(*row)
        console.print(table)
        warning = small_sample_warning(one.seeds)
        if warning is not None:
            console.print(warning, soft_wrap=True, highlight=False)
        if out is not None:  # what has been computed stays if a later paper fails
            file = Path(out).expanduser()
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(page(done))
    if out is not None:
        console.print(f"page: {out}", soft_wrap=True)
