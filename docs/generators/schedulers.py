"""A page for each scheduler: paper, what was read and assumed, options, docstring, results, reproduction."""

import re
from functools import cache
from importlib import import_module
from typing import Any

from hydra.core.global_hydra import GlobalHydra

from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import SchedulerEntry, accepts_placement, scheduler_config
from ringyard_agents.evaluation.evaluate import build_object
from ringyard_agents.evaluation.selection import benchmark_experiments

from .sources import Leaf, first_table, leaf, leaves, page, rendered, section

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """{name: page}, with an index of them."""
    GlobalHydra.instance().clear()
    with hydra_initialized():
        described = [_described(one) for one in leaves("scheduler")]
    seen: set[str] = set()
    found = {}
    for one in described:
        # policies have a page in the reference
        first = one["module"] not in seen and ".policies." not in one["module"]
        seen.add(one["module"])
        found[one["name"]] = rendered("scheduler", first=first, **one)
    return {**found, "index": rendered("schedulers", schedulers=described)}


def _described(one: Leaf) -> dict[str, Any]:
    scheduler = build_object(scheduler_config(SchedulerEntry.read(one.name)))
    module = str(one.said["_target_"]).rpartition(".")[0]
    papers = _papers().values()
    return {
        "name": one.name,
        "summary": one.summary,
        "capabilities": scheduler.capabilities,
        "observability": scheduler.total_observability,
        "published": scheduler.published,
        "takes_rule": accepts_placement(one.name),
        "module": module,
        "module_summary": (import_module(module).__doc__ or "").splitlines()[0],
        "paper": _paper(one.name),
        "options": [option for option in one.options if option[0] != "placement"],
        "results": [row for environment in benchmark_experiments() for row in _rows(environment, one.name)],
        "claims": [paper for paper in papers if one.name in paper["subjects"]],
        "comparator": [paper for paper in papers if one.name in paper["runs"] - paper["subjects"]],
    }


def _paper(name: str) -> list[str]:
    """Cells of the scheduler's row in the table of what is whose; none: it has no paper there."""
    for row in first_table(page("schedulers"))[1:]:
        if f"`{name}`" in row[0].split(", ") and not row[1].startswith("none"):
            return [re.sub(r"\]\((?=\w)", "](../", cell) for cell in row[1:]]
    return []


def _rows(environment: str, name: str) -> list[dict[str, str]]:
    """What five_environments.md measured of a scheduler on an environment."""
    title = str(leaf("experiment", environment).said["environment_id"]).partition("-v")[0]
    table = first_table(section(page("five_environments"), title))
    if not table:  # not run yet
        return []
    heads, *rows = table
    [against] = [head for head in heads if head.startswith("vs ")]
    return [
        {
            "environment": title,
            "label": row[0],
            "mean": row[heads.index("mean JCT [95% CI] (s)")],
            "difference": row[heads.index(against)],
            "against": against.removeprefix("vs "),
            "bound": row[heads.index("gap to bound")],
        }
        for row in rows
        if row[0].partition("@")[0] == name
    ]


@cache
def _papers() -> dict[str, dict[str, Any]]:
    """{paper: its claims, schedulers that they are about, and all that run}."""
    found = {}
    for one in leaves("reproduction"):
        said = one.said
        cases = said["cases"].values()
        entries = {label: entry for case in cases for label, entry in case["schedulers"].items()}
        # what names no scheduler is an agent
        runs = {
            label: entry["scheduler"].partition("@")[0]
            for label, entry in entries.items()
            if "train" not in entry
        }
        written = page(f"reproduction/{one.name}")
        found[one.name] = {
            "paper": one.name,
            "title": said["title"],
            "runs": set(runs.values()),
            "subjects": {runs[claim["scheduler"]] for claim in said["claims"] if claim["scheduler"] in runs},
            "table": first_table(written),
        }
    return found
