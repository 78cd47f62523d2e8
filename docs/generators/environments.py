"""A page for each environment that has an id: its yaml, its spaces and what was measured on it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ringyard.mdp.actions import Actions, Adjustment
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import experiment
from ringyard.mdp.observations.observation import feature_table
from ringyard.mdp.registration import environment_arguments
from ringyard_agents.report.comparison_table import LOSS_COLUMNS

from .sources import DOCS, Leaf, first_table, leaf, leaves, page, parts_of, rendered, section

__all__ = ["pages"]

#: parts that say what is simulated
_ENVIRONMENT_PARTS = ("cluster", "workload", "performance", "network", "interconnect", "restart", "failures")

#: the environment without a yaml: what its defaults are like
_USUAL = Leaf("experiment", "cluster", "# Jobs as on Helios, on 16 servers of 4 GPUs with rings over 10GbE.")
_USUAL_PARTS = {
    "cluster": "default",
    "performance": "ring_10gbe",
    "restart": "none",
    "failures": "none",
    "reward": "jct",
}

_ORDERS = {
    "submit": "time of submission",
    "duration": "predicted duration",
    "work": "predicted GPU seconds",
    "gpus": "GPUs",
}

#: columns of five_environments.md that the page of an environment does without
_LEFT_OUT = {
    *("best", "p (Holm)", "makespan (s)", "queueing (s)", "slowdown", "mean rho", "GPUs held", "preemptions"),
    *(title for title, _, _ in LOSS_COLUMNS),
}

#: what stands in other pages, of environments without a table in five_environments.md
_ELSEWHERE = {
    "cluster": "Helios-like jobs on this cluster: [results](../results.md#generated-helios-like).",
    "partitioning": "Blocking rates of PAC-ML's heuristics: [published comparisons]"
    "(../reproduction/pac_ml.md).",
}


def pages() -> dict[str, str]:
    """{name: page}, with an index of them."""
    ids = {"cluster": "Cluster-v0"}
    found_ids = environment_arguments().items()
    ids |= {made["experiment"]: name.partition("/")[2] for name, made in found_ids if "form" not in made}
    found = {name: _described(name, id_) for name, id_ in ids.items()}
    others = [one for one in leaves("experiment") if one.name not in ids]
    written = {name: rendered("environment", **one) for name, one in found.items()}
    return {**written, "index": rendered("environments", environments=list(found.values()), others=others)}


def _described(name: str, id_: str) -> dict[str, Any]:
    usual = name == _USUAL.name
    described = _USUAL if usual else leaf("experiment", name)
    parts = _USUAL_PARTS if usual else parts_of(described)
    setting = EnvConfig() if usual else experiment(name)
    env = ClusterEnv(setting)
    title = id_.partition("-v")[0]
    return {
        "experiment": name,
        "forms": _forms(name),
        "id": id_,
        "title": title,
        "summary": described.summary,
        **_actions(setting, parts),
        "action_space": env.action_space,
        "space": env.observation_space,
        "blocks": setting.observation.blocks,
        "features": feature_table(setting.observation.blocks),
        "reward": leaf("reward", parts["reward"]).summary,
        "metric": setting.reward.metric,
        "num_workloads": f"{setting.num_workloads:,}",
        "limit": setting.limit_seconds,
        "cluster": setting.cluster,
        "parts": [leaf(part, parts[part]) for part in _ENVIRONMENT_PARTS if part in parts],
        "agents": _agents(title),
        "results": _results(title),
        "learners": _learners(title),
        "picture": _drawn(f"gantt_{name}"),
        "plots": [_drawn(f"results_{name}"), _drawn(f"learning_{name}")],
        "elsewhere": _ELSEWHERE.get(name),
        "versions": section(page("versions"), title),
    }


def _forms(name: str) -> list[dict[str, Any]]:
    """Each form of an environment: its id, spaces, blocks of the observation and reward."""
    found = []
    for other, made in environment_arguments().items():
        if made["experiment"] == name and "form" in made:
            parts = parts_of(leaf("form", made["form"]))
            found.append(
                {
                    "id": other.partition("/")[2],
                    "form": made["form"],
                    "summary": leaf("form", made["form"]).summary,
                    "action_space": ClusterEnv(**made).action_space,
                    "observation": parts["observation"],
                    "reward": parts["reward"],
                    "rewarded": leaf("reward", parts["reward"]).summary,
                }
            )
    return sorted(found, key=lambda one: ("weights", "jobs", "queue").index(one["form"]))


def _actions(setting: EnvConfig, parts: Mapping[str, str]) -> dict[str, Any]:
    actions = setting.actions
    assert isinstance(actions, Actions)
    chosen = leaf("action", parts["action"]) if "action" in parts else None
    templates = chosen.said["templates"] if chosen else [{}] * len(actions.starts)
    starts = [f"{one.name}{_arguments(said)}" for one, said in zip(actions.starts, templates, strict=True)]
    changes = ["preempt it"] if actions.preemptive else []
    changes += [_adjustment(one) for one in actions.adjustments]
    return {
        "actions": actions,
        "action": chosen,
        "starts": list(enumerate(starts)),
        "changes": list(enumerate(changes)),
        "order": _ORDERS[actions.queue_order],
    }


def _arguments(template: Mapping[str, Any]) -> str:
    """Of a placement rule, as its yaml has them."""
    if "placement" in template or "gpu_factor" in template:
        return ""  # the template's name says how much it gives
    said = [f"{name} {value}" for name, value in template.items() if name != "_target_"]
    return f" ({', '.join(said)})" if said else ""


def _adjustment(one: Adjustment) -> str:
    factors = {"GPUs": one.gpu_factor, "batch": one.batch_factor, "cores": one.core_factor}
    said = [f"{what} x {value:g}" for what, value in factors.items() if value != 1.0]
    if one.bandwidth_cap is not None:
        said.append(f"memory bandwidth capped at {one.bandwidth_cap:g}")
    if one.link_share is not None:
        said.append(f"link share {one.link_share:g}")
    if one.placement is not None:
        said.append(f"on GPUs that `{one.placement.name}` finds")
    return ", ".join(said)


def _results(title: str) -> list[list[str]]:
    """The environment's table in five_environments.md, without columns that few look for."""
    table = (
        first_table(section(page("five_environments"), title))
        if f"\n## {title}\n" in page("five_environments")
        else []
    )
    heads = table[0] if table else []
    kept = [number for number, head in enumerate(heads) if head not in _LEFT_OUT]
    return [[row[number] for number in kept] for row in table]


def _learners(title: str) -> list[list[str]]:
    """Rows of the benchmark of algorithms about the environment, the heads first, without its name."""
    heads, *rows = first_table(page("learners"))
    found = [row[1:] for row in rows if row[0] == title]
    return [heads[1:], *found] if found else []


def _drawn(stem: str) -> tuple[str, str]:
    """An image of docs/images and the command that made it; empty if there is none."""
    notes = json.loads((DOCS / "images" / "drawn.json").read_text())
    name = f"images/{stem}.png"
    return (name, notes[name]["command"]) if name in notes else ("", "")


def _agents(title: str) -> Sequence[Sequence[str]]:
    """Rows of the page of agents about one environment, the heads first."""
    rows = first_table(page("agents"))
    return [row for number, row in enumerate(rows) if number == 0 or row[1] == f"the environment {title}"]
