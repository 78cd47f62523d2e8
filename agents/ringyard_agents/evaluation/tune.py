"""Command `ringyard tune`: search the best placement rule and options of each scheduler in an environment."""

import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console

from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.config import compose
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, to_plain
from ringyard_agents.evaluation import tuned_configs
from ringyard_agents.evaluation.evaluate import EvaluationTask, build_object, check_tasks
from ringyard_agents.evaluation.notes import NOTES
from ringyard_agents.evaluation.result_cache import CachedRuns
from ringyard_agents.evaluation.selection import read_entries, supported_schedulers, workload_environment
from ringyard_agents.evaluation.tuned_configs import AlternativeConfig, TunedScheduler, format_options
from ringyard_agents.report import tables
from ringyard_agents.report.comparison_table import equal_workload_notes
from ringyard_agents.runs.atomic_write import require_writable
from ringyard_agents.runs.run_folder import RunFolder

#: added to `seed`, so that neither training nor comparisons draw the workloads of tuning
TUNING_SEED_OFFSET = 3_000_000

_Entries = Mapping[str, Sequence[SchedulerEntry]]


def _check(config: DictConfig) -> None:
    """Raise a ConfigurationError for an unknown scheduler or rule, or an output that cannot be written."""
    if config.screening_seeds > config.seeds:
        raise ConfigurationError(
            f"screening_seeds is {config.screening_seeds}"
            f"; expected {config.seeds} or fewer, since seeds={config.seeds}"
        )
    known = compose.scheduler_names()
    for setting in ("options", "fast_schedulers"):
        for name in config[setting]:
            if name not in known:
                raise ConfigurationError(f"{setting} has {name!r}; expected some of {', '.join(known)}")
    for setting in ("rules", "rules_for_sharing", "rules_for_types"):
        for rule in config[setting]:
            compose.require_placement(setting, rule)
    if config.output is not None:
        require_writable("output", Path(config.output).expanduser())


def tune(config: DictConfig) -> None:
    """Search placement rules, then options. Write tuned.yaml and tables of all configurations.

    All configurations run on the first workloads (screening), and the best few of each scheduler on more
    (finalists). Fast schedulers run all configurations on many workloads. Each result is stored when its run
    ends. The same command in the same folder does not repeat it.
    """
    _check(config)
    folder, console, search = RunFolder.of_job("tune"), Console(), _Search(config)
    with folder.claim(config):
        if config.rerun:
            folder.cache.unlink(missing_ok=True)
        for name in ("tuned.yaml", "table.csv", "table.md") if config.overwrite else ():
            (folder.path / name).unlink(missing_ok=True)
        folder.record(config, {"seed": config.seed, "workloads": config.seeds})
        for note in search.notes:
            tables.print_note(console, note)
        found = search.run(CachedRuns(folder.cache, config.workers, console))
        _report(config, console, folder.path, found, search)


def _report(
    config: DictConfig, console: Console, folder: Path, found: dict[str, TunedScheduler], search: "_Search"
) -> None:
    """Print and write the best configuration of each scheduler, and write all others."""
    if not found:
        label, reason = next(iter(search.failed.items()))
        raise SchedulerError(f"all {len(search.failed)} configurations failed; {label}: {reason}")
    counts = [best.workloads for best in found.values()]
    of_seed = f"of seed {config.seed + TUNING_SEED_OFFSET}"
    title = f"{config.metric} on at most {tables.pluralize(max(counts), 'workload')} {of_seed}"
    command = shlex.join(["ringyard", "tune", *sys.argv[1:]])
    needed = {
        name: best.model_copy(update={"others": tuned_configs.alternatives(best)})
        for name, best in found.items()
    }
    for file in (folder / "tuned.yaml", *([Path(config.output).expanduser()] if config.output else [])):
        tuned_configs.write_tuned(file, needed, search.environment, command, title)
        tables.print_line(console, f"tuned configurations: {file}")
    tried = pd.DataFrame(
        {
            "scheduler": name,
            "tried": one.scheduler,
            "options": format_options(one.entry),
            "workloads": one.workloads,
            "best": one is best,
            "change": one.change if isinstance(one, AlternativeConfig) else 0.0,
            "dropped": one.workloads < best.workloads,
        }
        for name, best in found.items()
        for one in (best, *best.others)
    )
    texts = tried.astype(str)[["scheduler", "tried", "options", "workloads"]]
    texts["vs best"] = tried["change"].map("{:+.1%}".format).where(~tried["best"], "best")
    kept, dropped = (texts[tried["dropped"] == which].to_dict("records") for which in (False, True))
    apart = "Dropped after fewer workloads, on which they are compared with the best:"
    below = [apart, tables.markdown(dropped).rstrip()] if dropped else []
    blocking_notes = search.blocking_notes()
    tables.write_tables(folder, tried, kept, [*below, *search.notes, *blocking_notes])
    tables.print_line(console, f"all configurations: {folder / 'table.md'}")
    # Fast schedulers run on more workloads than others, which says nothing of their means.
    means = {name: search.mean(best.entry, min(counts)) for name, best in found.items()}
    rows = []
    for name, mean in sorted(means.items(), key=itemgetter(1)):
        best, *others = (row for row in kept if row["scheduler"] == name)
        following = [f"{one['tried']} {one['options']}".rstrip() + f" {one['vs best']}" for one in others[:1]]
        value = f"{mean:,.0f}" if mean >= 100 else f"{mean:.3g}"
        row = {"scheduler": best["tried"], "options": best["options"], config.metric: value}
        rows.append(row | {"chosen on": best["workloads"], "next best": "".join(following)})
    equal = f"{config.metric}: means over the same {tables.pluralize(min(counts), 'workload')} {of_seed}"
    tables.print_table(console, equal, rows, list(rows[0]), ("scheduler", "options"), list(rows[0]))
    for note in (*blocking_notes, *(f"failed: {label}: {why}" for label, why in search.failed.items())):
        tables.print_note(console, note)


def _label(entry: SchedulerEntry) -> str:
    """Return the label of a configuration in the search: its scheduler, placement rule and options."""
    return f"{entry.scheduler} {format_options(entry)}".rstrip()


class _Search:
    """Search over configurations of schedulers. All of them are built before the first run.

    `failed` is {label of a configuration: reason}, `notes` are lines to print about the workloads.
    """

    def __init__(self, config: DictConfig) -> None:
        self.failed: dict[str, str] = {}
        self._settings = settings = SimpleNamespace(**to_plain(config))
        self.environment = {group: getattr(settings, group) for group in ENVIRONMENT_GROUPS}
        self._seed = settings.seed + TUNING_SEED_OFFSET
        self._values: dict[str, NDArray[np.float64]] = {}
        self._blocking: dict[str, None] = {}
        cluster = build_object(self.environment["cluster"])
        sharing = settings.rules_for_sharing if cluster.jobs_per_gpu > 1 else []
        types = settings.rules_for_types if len(cluster.distinct_gpu_types) > 1 else []
        self._rules = [*settings.rules, *sharing, *types]
        self._names = self._tunable()
        first = [entry for entries in self._first_round().values() for entry in entries]
        more = [entry for name in self._names for entry in self._with_options(SchedulerEntry(name, name))]
        check_tasks(self._tasks([(entry, 1) for entry in (*first, *more)]))
        most = max(settings.seeds, *map(self._num_screening, self._names))
        self.notes = equal_workload_notes(check_tasks(self._tasks([(first[0], most)])), most)
        self.notes += [NOTES["tuned_on_equal"]] if self.notes else []

    def _tunable(self) -> list[str]:
        """Return the schedulers that support the jobs and have several configurations."""
        given = read_entries(self._settings.schedulers)
        for entry in given.values():
            if entry.is_agent or entry.options or entry.scheduler != entry.name:
                raise ConfigurationError(
                    f"schedulers has {entry.scheduler}; expected names of conf/scheduler, or all"
                )
        configs = {name: to_plain(compose.scheduler_config(entry)) for name, entry in given.items()}
        supported, refused = supported_schedulers(configs, self.environment, self._seed)
        options = self._settings.options
        names = [name for name in supported if name in options or len(self._with_rules(name)) > 1]
        if not names:
            reasons = [f"{name}: {reason}" for name, reason in refused.items()]
            reasons += [f"{name}: has one placement rule and no options" for name in supported]
            raise ConfigurationError(
                f"nothing to tune: {'; '.join(reasons)}"
                "; expected a scheduler with several placement rules or options"
            )
        return names

    def run(self, runs: CachedRuns) -> dict[str, TunedScheduler]:
        """Run the search with a cache of results. Returns {scheduler: its tuned configuration}."""
        settings, tried = self._settings, self._first_round()
        self._measure(runs, tried, "trying placement rules")
        for name, entries in tried.items():
            leaders = self._ranked(entries)[: None if name in settings.fast_schedulers else 1]
            entries += [more for leader in leaders for more in self._with_options(leader)]
        self._measure(runs, tried, "trying options")
        ranked = {name: self._ranked(entries) for name, entries in tried.items()}
        slow = {name: entries for name, entries in ranked.items() if name not in settings.fast_schedulers}
        finalists = {name: self._finalists(entries) for name, entries in slow.items()}
        self._measure(runs, finalists, "comparing the best of each", settings.seeds)
        finished = {name: self._ranked(entries) for name, entries in ranked.items()}
        return {name: self._best(entries) for name, entries in finished.items() if entries}

    def _num_screening(self, name: str) -> int:
        """Return the number of workloads on which all configurations of a scheduler run."""
        fast = name in self._settings.fast_schedulers
        return int(self._settings.fast_seeds if fast else self._settings.screening_seeds)

    def blocking_notes(self) -> list[str]:
        """Return a note if jobs were blocked and the metric leaves blocked jobs out."""
        if not self._blocking or self._settings.metric == "blocking_rate":
            return []
        return [NOTES["left_out"].format(labels=", ".join(self._blocking), metric=self._settings.metric)]

    def _first_round(self) -> dict[str, list[SchedulerEntry]]:
        """Return {scheduler: entries with each placement rule, or the scheduler as it is}."""
        placed = {name: self._with_rules(name) for name in self._names}
        return {name: [SchedulerEntry(one, one) for one in labels] for name, labels in placed.items()}

    def _with_rules(self, name: str) -> list[str]:
        return [f"{name}@{rule}" for rule in self._rules] if compose.accepts_placement(name) else [name]

    def _with_options(self, entry: SchedulerEntry) -> Iterator[SchedulerEntry]:
        """Yield the entry with every other combination of its scheduler's options."""
        options = self._settings.options.get(entry.name, {})
        defaults = to_plain(compose.scheduler_config(entry))
        others = {name: [one for one in options[name] if one != defaults.get(name)] for name in options}
        choices = [[None, *values] for values in others.values()]
        for values in itertools.product(*choices):
            given = {name: one for name, one in zip(options, values, strict=True) if one is not None}
            if given:
                made = replace(entry, options=given)
                yield replace(made, label=_label(made))

    def _tasks(self, wanted: Sequence[tuple[SchedulerEntry, int]]) -> list[EvaluationTask]:
        """Return the tasks of (entry, number of its workloads)."""
        settings = self._settings
        configs = {entry.label: to_plain(compose.scheduler_config(entry)) for entry, _ in wanted}
        most = max((count for _, count in wanted), default=0)
        environments = [workload_environment(self.environment, self._seed, number) for number in range(most)]
        window = (settings.measured_jobs[0], settings.measured_jobs[1])
        runs = [(entry.label, number) for number in range(most) for entry, count in wanted if number < count]
        return [
            EvaluationTask(label, configs[label], environments[number], number, self._seed, window)
            for label, number in runs
        ]

    def _measure(
        self, runs: CachedRuns, tried: _Entries, progress_text: str, workloads: int | None = None
    ) -> None:
        """Run {scheduler: entries} on more `workloads`. None: on as many as the screening uses."""
        metric = self._settings.metric
        counts = {name: workloads or self._num_screening(name) for name in tried}
        found = [(entry, counts[name]) for name, entries in tried.items() for entry in entries]
        found = [one for one in found if one[0].label not in self.failed]
        new = [one for one in found if len(self._values.get(one[0].label, ())) < one[1]]
        results, failed = runs.run(self._tasks(new), progress_text)
        self.failed |= failed
        for entry, _ in new:
            own = [one.metrics for one in results if one.label == entry.label]
            values = self._values[entry.label] = np.array([float(getattr(one, metric)) for one in own])
            if np.isnan(values).any():
                self.failed[entry.label] = (
                    f"{metric} is undefined, since every job of a workload is blocked; metric=blocking_rate"
                    " minimises their number"
                )
            if any(one.blocking_rate > 0 for one in own):
                self._blocking[entry.name] = None

    def mean(self, entry: SchedulerEntry, workloads: int | None = None) -> float:
        """Return the mean of the metric over the first workloads. None: over all that the entry ran on."""
        return float(self._values[_label(entry)][:workloads].mean())

    def _ranked(self, entries: Sequence[SchedulerEntry]) -> list[SchedulerEntry]:
        """Return the entries that finished, in the order of their means on the first workloads."""
        finished = [entry for entry in entries if entry.label not in self.failed]
        return sorted(finished, key=lambda one: self.mean(one, self._num_screening(one.name)))

    def _finalists(self, ranked: Sequence[SchedulerEntry]) -> list[SchedulerEntry]:
        """Return the best few entries and all that are close to the best. Equal results count once."""
        found: dict[bytes, SchedulerEntry] = {}
        for entry in ranked:
            limit = self.mean(ranked[0]) * (1.0 + self._settings.tolerance)
            if len(found) < self._settings.finalists or self.mean(entry) <= limit:
                found.setdefault(self._values[entry.label].tobytes(), entry)
        return list(found.values())

    def _best(self, ranked: Sequence[SchedulerEntry]) -> TunedScheduler:
        """Return the best of the entries that ran on most workloads, and how far the others are from it."""
        ran = {entry.label: len(self._values[entry.label]) for entry in ranked}
        best = min((entry for entry in ranked if ran[entry.label] == max(ran.values())), key=self.mean)
        others = []
        for entry in ranked:
            if entry is best:
                continue
            own, against = self.mean(entry), self.mean(best, ran[entry.label])
            change = own / against - 1.0 if against else 0.0 if own == 0.0 else float("inf")
            others.append(AlternativeConfig.of(entry, ran[entry.label], change=change))
        others.sort(key=lambda one: (-one.workloads, one.change))
        return TunedScheduler.of(best, ran[best.label], mean=self.mean(best), others=others)
