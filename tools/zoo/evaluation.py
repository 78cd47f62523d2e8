"""Evaluation of pretrained agents against published schedulers, their allocator alone and the lower bound."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import pandas as pd
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from ringyard.errors import CheckpointError, ConfigurationError, RingyardError, SchedulerError
from ringyard_agents.config.compose import SchedulerEntry
from ringyard_agents.evaluation.compare import Comparison, plan_comparisons
from ringyard_agents.evaluation.evaluate import build_object
from ringyard_agents.evaluation.ranking import rank, ratio_interval, schedulers_frame, values_of
from ringyard_agents.evaluation.result_cache import CachedRuns
from ringyard_agents.evaluation.results_frame import runs_frame
from ringyard_agents.evaluation.selection import ComparisonRequest
from ringyard_agents.report.comparison_table import table_rows
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.run_folder import locked
from ringyard_agents.shipped_agents import ZOO_PREFIX, shipped_agents
from tools.stored_reproductions import write_json
from tools.zoo.competitors import competitors
from tools.zoo.page import agents_page
from tools.zoo.recipes import Recipe, World

#: columns of a comparison that a page shows
_SHOWN = ("slowdown", "worst rho", "p99 (s)", "gap to bound", "per decision (ms)")

#: workloads of an agent's own world whose figures a test holds it to
_CHECKED = 4

#: rows of a table that are no schedulers of the recipe
_BOUND, _SEED = "lower bound", "seed "

Record = dict[str, Any]


def race_of(world: World, agents: Mapping[str, str], workloads: int) -> Comparison:
    """What a world's table takes; Hydra must be initialised.

    Args:
        world: where.
        agents: {label: `zoo:NAME` or run folder}.
        workloads: how many.
    """
    config = hydra.compose("compare", list(world.overrides))
    given = [one if label == one else {label: {"scheduler": f"agent:{one}"}} for label, one in agents.items()]
    config.tuning, config.seeds = world.best, workloads
    references = _references(world, config)
    config.schedulers = [*given, *references, *(one for one in world.rules if one not in references)]
    [race] = plan_comparisons(ComparisonRequest.read(config)).values()
    return race


def _references(world: World, config: DictConfig) -> list[str | Mapping[str, Any]]:
    """A world's references, those of the agent's class in place of "all"."""
    named = [one for one in world.references if one != "all"]
    if len(named) == len(world.references):
        return named
    taken = {SchedulerEntry.read(one).label for one in named}
    found = [
        one
        for one in competitors(SchedulerEntry.read(world.rules[0]), ComparisonRequest.read(config))
        if one.name not in taken
    ]
    return [
        *({one.label: {"scheduler": one.scheduler, "options": dict(one.options)}} for one in found),
        *named,
    ]


def require_judges(recipe: Recipe) -> None:
    """Find what a recipe's worlds cannot be judged by, before hours of training; Hydra must be initialised.

    Raises:
        ConfigurationError: a world that cannot be made, a scheduler that does not exist or cannot serve its
            jobs, or none that is published.
    """
    for world in (*recipe.worlds, *recipe.elsewhere):
        where = f"tools/conf/zoo: {recipe.name}: {world.label}"
        try:
            tasks = race_of(world, {}, 2).tasks
        except (RingyardError, HydraException, OmegaConfBaseException) as error:
            raise ConfigurationError(f"{where}: {' '.join(str(error).split())}") from error
        schedulers = {task.label: task.scheduler for task in tasks}
        entries = [SchedulerEntry.read(one) for one in (*world.references, *world.rules)]
        unfit = [one.label for one in entries if one.is_agent or _is_taken(one.label)]
        if unfit:
            raise ConfigurationError(
                f"{where}: references and rules have {', '.join(unfit)}; expected schedulers, by names that"
                " agents and the bound do not have"
            )
        rule = _rule_label(world, list(schedulers))
        shown = "all" in world.references or world.rules[0] in world.references
        if build_object(schedulers[rule]).published and not shown:
            raise ConfigurationError(
                f"{where}: rules has {rule}, which is published; expected it among references, too"
            )
        if not any(build_object(one).published for one in schedulers.values()):
            raise ConfigurationError(
                f"{where}: references is {list(world.references)}; expected a published scheduler among them"
            )


def _is_taken(label: str) -> bool:
    return label == _BOUND or label.startswith((ZOO_PREFIX, _SEED))


def judge(
    recipe: Recipe,
    others: Mapping[str, str],
    workloads: int | None,
    workers: int | None,
    console: Console,
    kept: Mapping[str, Any] | None = None,
    again: bool = True,
) -> tuple[Record, Record]:
    """Return an agent's record in every world of its recipe, and what it was made of; Hydra is initialised.

    Each run is kept in runs/zoo_judged_NAME as it ends; an equal call does not run it again.

    Args:
        recipe: of an agent that ships.
        others: {label: run folder} of its other training seeds, which are judged in worlds with a table.
        workloads: in each world; None: as the recipe says.
        workers: processes; None: one per core.
        console: shows progress.
        kept: an earlier record. An environment with equal means keeps its rows, also those of training seeds
            that cannot be run again.
        again: run the worlds that `kept` has, too.

    Returns:
        (record, {world: the settings, and every scheduler's mean JCT on each workload}).

    Raises:
        RingyardError: bad input, or a scheduler failed.
    """
    shipped = ZOO_PREFIX + recipe.name
    folder = Path("runs", f"zoo_judged_{recipe.name}")
    old = {one["label"]: one for part in ("worlds", "elsewhere") for one in (kept or {}).get(part, ())}

    def run(world: World, agents: Mapping[str, str]) -> Record:
        before = old.get(world.label)
        if before and not again:
            return before
        race = race_of(world, agents, workloads or world.workloads)
        results, failed = series.run(race.tasks, f"{recipe.name}: {world.label}")
        for label, reason in failed.items():
            raise SchedulerError(f"{label} failed in {world.label} on {reason}")
        runs = runs_frame(results)
        checks[world.label] = values_of(runs, shipped, "mean_jct")[:_CHECKED].tolist()
        values[world.label] = {
            "overrides": list(world.overrides),
            "environment": race.tasks[0].environment,
            "schedulers": {task.label: task.scheduler for task in race.tasks},
            "bound_mean_jct": values_of(runs, shipped, "bound_mean_jct").round(6).tolist(),
            "mean_jct": {
                one: values_of(runs, one, "mean_jct").round(6).tolist() for one in runs["scheduler"].unique()
            },
        }
        found = _record(world, runs, shipped, [one for one in agents if one != shipped])
        if not before or agents.keys() - {shipped}:
            return found
        if all(math.isclose(found[key], before[key], rel_tol=1e-9) for key in ("mean", "best_mean", "bound")):
            return before
        console.print(f"{recipe.name}: {world.label} differs from its record", soft_wrap=True, markup=False)
        return found

    checks: dict[str, list[float]] = dict(kept["check"]) if kept else {}
    values: Record = {}
    with locked(folder):
        series = CachedRuns(folder / "measured.jsonl", workers, console)
        tables = [run(world, {shipped: shipped, **others}) for world in recipe.worlds]
        rows = [run(world, {shipped: shipped}) for world in recipe.elsewhere]
    check = {world.label: checks[world.label] for world in recipe.worlds}
    return {"check": check, "worlds": tables, "elsewhere": rows}, values


def _record(world: World, runs: pd.DataFrame, shipped: str, others: Sequence[str]) -> Record:
    """What a page says of a world."""
    jct = {one: values_of(runs, one, "mean_jct") for one in runs["scheduler"].unique()}
    published = set(runs.loc[runs["published"], "scheduler"])
    best = min(published, key=lambda label: jct[label].mean())
    rule = _rule_label(world, list(jct))
    bound = float(values_of(runs, shipped, "bound_mean_jct").mean())
    return {
        "label": world.label,
        "title": world.title,
        "workloads": len(jct[shipped]),
        "best": best,
        "best_from": world.best,
        "mean": float(jct[shipped].mean()),
        "best_mean": float(jct[best].mean()),
        "bound": bound,
        "against_best": _against(jct[shipped], jct[best]),
        "rule": rule,
        "against_rule": _against(jct[shipped], jct[rule]),
        "seeds_against_best": [_against(jct[label], jct[best])[0] for label in (shipped, *others)],
        "rows": [*_rows(runs, [shipped, *others], best, rule), _bound_row(bound, rule)],
    }


def _rule_label(world: World, labels: Sequence[str]) -> str:
    """What a race calls the rule of an agent: as the recipe, or with the placement rule that suits it."""
    label = SchedulerEntry.read(world.rules[0]).label
    named = {SchedulerEntry.read(one).label for one in (*world.references, *world.rules)}
    placed = [one for one in labels if one not in named and one.partition("@")[0] == label]
    return label if label in labels else placed[0]


def _against(values: Any, reference: Any) -> list[float]:
    """[difference of means, its lower end, its upper end], as shares of the reference."""
    found = ratio_interval(values, reference)
    return [found.value - 1, found.low - 1, found.high - 1]


def _rows(runs: pd.DataFrame, agents: Sequence[str], best: str, rule: str) -> list[dict[str, str]]:
    """The agents, then the rest, the best first: columns of a comparison, against two references."""
    ranking, beside = rank(runs, best), rank(runs, rule)
    against_best = {row["scheduler"]: row for row in table_rows(schedulers_frame(runs, ranking), ranking)}
    against_rule = {row["scheduler"]: row for row in table_rows(schedulers_frame(runs, beside), beside)}
    return [
        {
            "scheduler": label,
            "mean JCT [95% CI] (s)": next(text for name, text in row.items() if name.startswith("mean JCT")),
            "vs best published": row[f"vs {best}"],
            f"vs {rule}": against_rule[label][f"vs {rule}"],
            **{name: row[name] for name in _SHOWN},
        }
        for label in [*agents, *(one for one in ranking.order if one not in agents)]
        for row in [against_best[label]]
    ]


def _bound_row(bound: float, rule: str) -> dict[str, str]:
    empty = dict.fromkeys(("vs best published", f"vs {rule}", *_SHOWN), "")
    return {"scheduler": _BOUND, "mean JCT [95% CI] (s)": f"{bound:,.0f}", **empty, "gap to bound": "1.00"}


def read_records() -> dict[str, Record]:
    """{name: its record} of the agents that have one, by name: how each was trained, and its figures.

    Raises:
        CheckpointError: one is damaged, so that there is no page to write of it.
    """
    files = {name: file.with_suffix(".json") for name, file in shipped_agents().items()}
    return {name: _read(file) for name, file in files.items() if file.is_file()}


def _read(file: Path) -> Record:
    try:
        record: Record = json.loads(file.read_text())
        for world in (*record["worlds"], *record["elsewhere"]):
            if "against_allocator" in world:  # written before agents had other rules
                world |= {"rule": "allocator", "against_rule": world.pop("against_allocator")}
        agents_page({file.stem: record})
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{file} is no record of `python -m tools.agents`, or damaged ({type(error).__name__}:"
            f" {error}); remove it: until its agent is trained again, the page has no section on it"
        ) from error
    return record


def write_record(recipe: Recipe, record: Mapping[str, Any], values: Mapping[str, Any], folder: Path) -> None:
    """Write an agent's record beside its weights, and what it was made of (`judge`) into a folder."""
    with atomic_write(recipe.record) as partial:
        partial.write_text(json.dumps(record, indent=1) + "\n")
    file = folder / f"{recipe.name}.json"
    known = {**(json.loads(file.read_text()) if file.is_file() else {}), **values}
    folder.mkdir(parents=True, exist_ok=True)
    labels = [one.label for one in (*recipe.worlds, *recipe.elsewhere)]
    write_json({one: known[one] for one in labels if one in known}, file)
