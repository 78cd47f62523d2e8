"""One schedule of each scheduler of a comparison as a picture in TensorBoard: who held which GPUs."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from ringyard.drawing.history import history_of
from ringyard_agents.evaluation.evaluate import Task
from ringyard_agents.evaluation.process_pool import run_in_processes
from ringyard_agents.evaluation.schedule_log import played

__all__ = ["add_schedules", "schedules_of"]

_TAG = "schedule/gantt"
_INCHES, _DPI = (12.8, 7.2), 60

#: seconds; schedulers whose fastest run took longer are not played again
_LONGEST_SECONDS = 60.0


def schedules_of(tasks: Sequence[Task], runs: pd.DataFrame) -> tuple[list[Task], list[str]]:
    """(tasks of the first workload that are drawn, labels of those that took too long).

    Args:
        tasks: of a comparison.
        runs: of `Results`, of the schedulers that finished.
    """
    first = runs["workload"].min()
    took = runs.groupby("scheduler")["wall_seconds"].min()  # the first ones may have compiled something
    own = [task for task in tasks if task.workload == first and task.label in took.index]
    short = [task for task in own if took[task.label] <= _LONGEST_SECONDS]
    return short, [task.label for task in own if task not in short]


def add_schedules(tasks: Sequence[Task], folder: Path, workers: int | None, console: Console) -> None:
    """Play tasks once more, and draw each into its scheduler's run; one that fails is said and left out.

    Args:
        tasks: a scheduler each.
        folder: of TensorBoard, with a run for each scheduler.
        workers: processes; None: one per core.
        console: shows progress.
    """
    from torch.utils.tensorboard import SummaryWriter

    outcomes = run_in_processes(_picture, tasks, workers)
    with contextlib.closing(outcomes), Progress(console=console, transient=True) as bar:
        for task, picture in bar.track(outcomes, len(tasks), description="drawing schedules"):
            if isinstance(picture, Exception):
                console.print(f"no schedule of {task.label}: {picture}", soft_wrap=True, markup=False)
                continue
            with SummaryWriter(str(folder / task.label)) as writer:
                writer.add_image(_TAG, picture, task.workload, dataformats="HWC")


def _picture(task: Task) -> NDArray[np.uint8]:
    """[height, width, 3] pixels of who held which GPUs, from the first job to the last."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from ringyard.drawing.chart import Chart

    sim = played(task.scheduler, task.world, task.workload, task.seed)
    figure = Figure(figsize=_INCHES, dpi=_DPI)
    FigureCanvasAgg(figure)
    chart = Chart(sim.cluster, live=False, figure=figure)
    chart.draw(history_of(sim.state, 0, sim.cluster))
    return chart.pixels()
