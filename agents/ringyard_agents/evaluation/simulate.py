"""`ringyard simulate`: one scheduler, one workload."""

import csv
from pathlib import Path

import numpy as np
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from ringyard.bounds import bounds_of
from ringyard.errors import ConfigurationError
from ringyard.sim.metrics import JobTimes, job_times
from ringyard.sim.simulator import Simulator
from ringyard_agents.config.compose import WORLD, plain
from ringyard_agents.evaluation.evaluate import simulator
from ringyard_agents.evaluation.results_frame import outcome_names
from ringyard_agents.evaluation.schedule_log import draw_outputs, recorded, require_outputs, wants_drawing
from ringyard_agents.report.tenants import print_tenants, write_tenants
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.run_folder import RunFolder
from ringyard_baselines.scheduler import run

__all__ = ["simulate", "write_jobs"]


def _number(value: float) -> str:
    """Whole numbers without a fraction, others so that they read back equal; "" for NaN."""
    if value != value:
        return ""
    return str(int(value)) if value == int(value) else repr(float(value))


def write_jobs(file: Path, times: JobTimes) -> None:
    """Per job: job_id, submit_time, gpus, start_time (first start), end_time, jct, outcome; seconds.

    A job that never started has no start_time.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["job_id", "submit_time", "gpus", "start_time", "end_time", "jct", "outcome"])
        columns = (times.submit_seconds, times.start_seconds, times.end_seconds, times.jct)
        outcomes = outcome_names(times.outcome.tolist())
        numbers = zip(*(c.tolist() for c in columns), strict=True)
        rows = zip(times.job_id.tolist(), times.num_gpus.tolist(), numbers, outcomes, strict=True)
        for job_id, gpus, (submit, *ended), outcome in rows:
            writer.writerow([job_id, _number(submit), gpus, *(_number(one) for one in ended), outcome])


def simulate(config: DictConfig) -> float:
    """Run and print a table; write jobs.csv, config.yaml, run.json, and tenants.csv if the jobs name any.

    Returns:
        Mean JCT, seconds.

    Raises:
        RingyardError: bad input, before anything is written.
        OSError: files cannot be written.
    """
    with RunFolder.of_job("simulate").claim(config) as folder:
        return _simulate(config, folder)


def _require_rule_used(config: DictConfig) -> None:
    """Raise a ConfigurationError if a placement rule was chosen that the scheduler does not go by."""
    words = HydraConfig.get().overrides.task
    chosen = [word for word in words if word.partition("=")[0].lstrip("+~").split(".")[0] == "placement"]
    if chosen and plain(config.scheduler).get("placement") != plain(config.placement):
        name = HydraConfig.get().runtime.choices["scheduler"]
        raise ConfigurationError(
            f"{chosen[0]}: scheduler={name} places jobs in its own way, by no rule; leave placement out"
        )


def _simulate(config: DictConfig, home: RunFolder) -> float:
    folder = home.path
    _require_rule_used(config)
    scheduler = instantiate(config.scheduler, _convert_="all")
    world = {name: plain(config[name]) for name in WORLD}
    rounds = config.round_seconds if config.round_seconds is not None else scheduler.round_seconds
    require_outputs(config)

    def play(segment_rows: int) -> Simulator:
        sim = simulator(world, 0, config.seed, rounds, config.rounds_only, segment_rows)
        run(sim, scheduler, np.random.default_rng((config.seed, 0, 1)))
        return sim

    sim = recorded(play) if wants_drawing(config) else play(0)
    times = job_times(sim.state, 0, sim.jobs)
    home.record(config, {"seed": config.seed})
    write_jobs(folder / "jobs.csv", times)
    if config.output.jobs_csv is not None:
        write_jobs(Path(config.output.jobs_csv).expanduser(), times)
    (folder / "tenants.csv").unlink(missing_ok=True)  # of other jobs
    by_tenant = write_tenants(folder / "tenants.csv", {scheduler.name: [times]})
    measured = tuple(config.measured_jobs)
    bounds = bounds_of(sim, measured)
    metrics = sim.metrics(measured)
    table = Table(title=f"{scheduler.name} (knows: {scheduler.knows})", show_header=False)
    for name, value in metrics.as_dict().items():
        table.add_row(name.replace("_", " "), f"{value:,.3f}" if isinstance(value, float) else f"{value:,}")
    if metrics.blocking_rate == 0:  # the bound is of all jobs
        table.add_row("gap to lower bound", f"{metrics.mean_jct / bounds.mean_jct:.3f}")
    console = Console()
    console.print(table)
    print_tenants(console, {scheduler.name: [times]})
    console.print(f"jobs: {folder / 'jobs.csv'}", soft_wrap=True, markup=False)
    for file in draw_outputs(config, sim) if wants_drawing(config) else ():
        console.print(f"drawn: {file}", soft_wrap=True, markup=False)
    if by_tenant:
        console.print(f"tenants: {folder / 'tenants.csv'}", soft_wrap=True, markup=False)
    return metrics.mean_jct
