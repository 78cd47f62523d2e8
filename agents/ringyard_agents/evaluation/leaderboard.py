"""Command `ringyard leaderboard`: schedulers and agents on fixed workloads, a JSON file (row) for each.

Rows of the same workloads are a table. Each is compared with its reference, the best published scheduler that
sees run times only if the row does, and only starts jobs if the row does.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import hydra
import numpy as np
import yaml
from rich.console import Console
from rich.progress import Progress

from ringyard.checks import require, suggest
from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import SchedulerEntry
from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.evaluation.compare import Comparison, plan_comparisons
from ringyard_agents.evaluation.evaluate import build_object, run_tasks
from ringyard_agents.evaluation.ranking import holm, holm_confidences, p_value, ratio_interval
from ringyard_agents.evaluation.selection import COMPARISON_SEED_OFFSET, ComparisonRequest
from ringyard_agents.evaluation.tuned_configs import capability_class
from ringyard_agents.report.tables import change_text, p_text, print_line, print_table
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.run_folder import checkout_commit
from ringyard_agents.shipped_agents import agent_path

#: content of conf/leaderboard.yaml
CONFIG: dict[str, Any] = yaml.safe_load((config_folder() / "leaderboard.yaml").read_text())

Row = dict[str, Any]  #: {field of `CONFIG["fields"]`: value}

TABLE = ("environment", "split", "set", "seed")  #: fields that rows of a table have in common

_MIN_SECRET = 16  # characters, so that hidden workloads cannot be found by trying


@dataclass(frozen=True)
class Levels:
    """Workloads of a table of the leaderboard."""

    key: tuple[str, str, str]  #: environment, split of it, set of workloads
    overrides: Sequence[str]  #: words that change the environment
    seed: int  #: workload k is drawn from (seed, k)
    workloads: int  #: number of workloads
    reference: str  #: best published scheduler of the environment

    @classmethod
    def find(cls, environment: str, split: str, level_set: str, secret: str | None = None) -> Self:
        """Find levels by their names. `secret` is the file that hidden levels are drawn from."""
        sets, environments = CONFIG["sets"], CONFIG["environments"]
        splits = {"standard": [], **environments.get(environment, {}).get("splits", {})}
        chosen = {"environment": (environment, environments), "split": (split, splits)}
        for option, (name, known) in {**chosen, "set": (level_set, sets)}.items():
            if name not in known:
                raise ConfigurationError(f"--{option} is {name!r}; expected {suggest(name, known)}")
        seed = sets[level_set]["seed"]
        text = "" if secret is None else Path(secret).expanduser().read_text().strip()
        if (seed is None) != (len(text) >= _MIN_SECRET):
            raise ConfigurationError(
                f"--set is {level_set}, and --secret has {len(text)} characters; expected --set hidden and a"
                f" file with {_MIN_SECRET} or more (openssl rand -hex 16 > FILE), or another set"
            )
        if seed is None:  # it has more bits than any that users can give
            seed = 2**128 + int(hashlib.sha256(f"levels of Ringyard: {text}".encode()).hexdigest()[:32], 16)
        key, number = (environment, split, level_set), sets[level_set]["workloads"]
        return cls(key, splits[split], seed, number, environments[environment]["reference"])

    def plan(self, schedulers: Sequence[Any], workloads: int) -> Comparison:
        """Plan runs of schedulers, those without rule and options as tuned. Hydra must be initialised."""
        words = [f"experiment={self.key[0]}", f"tuning={self.key[0]}", *self.overrides]
        request = ComparisonRequest.read(hydra.compose("compare", words))
        number, seed = min(workloads, self.workloads), self.seed - COMPARISON_SEED_OFFSET
        return plan_comparisons(replace(request, schedulers=schedulers, seeds=number, seed=seed))[""]


def read_rows(folder: Path) -> list[Row]:
    """Read the rows of a folder, the lowest mean JCT first. Reading them runs no code."""
    rows, fields = [], CONFIG["fields"]
    for file in sorted(folder.glob("*.json")):
        row = read_plain(file)
        require(f"{file}: fields", row, Mapping[str, object])
        if set(row) != set(fields):
            raise ConfigurationError(f"{file} has the fields {', '.join(row)}; expected {', '.join(fields)}")
        require(f"{file}: values", row["values"], Sequence[float])
        rows.append(row)
    return sorted(rows, key=lambda row: float(np.mean(row["values"])))


def compare_rows(rows: Sequence[Row]) -> list[Row]:
    """Compare each row of a table with its reference: ratio, interval and p-value after Holm."""
    pairs = {}
    for row in rows:
        if len(row["values"]) != len(rows[0]["values"]) or not np.isclose(
            row["bound_mean_jct"], rows[0]["bound_mean_jct"]
        ):
            names = f"{row['name']} and {rows[0]['name']}, {row['environment']}"
            raise ConfigurationError(f"rows of other workloads ({names}); run again: {row['command']}")
        allowed = [one for one in rows if one["published"] and one["sees_durations"] <= row["sees_durations"]]
        allowed = [one for one in allowed if one["only_starts"] >= row["only_starts"]]
        best = min(allowed, key=lambda one: float(one["mean_jct"]), default=row)
        if best is not row:
            pairs[row["name"]] = (best["name"], np.array(row["values"]), np.array(best["values"]))
    p_values = np.array([p_value(*values) for _, *values in pairs.values()])
    none = dict.fromkeys(("reference", "ratio", "low", "high", "p_holm"))
    found: dict[str, Row] = {row["name"]: {**row, **none} for row in rows}
    adjusted = zip(pairs.items(), holm(p_values), holm_confidences(p_values), strict=True)
    for (name, (reference, own, other)), p_holm, confidence in adjusted:
        one = ratio_interval(own, other, float(confidence))
        found[name] |= {"reference": reference, "p_holm": float(p_holm)}
        found[name] |= {"ratio": one.value, "low": one.low, "high": one.high}
    return list(found.values())


def table_row(row: Row) -> dict[str, str]:
    """Return the cells of a row that the command prints."""
    return {
        "scheduler": row["name"],
        "mean JCT (s)": f"{row['mean_jct']:,.0f}",
        "gap to bound": f"{row['gap_to_bound']:.2f}",
        "vs reference": change_text(row["ratio"], row["low"], row["high"]) if row["reference"] else "",
        "p (Holm)": p_text(row["p_holm"]) if row["reference"] else "",
        "reference": row["reference"] or ("itself" if row["published"] else "none is there"),
    }


def leaderboard(entries: Sequence[str], environment: str | None, rows: str, **options: Any) -> None:
    """Measure entries, write their rows into a folder, and compare all rows of the same workloads anew.

    Bad input is an error before anything runs. commands.yaml describes the arguments.
    """
    folder, console = Path(rows).expanduser(), Console()
    before, workers = read_rows(folder), options.pop("workers")
    with hydra_initialized():
        names = [environment] if environment else CONFIG["environments"]
        every = [Levels.find(name, **options) for name in names]
        given = [yaml.safe_load(entry) for entry in entries]
        planned = [(levels, levels.plan(given, levels.workloads)) for levels in every]
    folder.mkdir(parents=True, exist_ok=True)
    for levels, comparison in planned:
        new = _measure(levels, comparison, workers)
        kept = [row for row in before if all(row[name] == new[0][name] for name in TABLE)]
        kept = [row for row in kept if row["name"] not in comparison.entries]
        table = compare_rows(sorted([*kept, *new], key=lambda row: float(row["mean_jct"])))
        for row in table:
            file = folder / f"{'.'.join(levels.key)}.{quote(row['name'], safe='@')}.json"
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row[name])}" for name in CONFIG["fields"])
            with atomic_write(file) as partial:
                partial.write_text(f"{{\n{lines}\n}}\n")
            if row["name"] in comparison.entries:
                print_line(console, f"row: {file}")
        cells = [table_row(row) for row in table]
        references = {row["reference"] for row in table if row["reference"]}
        title = f"{', '.join(levels.key)}: means over {levels.workloads} workloads"
        shown = list(cells[0])
        if len(references) == 1:
            title += f"; reference: {references.pop()}"
            shown.remove("reference")
        print_table(console, title, cells, shown, ("scheduler",), folds=True)


def _measure(levels: Levels, comparison: Comparison, workers: int | None) -> list[Row]:
    """Run a comparison and return its rows, without what `compare_rows` adds."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        job = bar.add_task(levels.key[0], total=len(comparison.tasks))
        results = run_tasks(comparison.tasks, workers, lambda _: bar.advance(job))
    schedulers = {task.label: build_object(task.scheduler) for task in comparison.tasks}
    seed = levels.seed  # of hidden workloads a digest, which tells sets apart
    public = seed if seed < 2**32 else f"sha256:{hashlib.sha256(str(seed).encode()).hexdigest()[:16]}"
    rows = []
    for label, entry in comparison.entries.items():
        own = [one for one in results if one.label == label]
        if any(one.metrics.blocking_rate for one in own):
            raise SchedulerError(f"{label} rejects jobs; expected a scheduler with which every job ends")
        values = [one.metrics.mean_jct for one in own]
        mean, bound = float(np.mean(values)), float(np.mean([one.bounds.mean_jct for one in own]))
        sees_durations, only_starts = capability_class(schedulers[label])
        row: Row = {"name": label, "scheduler": entry.scheduler, "options": dict(entry.options)}
        row["agent_sha256"] = None
        if entry.is_agent:
            file = agent_path(entry.checkpoint)
            content = (file / "agent.safetensors" if file.is_dir() else file).read_bytes()
            row["agent_sha256"] = hashlib.sha256(content).hexdigest()
        row |= {**dict(zip(TABLE, (*levels.key, public), strict=True)), "command": _command(levels, entry)}
        row |= {"observability": own[0].observability, "capabilities": str(own[0].capabilities)}
        row |= {"published": own[0].published, "sees_durations": sees_durations, "only_starts": only_starts}
        row |= {"mean_jct": mean, "bound_mean_jct": bound, "gap_to_bound": mean / bound}
        rows.append({**row, "commit": checkout_commit(), "values": values})
    return rows


def _command(levels: Levels, entry: SchedulerEntry) -> str:
    """Return the command that measures an entry, with its placement rule and options."""
    word = entry.scheduler
    if SchedulerEntry.read(word) != entry:
        content = {entry.label: {"scheduler": word, "options": dict(entry.options)}}
        word = yaml.safe_dump(content, default_flow_style=True, width=10**6, sort_keys=False).strip()
    words = ["ringyard", "leaderboard", word]
    for option, value in zip(("environment", "split", "set"), levels.key, strict=True):
        words += [f"--{option}", value]
    return shlex.join([*words, *(["--secret", "FILE"] if levels.seed >= 2**32 else [])])
