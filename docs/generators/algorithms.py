"""A page for each yaml of conf/agent: algorithm, settings, command, and what learnt by it."""

import re
from typing import Any

from .sources import Leaf, first_table, leaf, leaves, page, rendered, section

__all__ = ["pages", "words_of"]

#: what an agent's comment says that it needs on the command line
_NEEDED = re.compile(r"\b(?:experiment|form|action|observation)=\w+")

#: rows of learners.md, by the agent that they were trained with
_BENCHMARK = {
    "ppo_weights": "PPO, weights",
    "ppo_jobs": "PPO with attention, jobs",
    "maskable_mlp": "MaskablePPO, queue",
}


def pages() -> dict[str, str]:
    """{name: page}, with an index of them."""
    described = [_described(one) for one in leaves("agent")]
    found = {one["name"]: rendered("algorithm", **one) for one in described}
    return {**found, "index": rendered("algorithms", algorithms=described)}


def words_of(name: str) -> list[str]:
    """Words of `ringyard train` beside `agent=`: what the comment of its yaml, or of its base, names."""
    words = _NEEDED.findall(leaf("agent", name).summary)
    return words or [word for base in _bases(leaf("agent", name)) for word in words_of(base)]


def _bases(one: Leaf) -> list[str]:
    return [base for base in one.said.get("defaults", []) if base != "_self_"]


def _target(one: Leaf) -> str:
    found = one.said.get("_target_")
    return str(found) if found else _target(leaf("agent", _bases(one)[0]))


def _described(one: Leaf) -> dict[str, Any]:
    used = re.compile(rf"agent={one.name}(?!\w)")
    agents = re.findall(r"^## (zoo:\w+)$", page("agents"), re.MULTILINE)
    papers = {
        other.name: str(other.said["title"]) for other in leaves("reproduction") if used.search(other.text)
    }
    return {
        "name": one.name,
        "summary": one.summary,
        "text": one.text,
        "target": _target(one),
        "bases": _bases(one),
        "words": words_of(one.name),
        "results": _results(_BENCHMARK.get(one.name)),
        "agents": [title for title in agents if used.search(section(page("agents"), title))],
        "papers": papers,
    }


def _results(label: str | None) -> list[list[str]]:
    """Rows of the benchmark of algorithms, the heads first, without the column of the algorithm."""
    heads, *rows = first_table(page("learners"))
    kept = [row for row in rows if label in row]
    return [[heads[0], *heads[2:]], *([row[0], *row[2:]] for row in kept)] if kept else []
