"""`ringyard tune`: which placement rule and options suit each scheduler in a setting."""

import itertools
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ringyard.errors import ConfigurationError, SchedulerError
from ringyard_agents.config.compose import (
    WORLD,
    Entry,
    plain,
    require_rule,
    scheduler_config,
    scheduler_names,
    takes_rule,
)
from ringyard_agents.evaluation.cached_runs import CachedRuns
from ringyard_agents.evaluation.evaluate import Task, build, check
from ringyard_agents.evaluation.selection import drawn_for, entries_of, supported_schedulers
from ringyard_agents.evaluation.tuned_configs import (
    Best,
    Setting,
    TunedConfig,
    alternatives,
    format_options,
    write_best,
)
from ringyard_agents.report.comparison_table import notes_of_equal_workloads, pluralize
from ringyard_agents.report.tables import table_console, write_tables
from ringyard_agents.runs.atomic_write import require_writable
from ringyard_agents.runs.run_folder import RunFolder

__all__ = ["TUNING_SEED", "tune"]

#: tuning workloads are drawn from seeds that neither training nor comparisons use
TUNING_SEED = 3_000_000


def _require_known(config: DictConfig) -> None:
    """Raise a ConfigurationError unless there are the schedulers, rules and output that settings name."""
    schedulers = scheduler_names()
    for setting in ("options", "quick"):
        for name in config[setting]:
            if name not in schedulers:
                raise ConfigurationError(f"{setting} has {name!r}; expected some of {', '.join(schedulers)}")
    for setting in ("rules", "rules_for_sharing", "rules_for_types"):
        for rule in config[setting]:
            require_rule(setting, rule)
    if config.output is not None:
        require_writable("output", Path(config.output).expanduser())


def tune(config: DictConfig) -> None:
    """Try rules, then options; write best.yaml and tables of all that was tried.

    Everything runs on the first workloads, the best few of each scheduler on more; quick schedulers try
    everything on many. Each run is kept as it ends; the same command in the same folder does not run it
    again.

    Raises:
        RingyardError: bad input, before anything runs.
        OSError: files cannot be written.
    """
    if config.first_seeds > config.seeds:
        raise ConfigurationError(
            f"first_seeds is {config.first_seeds}; expected at most seeds, {config.seeds}"
        )
    _require_known(config)
    folder = RunFolder.of_job("tune")
    tuning = _Tuning(config, folder.path)
    tuning.prepare()
    with folder.claim(config):
        if config.rerun:
            tuning.file.unlink(missing_ok=True)
        for name in ("best.yaml", "table.csv", "table.md") if config.overwrite else ():
            (folder.path / name).unlink(missing_ok=True)
        folder.record(config, {"seed": config.seed, "workloads": config.seeds})
        _report(config, folder.path, tuning.run(), tuning)


class _Tuning:
    """What was tried, and how it went.

    Args:
        config: of the command.
        folder: of the run.
    """

    def __init__(self, config: DictConfig, folder: Path) -> None:
        self.file = folder / "measured.jsonl"
        self.console = Console()
        self.failed: dict[str, str] = {}
        self._config = config
        self._world = {part: plain(config[part]) for part in WORLD}
        self._seed = config.seed + TUNING_SEED
        self._options = plain(config.options)
        self._rules = self._all_rules()
        self._values: dict[str, NDArray[np.float64]] = {}
        self.notes: list[str] = []
        self._blocking: dict[str, None] = {}
        self._names: list[str] = []
        self._series = CachedRuns(self.file, config.workers, self.console)

    def _all_rules(self) -> list[str]:
        cluster = build(self._world["cluster"])
        config = self._config
        sharing = config.rules_for_sharing if cluster.jobs_per_gpu > 1 else []
        types = config.rules_for_types if len(cluster.distinct_gpu_types) > 1 else []
        return [*config.rules, *sharing, *types]

    def prepare(self) -> None:
        """Find what there is to try, and build it.

        Raises:
            RingyardError: bad input.
        """
        given = entries_of(self._config.schedulers)
        for entry in given.values():
            if entry.is_agent or entry.options or entry.scheduler != entry.name:
                raise ConfigurationError(
                    f"schedulers has {entry.scheduler}; expected names of conf/scheduler, or all"
                )
        configs = {name: plain(scheduler_config(entry)) for name, entry in given.items()}
        names, refused = supported_schedulers(configs, self._world, self._seed)
        self._names = [name for name in names if name in self._options or len(self._placed(name)) > 1]
        if not self._names:
            reasons = [f"{name} {why}" for name, why in refused.items()]
            reasons += [f"{name} has one rule and no options" for name in names]
            raise ConfigurationError(
                f"nothing to choose: {'; '.join(reasons)}; expected a scheduler for which there are several"
                " rules, or options"
            )
        options = [entry for name in self._names for entry in self._with_options(Entry(name, name))]
        first = [*itertools.chain(*self._first_round().values())]
        check(self._tasks([*first, *options], [0]))
        most = max(self._config.seeds, *(self._first(name) for name in self._names))
        different = check(self._tasks(first[:1], range(most)))
        self.notes = notes_of_equal_workloads(different, most)
        if self.notes:
            self.notes.append(
                "comparisons play the same jobs: what is found here suits them, but perhaps no others"
            )

    def run(self) -> dict[str, Best]:
        """{scheduler: its best}."""
        for note in self.notes:
            self.console.print(note, soft_wrap=True, highlight=False, markup=False)
        tried = self._first_round()
        self._measure(tried, "rules")
        for name, entries in tried.items():
            leaders = self._ranked(entries)[: None if name in self._config.quick else 1]
            entries += [more for leader in leaders for more in self._with_options(leader)]
        self._measure(tried, "options")
        ranked = {name: self._ranked(entries) for name, entries in tried.items()}
        quick = self._config.quick
        last = {name: self._leading(entries) for name, entries in ranked.items() if name not in quick}
        self._measure(last, "the best of each", self._config.seeds)
        finished = {name: self._ranked(entries) for name, entries in ranked.items()}
        return {name: self._best(entries) for name, entries in finished.items() if entries}

    def _first(self, name: str) -> int:
        """Workloads on which everything is tried."""
        return int(self._config.quick_seeds if name in self._config.quick else self._config.first_seeds)

    def _first_round(self) -> dict[str, list[Entry]]:
        """{scheduler: it with each rule, or as it is}."""
        return {name: [Entry(rule, rule) for rule in self._placed(name)] for name in self._names}

    def _placed(self, name: str) -> list[str]:
        return [f"{name}@{rule}" for rule in self._rules] if takes_rule(name) else [name]

    def _with_options(self, entry: Entry) -> list[Entry]:
        """The entry with every choice of its scheduler's options but the one it has."""
        options = self._options.get(entry.name, {})
        usual = plain(scheduler_config(entry))
        choices = [
            [None, *(one for one in values if one != usual.get(name))] for name, values in options.items()
        ]
        found = []
        for values in itertools.product(*choices):
            given = {name: one for name, one in zip(options, values, strict=True) if one is not None}
            if given:
                made = replace(entry, options=given)
                found.append(replace(made, label=f"{entry.label} {format_options(made)}"))
        return found

    def _tasks(self, entries: Sequence[Entry], workloads: Sequence[int]) -> list[Task]:
        configs = {entry.label: plain(scheduler_config(entry)) for entry in entries}
        worlds = {workload: drawn_for(self._world, self._seed, workload) for workload in workloads}
        window = tuple(self._config.measured_jobs)
        return [
            Task(label, scheduler, worlds[workload], workload, self._seed, window)
            for workload in workloads
            for label, scheduler in configs.items()
        ]

    def _measure(
        self, tried: Mapping[str, Iterable[Entry]], doing: str, workloads: int | None = None
    ) -> None:
        """Run what has not run on so many workloads; None: as many as everything is tried on."""
        wanted: dict[int, list[Entry]] = {}
        for name, entries in tried.items():
            count = workloads or self._first(name)
            new = [one for one in entries if len(self._values.get(one.label, ())) < count]
            wanted.setdefault(count, []).extend(one for one in new if one.label not in self.failed)
        tasks = [task for count, entries in wanted.items() for task in self._tasks(entries, range(count))]
        results, failed = self._series.run(tasks, doing)
        self.failed |= failed
        for entry in itertools.chain(*wanted.values()):
            own = sorted((one for one in results if one.label == entry.label), key=lambda one: one.workload)
            values = np.array([float(getattr(one.metrics, self._config.metric)) for one in own])
            self._values[entry.label] = values
            if np.isnan(values).any():
                self.failed[entry.label] = (
                    f"{self._config.metric} is NaN, since every job of a workload is blocked;"
                    " metric=blocking_rate finds what blocks fewest"
                )
            if any(one.metrics.blocking_rate > 0 for one in own):
                self._blocking[entry.name] = None

    def blocking_notes(self) -> list[str]:
        """What to say if jobs were blocked and the metric does not count them."""
        if not self._blocking or self._config.metric == "blocking_rate":
            return []
        return [
            f"{', '.join(self._blocking)}: jobs were blocked, and {self._config.metric} is not of them;"
            " metric=blocking_rate finds what blocks fewest"
        ]

    def _ranked(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that finished, the best on the first workloads first."""
        finished = [entry for entry in entries if entry.label not in self.failed]
        return sorted(
            finished, key=lambda one: float(self._values[one.label][: self._first(one.name)].mean())
        )

    def _leading(self, ranked: Sequence[Entry]) -> list[Entry]:
        """The best few on the first workloads, and all close to the best; who does the same counts once."""
        found: dict[bytes, Entry] = {}
        for entry in ranked:
            values = self._values[entry.label]
            limit = float(self._values[ranked[0].label].mean()) * (1.0 + self._config.close)
            if len(found) < self._config.kept or float(values.mean()) <= limit:
                found.setdefault(values.tobytes(), entry)
        return list(found.values())

    def _best(self, ranked: Sequence[Entry]) -> Best:
        """Of those that ran most workloads the best, and the others against it."""
        most = max(len(self._values[entry.label]) for entry in ranked)
        last = [entry for entry in ranked if len(self._values[entry.label]) == most]
        best = min(last, key=lambda one: float(self._values[one.label].mean()))
        own = self._values[best.label]
        others = []
        for entry in ranked:
            values = self._values[entry.label]
            if entry != best:
                others.append(TunedConfig(entry, len(values), _change(values, own[: len(values)])))
        others.sort(key=lambda one: one.change)
        return Best(replace(best, label=best.scheduler), most, float(own.mean()), tuple(others))


def _change(values: NDArray[np.float64], best: NDArray[np.float64]) -> float:
    """Mean over mean of the best, minus 1; beside a mean of 0 infinite, or 0 if both are."""
    own, other = float(values.mean()), float(best.mean())
    if other == 0.0:
        return 0.0 if own == 0.0 else float("inf")
    return own / other - 1.0


def _tried_frame(found: Mapping[str, Best]) -> pd.DataFrame:
    """Everything that was tried, scheduler by scheduler, the best first; `change` is against the best."""
    return pd.DataFrame(
        {
            "scheduler": name,
            "tried": tried.entry.scheduler,
            "options": format_options(tried.entry),
            "workloads": tried.workloads,
            "best": tried.entry == best.entry,
            "change": tried.change,
        }
        for name, best in found.items()
        for tried in (TunedConfig(best.entry, best.workloads, 0.0), *best.others)
    )


def _rows(frame: pd.DataFrame) -> list[dict[str, str]]:
    """The same as texts."""
    return [
        {
            **{name: str(row[name]) for name in ("scheduler", "tried", "options", "workloads")},
            "vs best": "best" if row["best"] else f"{row['change']:+.1%}",
        }
        for row in frame.to_dict("records")
    ]


def _report(config: DictConfig, folder: Path, found: Mapping[str, Best], tuning: _Tuning) -> None:
    """Print the best of each scheduler, write it and all that was tried."""
    console = tuning.console
    if not found:
        label, reason = next(iter(tuning.failed.items()))
        raise SchedulerError(f"all that was tried failed: {len(tuning.failed)}, such as {label}: {reason}")
    most = max(best.workloads for best in found.values())
    comment = f"{config.metric} on at most {pluralize(most, 'workload')} of seed {config.seed + TUNING_SEED}"
    world = {part: plain(config[part]) for part in WORLD}
    setting = Setting(world, f"ringyard tune {' '.join(sys.argv[1:])}")
    needed = {name: replace(best, others=alternatives(best)) for name, best in found.items()}
    for file in (folder / "best.yaml", *([Path(config.output).expanduser()] if config.output else [])):
        write_best(file, needed, setting, comment)
        console.print(f"best: {file}", soft_wrap=True, markup=False)
    notes = tuning.blocking_notes()
    frame = _tried_frame(found)
    write_tables(folder, frame, _rows(frame), [*tuning.notes, *notes])
    console.print(f"everything that was tried: {folder / 'table.md'}", soft_wrap=True, markup=False)
    table = Table(title=comment, title_justify="left", box=SIMPLE_HEAD)
    for name in ("scheduler", "options", config.metric, "workloads", "next best"):
        table.add_column(name, justify="left" if name in ("scheduler", "options") else "right")
    for best in sorted(found.values(), key=lambda one: one.mean):
        following = [f"{best.others[0].entry.label} {best.others[0].change:+.1%}"] if best.others else [""]
        mean = f"{best.mean:,.0f}" if best.mean >= 100 else f"{best.mean:.3g}"
        shown = (best.entry.label, format_options(best.entry), mean, str(best.workloads))
        table.add_row(*shown, *following)
    table_console(console).print(table)
    for note in notes:
        console.print(note, soft_wrap=True, highlight=False, markup=False)
    for label, reason in tuning.failed.items():
        console.print(f"failed: {label}: {reason}", soft_wrap=True, markup=False)
