"""Command `ringyard compare`: several schedulers on the same workloads, in one environment or several."""

import importlib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import hydra
import pandas as pd
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from ringyard.checks import suggest
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.config.compose import (
    SchedulerEntry,
    accepts_placement,
    compose_environments,
    scheduler_config,
    to_plain,
)
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.evaluation import evaluate, selection, tuned_configs
from ringyard_agents.evaluation.evaluate import EvaluationTask
from ringyard_agents.evaluation.notes import NOTES
from ringyard_agents.evaluation.ranking import rank, schedulers_frame
from ringyard_agents.evaluation.result_cache import CachedRuns
from ringyard_agents.evaluation.results_frame import Results, write_frame
from ringyard_agents.evaluation.selection import COMPARISON_SEED_OFFSET, ComparisonRequest
from ringyard_agents.evaluation.tuned_configs import TunedScheduler, format_options
from ringyard_agents.report import comparison_table as texts
from ringyard_agents.report import tables
from ringyard_agents.runs.atomic_write import remove_path
from ringyard_agents.runs.run_folder import RunFolder
from ringyard_agents.shipped_agents import ZOO_PREFIX, agent_path

#: files that a comparison writes for an environment
_OUTPUTS = (
    *("table.csv", "table.md", "runs.csv", "jobs.csv", "tensorboard"),
    *("jct_distribution.png", "jct_over_time.png", "losses.png", "queue_length.png", "utilisation.png"),
    *("performance_profile.png", "interquartile_means.png"),
)

_MAX_PLOTTED = 12  #: number of schedulers in plots, the best of the table; TensorBoard has all


@dataclass(frozen=True)
class Comparison:
    """A planned comparison in one environment."""

    name: str  #: its experiment, "" for the run's own settings
    entries: Mapping[str, SchedulerEntry]  #: {label: entry} of the schedulers to run
    tasks: list[EvaluationTask]  #: every scheduler on every workload
    refused: Mapping[str, str]  #: {scheduler that does not support the jobs: reason}
    reference: str | None  #: label of the scheduler that the others are compared with. None: the default.
    notes: Sequence[str]  #: lines to print below the table


def _remove_stale(folder: Path, written: Collection[str]) -> None:
    """Remove files of an earlier comparison in this folder that this one did not write."""
    for name in set(_OUTPUTS).difference(written):
        remove_path(folder / name)


def remove_stale_tables(folder: Path, written: Collection[str]) -> None:
    """Remove tables and plots of environments that are not part of a comparison, `written`."""
    if "" not in written:
        _remove_stale(folder, ())
    for name in config_files("experiment"):
        inside = folder / name
        if name in written or not inside.is_dir() or (inside / "run.json").exists():  # a run of that name
            continue
        _remove_stale(inside, ())
        if not any(inside.iterdir()):
            inside.rmdir()


def report_comparison(
    console: Console,
    folder: Path,
    comparison: Comparison,
    results: Results,
    plots: bool,
    tensorboard: str | None,
) -> None:
    """Print the table and write the files, in place of those of an earlier comparison.

    `tensorboard` is the text above the table of a TensorBoard run (None: no run).
    """
    write_frame(folder / "runs.csv", results.runs)
    write_frame(folder / "jobs.csv", results.jobs)
    written = ["runs.csv", "jobs.csv"]
    ranking = rank(results.runs, comparison.reference)
    frame = schedulers_frame(results.runs, ranking)
    frame.insert(4, "options", [format_options(comparison.entries[label]) for label in frame["scheduler"]])
    rows = texts.table_rows(frame, ranking)
    workloads = results.runs["workload"].nunique()
    # `jobs` has only the measured ones
    jobs = texts.window_notes(comparison.tasks[0].measured_jobs) or texts.equal_schedule_notes(results.jobs)
    below = texts.notes_below(rows, ranking, workloads, [*comparison.notes, *jobs])
    written += tables.write_tables(folder, frame, rows, below)
    heading = f"means over {tables.pluralize(workloads, 'workload')}, the same for all schedulers"
    title = f"{comparison.name}: {heading}" if comparison.name else heading
    narrow, notes = texts.narrow_table(rows, below, ranking)
    groups = [ranking.groups[row["scheduler"]] for row in rows]
    tables.print_table(console, title, narrow, list(narrow[0]), ["scheduler"], groups=groups, folds=True)
    for note in notes:
        tables.print_note(console, note)
    images: list[Path] = []
    if plots:
        from ringyard_agents.report.plots import draw_plots

        images = draw_plots(results.only(ranking.order[:_MAX_PLOTTED]), folder)
        for file in images:
            tables.print_line(console, f"plot: {file}")
    if tensorboard is not None:
        from ringyard_agents.report.tensorboard import write_tensorboard

        runs = folder / "tensorboard"
        write_tensorboard(results, runs, "\n\n".join([tensorboard, tables.markdown(narrow), *notes]), images)
        tables.print_line(console, f"TensorBoard: {shlex.join(['tensorboard', '--logdir', str(runs)])}")
        written.append(runs.name)
    _remove_stale(folder, [*written, *(file.name for file in images)])
    for name in ("table.csv", "runs.csv"):
        tables.print_line(console, f"table: {folder / name}")


def plan_comparisons(request: ComparisonRequest) -> dict[str, Comparison]:
    """Return {environment: its comparison} of a request. Hydra must be initialised."""
    entries, environments = selection.read_entries(request.schedulers), request.environments().items()
    return {name: _plan_comparison(request, entries, name, one) for name, one in environments}


def _plan_comparison(
    request: ComparisonRequest, given: Mapping[str, SchedulerEntry], name: str, environment: Mapping[str, Any]
) -> Comparison:
    tuned_name = request.tuned_name(environment)
    tuned = {} if tuned_name is None else tuned_configs.read_tuned(tuned_name)
    agents, missing = selection.pretrained_agents_for(environment) if request.wants_all else ({}, {})
    entries = tuned_configs.with_tuned_options({**given, **agents}, tuned)
    reference = _reference(request.reference, entries)
    seed = request.seed + COMPARISON_SEED_OFFSET
    parts = (request.trust, request.interface_of(name))
    configs = {label: to_plain(scheduler_config(entry, *parts)) for label, entry in entries.items()}
    labels, refused = selection.supported_schedulers(configs, environment, seed)
    if refused and not request.wants_all:
        raise SchedulerError("; ".join(f"{label}: {reason}" for label, reason in refused.items()))
    environments = [selection.workload_environment(environment, seed, one) for one in range(request.seeds)]
    runs = [(label, number, one) for number, one in enumerate(environments) for label in labels]
    window = request.measured_jobs
    tasks = [EvaluationTask(label, configs[label], one, number, seed, window) for label, number, one in runs]
    supported = {label: entries[label] for label in labels}
    different = evaluate.check_tasks(tasks)
    notes = _untuned_note(supported, tuned) + texts.equal_workload_notes(different, request.seeds)
    notes += [] if tuned_name is None else tuned_configs.environment_mismatch_notes(tuned_name, environment)
    notes += training_range_notes(supported, environment)
    notes += evaluate.sharing_notes(evaluate.make_simulator(environments[0], 0, seed, None))
    if agents:
        notes.append(NOTES["pretrained"].format(agents=", ".join(agents)))
    return Comparison(name, supported, tasks, {**refused, **missing}, reference, notes)


def _reference(given: str | None, entries: Mapping[str, SchedulerEntry]) -> str | None:
    """Return the label of the reference: a label, or a scheduler that tuned options relabelled."""
    if given is None:
        return None
    for label, entry in entries.items():
        if given in (label, entry.name):
            return label
    raise ConfigurationError(f"reference is {given!r}; expected {suggest(given, entries)}")


def _untuned_note(entries: Mapping[str, SchedulerEntry], tuned: Mapping[str, TunedScheduler]) -> list[str]:
    """Return a note on schedulers with a placement rule that tuning did not choose, if there are any."""
    tuned_entries = [one.entry for one in tuned.values()]
    untuned = {label: entry for label, entry in entries.items() if entry not in tuned_entries}
    schedulers = [label for label, entry in untuned.items() if not entry.is_agent]
    labels = [label for label in schedulers if accepts_placement(entries[label].name)]
    return [NOTES["untuned"].format(labels=", ".join(labels))] if labels else []


def compare_command(config: DictConfig) -> float | None:
    """Run the schedulers in each environment, print tables, write CSV files, plots and TensorBoard runs.

    Each result is stored when its run ends. The same command in the same folder does not repeat it. Bad input
    is an error before anything runs; a failed scheduler is one after the others' results are written.

    Returns:
        Mean JCT in seconds of the first agent among `schedulers`, or of the first scheduler if there is none.
        Over several environments it is the geometric mean. Sweeps minimise it.
    """
    plots = _output_enabled("plots", "matplotlib", config.plots)
    tensorboard = _output_enabled("tensorboard", "tensorboard", config.tensorboard)
    request = ComparisonRequest.read(config)
    planned = plan_comparisons(request)
    with RunFolder.of_job("compare").claim(config) as folder:
        if config.rerun:
            folder.cache.unlink(missing_ok=True)
        folder.record(config, {"seed": request.seed, "workloads": request.seeds})
        if config.overwrite:
            remove_stale_tables(folder.path, ())  # tables of the replaced run must not stay meanwhile
        return _run_comparisons(planned, folder, config, plots, tensorboard)


def _output_enabled(setting: str, library: str, value: bool | None) -> bool:
    """Return whether to write an output. By default it is written if its library is installed."""
    if value is False:
        return False
    try:
        importlib.import_module(library)
    except ImportError:
        if value is None:
            return False
        raise ConfigurationError(
            f'{setting}=true needs {library}: pip install "ringyard[agents]", or set {setting}=false'
        ) from None
    return True


def _run_comparisons(
    planned: Mapping[str, Comparison], home: RunFolder, config: DictConfig, plots: bool, tensorboard: bool
) -> float | None:
    console = Console()
    cached = CachedRuns(home.cache, config.workers, console)
    text = None
    if tensorboard:
        from ringyard_agents.report.tensorboard import record_text

        text = record_text(home.path)
    failures, reported, means = [], [], []
    for name, comparison in planned.items():
        found, failed = cached.run(comparison.tasks, "comparing")
        where = f"in experiment {name} on " if name else "on "
        failures += [f"{label} failed {where}{reason}" for label, reason in failed.items()]
        if not found:
            continue
        results = Results.of(found)
        report_comparison(console, home.path / name, comparison, results, plots, text)
        reported.append(name)
        means += _mean_of_first(comparison.entries, results.runs)
        for label, reason in comparison.refused.items():
            tables.print_note(console, f"left out: {label}: {reason}")
    remove_stale_tables(home.path, reported)
    if failures:
        raise SchedulerError("; ".join(failures))
    return geometric_mean(means) if means and min(means) > 0 else None


def _mean_of_first(entries: Mapping[str, SchedulerEntry], runs: pd.DataFrame) -> list[float]:
    """Return [mean JCT in seconds] of the first agent, else of the first scheduler; [] if it failed."""
    labels = [label for label, entry in entries.items() if entry.is_agent] or list(entries)
    found = runs.loc[runs["scheduler"] == labels[0], "mean_jct"]
    return [float(found.mean())] if len(found) else []


#: groups of the environment that are compared, and settings that choose jobs and are no property of them
_GROUPS = ("cluster", "workload", "performance", "restart", "failures")
_OTHER_JOBS = ("workload.path", "workload.part")
#: differences that a note names; it counts more
_MAX_NAMED = 4
_NUMBERS = (int, float)


def training_range_notes(entries: Mapping[str, SchedulerEntry], environment: Mapping[str, Any]) -> list[str]:
    """Return a note for each agent that had no environment such as this one in its training.

    A number is inside of the training range if it lies between the smallest and the largest of the
    environments that the agent was trained in. All else must be as in that one of them which is most alike.
    Hydra must be initialised. Agents that do not say how they were trained (a model.zip) have no note.

    Args:
        entries: {label: entry} of the schedulers to compare.
        environment: {config group: config} of the environment.
    """
    notes = []
    settings = _settings_of(environment)
    for label, entry in entries.items():
        known = [_settings_of(one) for one in _training_environments(entry)] if entry.is_agent else []
        if not known:
            continue
        differences = min((_differences(settings, one, known) for one in known), key=len)
        if differences:
            few = len(differences) <= _MAX_NAMED
            what = "; ".join(differences) if few else f"{len(differences)} settings are not those of training"
            notes.append(NOTES["training_range"].format(label=label, what=what))
    return notes


def _training_environments(entry: SchedulerEntry) -> list[Mapping[str, Any]]:
    file = agent_path(entry.checkpoint)
    config: Any = None
    if entry.checkpoint.startswith(ZOO_PREFIX):
        record = file.with_suffix(".json")
        if record.is_file():
            words = shlex.split(read_plain(record)["training"]["command"])[2:]
            config = hydra.compose("train", [word for word in words if word != "seed=SEED"])
    else:
        described = (file if file.is_dir() else file.parent) / "config.yaml"
        if described.is_file():
            config = OmegaConf.load(described)
    if not isinstance(config, DictConfig) or "environments" not in config:
        return []
    return [to_plain(one) for one in compose_environments(config, config["environments"]).values()]


def _settings_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
        inner = dict(enumerate(value)) if isinstance(value, list | tuple) else value
        if isinstance(inner, Mapping):
            for key, one in inner.items():
                yield from leaves(one, f"{name}.{key}")
        elif not name.startswith(_OTHER_JOBS):
            yield name, inner

    return {name: one for group in _GROUPS for name, one in leaves(environment[group], group)}


def _differences(settings: dict[str, Any], trained: dict[str, Any], known: list[dict[str, Any]]) -> list[str]:
    """Say what of `settings` is another than in `trained`, and outside of the range of all the `known`."""
    found = []
    for name in dict.fromkeys([*settings, *trained]):
        value, usual = settings.get(name), trained.get(name)
        if value == usual:
            continue
        numbers = [one[name] for one in known if type(one.get(name)) in _NUMBERS]
        if type(value) not in _NUMBERS or not numbers:
            found.append(f"{name} is {_text(value)} (trained: {_text(usual)})")
        elif not min(numbers) <= value <= max(numbers):
            ends = " to ".join(_text(one) for one in sorted({min(numbers), max(numbers)}))
            found.append(f"{name} is {_text(value)} (trained: {ends})")
    return found


def _text(value: Any) -> str:
    return f"{value:,g}" if type(value) in _NUMBERS else "none" if value is None else str(value)
