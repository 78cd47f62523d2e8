"""How far learning is, on screen."""

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ringyard_agents.learning.evaluation import Evaluation, ratio

__all__ = ["ProgressBar"]


class ProgressBar:
    """A progress bar with the latest evaluation; use it in a `with` block.

    Args:
        total: decisions to learn from.
        evaluation: whose result is shown.
        console: where.
    """

    def __init__(self, total: int, evaluation: Evaluation, console: Console) -> None:
        self.evaluation = evaluation
        self._bar = Progress(
            TextColumn("learning"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} decisions"),
            TextColumn("{task.fields[latest]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._total = total
        self._task = self._bar.add_task("learning", total=total, latest="")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.stop()

    def show(self) -> None:
        """Show how far learning is."""
        found = self.evaluation
        ratios = [f"{ratio(found.latest, value):.3f} x {name}" for name, value in found.baselines.items()]
        self._bar.update(
            self._task,
            completed=min(found.learner.decisions, self._total),
            latest=f"{found.metric} " + ", ".join(ratios),
        )
