"""`ringyard tune`: which placement rule and options suit each scheduler in an environment."""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console

from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.config.compose import (
    ENVIRONMENT_GROUPS,
    SchedulerEntry,
    accepts_placement,
    require_placement,
    scheduler_config,
    scheduler_names,
    to_plain,
)
from ringyard_agents.evaluation.evaluate import EvaluationTask, build_object, check_tasks
from ringyard_agents.evaluation.result_cache import CachedRuns
from ringyard_agents.evaluation.selection import read_entries, supported_schedulers, workload_environment
from ringyard_agents.evaluation.tuned_configs import (
    AlternativeConfig,
    TunedScheduler,
    alternatives,
    format_options,
    write_tuned,
)
from ringyard_agents.report.comparison_table import equal_workload_notes
from ringyard_agents.report.tables import pluralize, print_line
from ringyard_agents.report.tuning_report import report_tuning
from ringyard_agents.runs.atomic_write import require_writable
from ringyard_agents.runs.run_folder import RunFolder

#: tuning workloads are drawn from seeds that neither training nor comparisons use
TUNING_SEED_OFFSET = 3_000_000


@dataclass(frozen=True)
class TuningRequest:
    """What `ringyard tune` is asked for: its settings, which conf/tune.yaml explains, and its environment."""

    world: Mapping[str, Any]
    seed: int
    schedulers: Any
    rules: Sequence[str]
    rules_for_sharing: Sequence[str]
    rules_for_types: Sequence[str]
    options: Mapping[str, Mapping[str, Sequence[Any]]]
    screening_seeds: int
    finalists: int
    tolerance: float
    seeds: int
    fast_schedulers: Sequence[str]
    fast_seeds: int
    measured_jobs: Sequence[float]
    metric: str
    output: str | None

    @classmethod
    def read(cls, config: DictConfig) -> Self:
        """Unpack the config of the command; a ConfigurationError says what is unknown or makes no sense."""
        values = to_plain(config)
        own = {field.name: values[field.name] for field in fields(cls) if field.name != "world"}
        if config.screening_seeds > config.seeds:
            raise ConfigurationError(
                f"screening_seeds is {config.screening_seeds}; expected at most seeds, {config.seeds}"
            )
        known = scheduler_names()
        for setting in ("options", "fast_schedulers"):
            for name in own[setting]:
                if name not in known:
                    raise ConfigurationError(f"{setting} has {name!r}; expected some of {', '.join(known)}")
        for setting in ("rules", "rules_for_sharing", "rules_for_types"):
            for rule in own[setting]:
                require_placement(setting, rule)
        if config.output is not None:
            require_writable("output", Path(config.output).expanduser())
        return cls(world={part: values[part] for part in ENVIRONMENT_GROUPS}, **own)

    def first(self, name: str) -> int:
        """Number of workloads on which everything is tried of a scheduler."""
        return self.fast_seeds if name in self.fast_schedulers else self.screening_seeds


def tune(config: DictConfig) -> None:
    """Try rules, then options; write tuned.yaml and tables of all that was tried.

    Everything runs on the first workloads, the best few of each scheduler on more; quick schedulers try
    everything on many. Each run is kept as it ends; the same command in the same folder does not run it
    again.

    Raises:
        RingyardError: bad input, before anything runs.
        OSError: files cannot be written.
    """
    request, folder, console = TuningRequest.read(config), RunFolder.of_job("tune"), Console()
    search = _Search(request)
    with folder.claim(config):
        if config.rerun:
            folder.cache.unlink(missing_ok=True)
        for name in ("tuned.yaml", "table.csv", "table.md") if config.overwrite else ():
            (folder.path / name).unlink(missing_ok=True)
        folder.record(config, {"seed": request.seed, "workloads": request.seeds})
        for note in search.notes:
            print_line(console, note)
        found = search.run(CachedRuns(folder.cache, config.workers, console))
        _report(request, console, folder.path, found, search)


def _report(
    request: TuningRequest,
    console: Console,
    folder: Path,
    found: Mapping[str, TunedScheduler],
    search: "_Search",
) -> None:
    """Print the best of each scheduler, write it and all that was tried."""
    if not found:
        label, reason = next(iter(search.failed.items()))
        raise SchedulerError(f"all that was tried failed: {len(search.failed)}, such as {label}: {reason}")
    most = pluralize(max(best.workloads for best in found.values()), "workload")
    title = f"{request.metric} on at most {most} of seed {request.seed + TUNING_SEED_OFFSET}"
    command = f"ringyard tune {' '.join(sys.argv[1:])}"
    needed = {name: best.model_copy(update={"others": alternatives(best)}) for name, best in found.items()}
    for file in (folder / "tuned.yaml", *([Path(request.output).expanduser()] if request.output else [])):
        write_tuned(file, needed, request.world, command, title)
        print_line(console, f"best: {file}")
    tried = pd.DataFrame(
        {
            "scheduler": name,
            "tried": one.scheduler,
            "options": format_options(one.entry),
            "workloads": one.workloads,
            "best": one is best,
            "change": one.change if isinstance(one, AlternativeConfig) else 0.0,
        }
        for name, best in found.items()
        for one in (best, *best.others)
    )
    means = {name: best.mean for name, best in found.items()}
    notes = search.blocking_notes()
    report_tuning(console, folder, tried, means, request.metric, title, search.notes, notes)
    for label, reason in search.failed.items():
        print_line(console, f"failed: {label}: {reason}")


class _Search:
    """Tries configurations of schedulers; all of them are built before the first run.

    Args:
        request: of the command.

    Attributes:
        failed: {label: why} of configurations.
        notes: on the workloads.

    Raises:
        RingyardError: bad input, or nothing to choose.
    """

    def __init__(self, request: TuningRequest) -> None:
        self.failed: dict[str, str] = {}
        self._request = request
        self._seed = request.seed + TUNING_SEED_OFFSET
        self._values: dict[str, NDArray[np.float64]] = {}
        self._blocking: dict[str, None] = {}
        cluster = build_object(request.world["cluster"])
        sharing = request.rules_for_sharing if cluster.jobs_per_gpu > 1 else []
        types = request.rules_for_types if len(cluster.distinct_gpu_types) > 1 else []
        self._rules = [*request.rules, *sharing, *types]
        self._names = self._tunable()
        first = [entry for entries in self._first_round().values() for entry in entries]
        more = [entry for name in self._names for entry in self._with_options(SchedulerEntry(name, name))]
        check_tasks(self._tasks([(entry, 1) for entry in (*first, *more)]))
        most = max(request.seeds, *map(request.first, self._names))
        self.notes = equal_workload_notes(check_tasks(self._tasks([(first[0], most)])), most)
        if self.notes:
            self.notes.append(
                "comparisons play the same jobs: what is found here suits them, but perhaps no others"
            )

    def _tunable(self) -> list[str]:
        """Schedulers that can serve the jobs, and for which there is something to choose."""
        given = read_entries(self._request.schedulers)
        for entry in given.values():
            if entry.is_agent or entry.options or entry.scheduler != entry.name:
                raise ConfigurationError(
                    f"schedulers has {entry.scheduler}; expected names of conf/scheduler, or all"
                )
        configs = {name: to_plain(scheduler_config(entry)) for name, entry in given.items()}
        fit, refused = supported_schedulers(configs, self._request.world, self._seed)
        names = [name for name in fit if name in self._request.options or len(self._placed(name)) > 1]
        if not names:
            reasons = [f"{name} {why}" for name, why in refused.items()]
            reasons += [f"{name} has one rule and no options" for name in fit]
            raise ConfigurationError(
                f"nothing to choose: {'; '.join(reasons)}; expected a scheduler for which there are several"
                " rules, or options"
            )
        return names

    def run(self, runs: CachedRuns) -> dict[str, TunedScheduler]:
        """{scheduler: its best}; the runs are kept."""
        request, tried = self._request, self._first_round()
        self._measure(runs, tried, "rules")
        for name, entries in tried.items():
            leaders = self._ranked(entries)[: None if name in request.fast_schedulers else 1]
            entries += [more for leader in leaders for more in self._with_options(leader)]
        self._measure(runs, tried, "options")
        ranked = {name: self._ranked(entries) for name, entries in tried.items()}
        last = {
            name: self._leading(entries)
            for name, entries in ranked.items()
            if name not in request.fast_schedulers
        }
        self._measure(runs, last, "the best of each", request.seeds)
        finished = {name: self._ranked(entries) for name, entries in ranked.items()}
        return {name: self._best(entries) for name, entries in finished.items() if entries}

    def blocking_notes(self) -> list[str]:
        """A note if jobs were blocked and the metric does not count them."""
        if not self._blocking or self._request.metric == "blocking_rate":
            return []
        return [
            f"{', '.join(self._blocking)}: jobs were blocked, and {self._request.metric} is not of them;"
            " metric=blocking_rate finds what blocks fewest"
        ]

    def _first_round(self) -> dict[str, list[SchedulerEntry]]:
        """{scheduler: it with each rule, or as it is}."""
        return {
            name: [SchedulerEntry(placed, placed) for placed in self._placed(name)] for name in self._names
        }

    def _placed(self, name: str) -> list[str]:
        return [f"{name}@{rule}" for rule in self._rules] if accepts_placement(name) else [name]

    def _with_options(self, entry: SchedulerEntry) -> Iterator[SchedulerEntry]:
        """The entry with every other choice of its scheduler's options."""
        options = self._request.options.get(entry.name, {})
        usual = to_plain(scheduler_config(entry))
        choices = [
            [None, *(one for one in values if one != usual.get(name))] for name, values in options.items()
        ]
        for values in itertools.product(*choices):
            given = {name: one for name, one in zip(options, values, strict=True) if one is not None}
            if given:
                made = replace(entry, options=given)
                yield replace(made, label=f"{entry.label} {format_options(made)}")

    def _tasks(self, wanted: Sequence[tuple[SchedulerEntry, int]]) -> list[EvaluationTask]:
        """Tasks of entries, each with the number of its workloads."""
        request = self._request
        configs = {entry.label: to_plain(scheduler_config(entry)) for entry, _ in wanted}
        most = max((count for _, count in wanted), default=0)
        worlds = [workload_environment(request.world, self._seed, workload) for workload in range(most)]
        first, last = request.measured_jobs
        return [
            EvaluationTask(
                entry.label, configs[entry.label], worlds[workload], workload, self._seed, (first, last)
            )
            for workload in range(most)
            for entry, count in wanted
            if workload < count
        ]

    def _measure(
        self,
        runs: CachedRuns,
        tried: Mapping[str, Sequence[SchedulerEntry]],
        doing: str,
        workloads: int | None = None,
    ) -> None:
        """Run entries on more workloads; None: on as many as everything is tried on."""
        metric = self._request.metric
        counts = {name: workloads or self._request.first(name) for name in tried}
        new = [
            (entry, counts[name])
            for name, entries in tried.items()
            for entry in entries
            if entry.label not in self.failed and len(self._values.get(entry.label, ())) < counts[name]
        ]
        results, failed = runs.run(self._tasks(new), doing)
        self.failed |= failed
        for entry, _ in new:
            own = [one.metrics for one in results if one.label == entry.label]
            values = self._values[entry.label] = np.array([float(getattr(one, metric)) for one in own])
            if np.isnan(values).any():
                self.failed[entry.label] = (
                    f"{metric} is NaN, since every job of a workload is blocked; metric=blocking_rate finds"
                    " what blocks fewest"
                )
            if any(one.blocking_rate > 0 for one in own):
                self._blocking[entry.name] = None

    def _mean(self, entry: SchedulerEntry, workloads: int | None = None) -> float:
        return float(self._values[entry.label][:workloads].mean())

    def _ranked(self, entries: Sequence[SchedulerEntry]) -> list[SchedulerEntry]:
        """Entries that finished, the best on the first workloads first."""
        finished = [entry for entry in entries if entry.label not in self.failed]
        return sorted(finished, key=lambda one: self._mean(one, self._request.first(one.name)))

    def _leading(self, ranked: Sequence[SchedulerEntry]) -> list[SchedulerEntry]:
        """The best few entries, and all that are close to the best; equal results count once."""
        found: dict[bytes, SchedulerEntry] = {}
        for entry in ranked:
            limit = self._mean(ranked[0]) * (1.0 + self._request.tolerance)
            if len(found) < self._request.finalists or self._mean(entry) <= limit:
                found.setdefault(self._values[entry.label].tobytes(), entry)
        return list(found.values())

    def _best(self, ranked: Sequence[SchedulerEntry]) -> TunedScheduler:
        """The best of the entries that ran on most workloads, with the others compared with it."""
        ran = {entry.label: len(self._values[entry.label]) for entry in ranked}
        best = min((entry for entry in ranked if ran[entry.label] == max(ran.values())), key=self._mean)
        others = []
        for entry in ranked:
            if entry is best:
                continue
            own, against = self._mean(entry), self._mean(best, ran[entry.label])
            nothing = 0.0 if own == 0.0 else float("inf")
            change = own / against - 1.0 if against else nothing
            others.append(AlternativeConfig.of(entry, ran[entry.label], change=change))
        others.sort(key=lambda one: one.change)
        return TunedScheduler.of(best, ran[best.label], mean=self._mean(best), others=others)
