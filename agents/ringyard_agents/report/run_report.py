"""Report of one run: table of metrics, images and videos of the schedule."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ringyard.bounds import LowerBounds
from ringyard.checks import shown
from ringyard.errors import ConfigurationError
from ringyard.rendering.frames import require_video, save_video
from ringyard.rendering.history import ScheduleHistory
from ringyard.sim.metrics import Metrics
from ringyard_agents.report.tables import SECONDS
from ringyard_agents.runs.atomic_write import atomic_write, require_writable


def print_metrics(console: Console, title: str, metrics: Metrics, bounds: LowerBounds) -> None:
    """Print every metric of a run, and its gap to the lower bound on the mean JCT of the same jobs."""
    table = Table(title=title, show_header=False)
    for name, value in metrics.as_dict().items():
        unit = " (s)" if name.startswith(SECONDS) else ""
        number = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
        table.add_row(name.replace("_", " ") + unit, number)
    if metrics.blocking_rate == 0:  # the bound is that of all jobs
        table.add_row("gap to bound (mean jct / lower bound)", f"{metrics.mean_jct / bounds.mean_jct:.3f}")
    console.print(table)


def require_drawings(files: Mapping[str, Path]) -> None:
    """Raise a ConfigurationError if a schedule cannot be drawn into {"gantt": image, "video": video}."""
    for name, file in files.items():
        setting = f"output.{name}"
        try:
            from ringyard.rendering.chart import PICTURES
        except ImportError as error:
            raise ConfigurationError(
                f'{setting} needs {error.name}, which is not installed: pip install "ringyard[render]"'
            ) from error
        if name == "video":
            require_video(setting, file)
        elif file.suffix.lower() not in PICTURES:
            raise ConfigurationError(
                f"{setting} is {shown(str(file))}; expected a file ending in {', '.join(PICTURES)}"
            )
        require_writable(setting, file)


def draw_schedule(files: Mapping[str, Path], history: ScheduleHistory, frames: int) -> None:
    """Write a schedule's {"gantt": image, "video": video of some `frames`}, see `require_drawings`."""
    from ringyard.rendering.chart import save_gantt

    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as partial:
            if name == "gantt":
                save_gantt(partial, history)
                continue
            with Progress(console=Console(stderr=True), transient=True) as progress:
                for _ in progress.track(
                    save_video(partial, history, frames), frames, description="drawing video"
                ):
                    pass
