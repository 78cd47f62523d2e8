"""`ringyard watch`: run schedulers on one workload, and write a page that plays their schedules."""

import json
import shlex
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console

from ringyard.checks import shown
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.config.compose import INTERFACE_GROUPS, plain_groups, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import build_object, run_to_end
from ringyard_agents.evaluation.selection import (
    COMPARISON_SEED_OFFSET,
    read_entries,
    supported_schedulers,
    workload_environment,
)
from ringyard_agents.report.tables import print_line
from ringyard_agents.runs.atomic_write import atomic_write, require_writable
from ringyard_agents.runs.run_folder import RunFolder
from ringyard_agents.watching.schedule import schedule_data, workload_data

#: {placeholder in page.html: file of this folder}
_SCRIPTS = {"MODEL": "model.js", "GANTT": "gantt.js", "PANELS": "panels.js", "MAIN": "main.js"}
_PARTS = {"STYLE": "page.css", **_SCRIPTS}


def watch(config: DictConfig) -> None:
    """Simulate the schedulers, write the page, and print its path."""
    with RunFolder.of_job("watch").claim(config) as folder:
        file = folder.path / "watch.html" if config.out is None else _page_file(config.out)
        seed, number = config.seed + COMPARISON_SEED_OFFSET, config.workload_number
        environment = workload_environment(plain_groups(config), seed, number)
        entries = read_entries(config.schedulers)
        parts = (config.trust, plain_groups(config, INTERFACE_GROUPS))
        configs = {label: to_plain(scheduler_config(entry, *parts)) for label, entry in entries.items()}
        _, refused = supported_schedulers(configs, environment, seed)
        if refused:
            raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
        console = Console()
        schedules = []
        for label, one in configs.items():
            sim = run_to_end(build_object(one), environment, number, seed)
            schedules.append(schedule_data(label, build_object(one), sim))
            print_line(console, f"{label}: mean JCT {sim.metrics().mean_jct:,.0f} s")
        command = shlex.join(["ringyard", "watch", *sys.argv[1:]])
        data = workload_data(sim) | {"command": command, "schedules": schedules}
        folder.record(config, {"seed": config.seed, "workload": number})
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as partial:
            partial.write_text(render_page(data), encoding="utf-8")
        print_line(console, f"page: {file}")


def _page_file(out: str) -> Path:
    file = Path(out).expanduser()
    if file.suffix.lower() not in (".html", ".htm"):
        raise ConfigurationError(f"out is {shown(out)}; expected FILE.html")
    require_writable("out", file)
    return file


def render_page(data: Mapping[str, Any]) -> str:
    """Return the HTML of a page of `workload_data`, `command` and `schedules`, which fetches nothing."""
    folder = resources.files(__package__)
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    for mark, file in _PARTS.items():
        page = page.replace(f"/*{mark}*/", folder.joinpath(file).read_text(encoding="utf-8"))
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    # Escape what could end the script element that holds the data.
    return page.replace("/*DATA*/", text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))
