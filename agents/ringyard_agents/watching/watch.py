"""`ringyard watch`: run schedulers on one workload, write a page that plays their schedules side by side."""

import sys
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from ringyard.checks import shown
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.config.compose import WORLD, plain, scheduler_config
from ringyard_agents.evaluation.evaluate import build
from ringyard_agents.evaluation.schedule_log import played
from ringyard_agents.evaluation.selection import SEED_OFFSET, drawn_for, entries_of, supported_schedulers
from ringyard_agents.runs.atomic_write import atomic_write, require_writable
from ringyard_agents.runs.run_folder import RunFolder
from ringyard_agents.watching.page import page_of
from ringyard_agents.watching.schedule import schedule_of, workload_of

__all__ = ["watch"]


def watch(config: DictConfig) -> None:
    """Simulate, write the page, print where it is.

    Raises:
        RingyardError: bad input, before anything runs.
        OSError: the page cannot be written.
    """
    with RunFolder.of_job("watch").claim(config) as folder:
        file = _file(config, folder.path)
        seed, number = config.seed + SEED_OFFSET, config.workload_number
        world = drawn_for({part: plain(config[part]) for part in WORLD}, seed, number)
        entries = entries_of(config.schedulers)
        configs = {label: plain(scheduler_config(entry, config.trust)) for label, entry in entries.items()}
        _, refused = supported_schedulers(configs, world, seed)
        if refused:
            raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
        console = Console()
        schedules = []
        for label, one in configs.items():
            sim = played(one, world, number, seed)
            schedules.append(schedule_of(label, build(one), sim))
            console.print(f"{label}: mean JCT {sim.metrics().mean_jct:,.0f} s", highlight=False, markup=False)
        data = workload_of(sim) | {
            "command": " ".join(["ringyard", "watch", *sys.argv[1:]]),
            "schedules": schedules,
        }
        folder.record(config, {"seed": config.seed, "workload": number})
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as partial:
            partial.write_text(page_of(data), encoding="utf-8")
        console.print(f"page: {file}", soft_wrap=True, highlight=False, markup=False)


def _file(config: DictConfig, folder: Path) -> Path:
    if config.out is None:
        return folder / "watch.html"
    file = Path(config.out).expanduser()
    if file.suffix.lower() not in (".html", ".htm"):
        raise ConfigurationError(f"out is {shown(config.out)}; expected FILE.html")
    require_writable("out", file)
    return file
