"""Command `ringyard simulate`: one scheduler on one workload, its metrics, images and videos."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from ringyard.bounds import simulation_bounds
from ringyard.checks import shown
from ringyard.errors import ConfigurationError
from ringyard.rendering.frames import save_video
from ringyard.rendering.history import ScheduleHistory, history_of
from ringyard.sim.metrics import job_times
from ringyard_agents.config.compose import plain_groups, to_plain
from ringyard_agents.evaluation.evaluate import run_to_end, sharing_notes
from ringyard_agents.evaluation.results_frame import jobs_frame, write_frame
from ringyard_agents.report.tables import SECONDS, print_line, print_note
from ringyard_agents.runs.atomic_write import atomic_write, require_writable
from ringyard_agents.runs.run_folder import RunFolder


def simulate(config: DictConfig) -> float:
    """Run the scheduler, print a table and write jobs.csv.

    Returns the mean JCT in seconds. Bad input is an error before anything is written.
    """
    with RunFolder.of_job("simulate").claim(config) as home:
        words = HydraConfig.get().overrides.task
        chosen = [word for word in words if word.partition("=")[0].lstrip("+~").split(".")[0] == "placement"]
        if chosen and to_plain(config.scheduler).get("placement") != to_plain(config.placement):
            name = HydraConfig.get().runtime.choices["scheduler"]
            raise ConfigurationError(
                f"{chosen[0]}: scheduler={name} has its own placement; leave placement out"
            )
        scheduler = instantiate(config.scheduler, _convert_="all")
        environment = plain_groups(config)
        files = {
            name: Path(file).expanduser() for name, file in config.output.items() if isinstance(file, str)
        }
        drawings = {name: files[name] for name in ("gantt", "video") if name in files}
        _require_drawings(drawings)
        recorded: dict[str, Any] = {} if drawings else {"segment_rows": 0}
        rounds = config.round_seconds, config.rounds_only
        sim = run_to_end(scheduler, environment, 0, config.seed, *rounds, **recorded)
        window = tuple(config.measured_jobs)
        metrics, bounds = sim.metrics(window), simulation_bounds(sim, window)
        jobs = jobs_frame(scheduler.name, 0, job_times(sim.state, 0, sim.jobs))
        home.record(config, {"seed": config.seed})
        written = home.path / "jobs.csv"
        for file in (written, files.get("jobs_csv", written)):
            write_frame(file, jobs)
        console = Console()
        title = f"{scheduler.name} (observability: {scheduler.total_observability})"
        table = Table(title=title, show_header=False)
        for name, value in metrics.as_dict().items():
            unit = " (s)" if name.startswith(SECONDS) else ""
            number = f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"
            table.add_row(name.replace("_", " ") + unit, number)
        if metrics.blocking_rate == 0:  # the bound is that of all jobs
            table.add_row(
                "gap to bound (mean jct / lower bound)", f"{metrics.mean_jct / bounds.mean_jct:.3f}"
            )
        console.print(table)
        for note in sharing_notes(sim):
            print_note(console, note)
        print_line(console, f"jobs: {written}")
        if drawings:
            _draw(drawings, history_of(sim.state, 0, sim.cluster), config.output.frames)
        for file in drawings.values():
            print_line(console, f"schedule: {file}")
        return metrics.mean_jct


def _require_drawings(files: Mapping[str, Path]) -> None:
    """Raise a ConfigurationError if a schedule cannot be drawn into {"gantt": image, "video": video}."""
    for name, file in files.items():
        setting = f"output.{name}"
        try:
            from ringyard.rendering.chart import PICTURES
        except ImportError as error:
            raise ConfigurationError(
                f'{setting} needs {error.name}, which is not installed: pip install "ringyard[render]"'
            ) from error
        endings = [".gif"] if name == "video" else PICTURES
        if file.suffix.lower() not in endings:
            raise ConfigurationError(
                f"{setting} is {shown(str(file))}; expected a file ending in {', '.join(endings)}"
            )
        require_writable(setting, file)


def _draw(files: Mapping[str, Path], history: ScheduleHistory, frames: int) -> None:
    """Write a schedule's {"gantt": image, "video": video of some `frames`}, see `_require_drawings`."""
    from ringyard.rendering.chart import save_gantt

    for name, file in files.items():
        with atomic_write(file) as partial:
            if name == "gantt":
                save_gantt(partial, history)
                continue
            drawn = save_video(partial, history, frames)
            with Progress(console=Console(stderr=True), transient=True) as progress:
                for _ in progress.track(drawn, frames, description="drawing video"):
                    pass
