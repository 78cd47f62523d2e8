"""`ringyard reproduce`: a paper's claims, printed beside what is measured."""

from rich.console import Console
from rich.table import Table

from ringyard_agents.evaluation.statistics import small_sample_warning
from ringyard_agents.reproduction.claims import claim_rows
from ringyard_agents.reproduction.run import Reproduction, reproduce

__all__ = ["reproduce_paper"]


def reproduce_paper(paper: str, seeds: int | None, workers: int | None) -> Reproduction:
    """Run a paper's setting and print its claims beside what is measured.

    Args:
        paper: name of a yaml in conf/reproduction.
        seeds: workloads; None: the paper's own.
        workers: processes; None: one per core.

    Returns:
        What was measured.

    Raises:
        RingyardError: bad input.
    """
    console = Console()
    one = reproduce(paper, seeds, workers, lambda line: console.print(line, style="dim"))
    table = Table(title=f"{one.title}; {one.seeds} seeds", title_justify="left")
    for title in ("claim", "claimed", "measured [95% CI]", "reproduced"):
        table.add_column(title)
    for row in claim_rows(one.measured):
        table.add_row(*row)
    console.print(table)
    warning = small_sample_warning(one.seeds)
    if warning is not None:
        console.print(warning, soft_wrap=True, highlight=False)
    return one
