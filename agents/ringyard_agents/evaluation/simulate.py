"""Command `ringyard simulate`: one scheduler on one workload."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from ringyard.bounds import simulation_bounds
from ringyard.errors import ConfigurationError
from ringyard.rendering.history import history_of
from ringyard.sim.metrics import job_times
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import run_to_end, sharing_notes
from ringyard_agents.evaluation.results_frame import jobs_frame, write_frame
from ringyard_agents.report.run_report import draw_schedule, print_metrics, require_drawings
from ringyard_agents.report.tables import print_line, print_note
from ringyard_agents.report.tenants import print_tenants, write_tenants
from ringyard_agents.runs.run_folder import RunFolder


def simulate(config: DictConfig) -> float:
    """Run the scheduler, print a table, write jobs.csv and, if jobs name tenants, tenants.csv.

    Returns the mean JCT in seconds. Bad input is an error before anything is written.
    """
    with RunFolder.of_job("simulate").claim(config) as folder:
        return _simulate(config, folder)


def _require_rule_used(config: DictConfig) -> None:
    """Raise a ConfigurationError if a placement rule was chosen that the scheduler does not use."""
    words = HydraConfig.get().overrides.task
    chosen = [word for word in words if word.partition("=")[0].lstrip("+~").split(".")[0] == "placement"]
    if chosen and to_plain(config.scheduler).get("placement") != to_plain(config.placement):
        name = HydraConfig.get().runtime.choices["scheduler"]
        raise ConfigurationError(f"{chosen[0]}: scheduler={name} has its own placement; leave placement out")


def _simulate(config: DictConfig, home: RunFolder) -> float:
    _require_rule_used(config)
    scheduler = instantiate(config.scheduler, _convert_="all")
    environment = {group: to_plain(config[group]) for group in ENVIRONMENT_GROUPS}
    files = {name: Path(file).expanduser() for name, file in config.output.items() if isinstance(file, str)}
    drawings = {name: files[name] for name in ("gantt", "video") if name in files}
    require_drawings(drawings)
    recorded = {} if drawings else {"segment_rows": 0}
    sim = run_to_end(
        scheduler, environment, 0, config.seed, config.round_seconds, config.rounds_only, **recorded
    )
    window = tuple(config.measured_jobs)
    metrics, bounds = sim.metrics(window), simulation_bounds(sim, window)
    jobs = jobs_frame(scheduler.name, 0, job_times(sim.state, 0, sim.jobs))
    home.record(config, {"seed": config.seed})
    written, by_tenant = home.path / "jobs.csv", home.path / "tenants.csv"
    for file in (written, files.get("jobs_csv", written)):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_frame(file, jobs)
    has_tenants = write_tenants(by_tenant, jobs)
    console = Console()
    print_metrics(
        console, f"{scheduler.name} (observability: {scheduler.total_observability})", metrics, bounds
    )
    for note in sharing_notes(sim):
        print_note(console, note)
    print_tenants(console, jobs)
    print_line(console, f"jobs: {written}")
    if drawings:
        draw_schedule(drawings, history_of(sim.state, 0, sim.cluster), config.output.frames)
    for file in drawings.values():
        print_line(console, f"schedule: {file}")
    if has_tenants:
        print_line(console, f"tenants: {by_tenant}")
    return metrics.mean_jct
