"""A page for each environment that has an id: its yaml, its spaces and what was measured on it."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ringyard.mdp.actions import Actions, Adjustment, Weights
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.observations.observation import ItemAxis
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

#: forms, that for the most libraries first
_FORMS = ("weights", "jobs", "queue")

_ORDERS = {
    "submit": "time of submission",
    "duration": "predicted duration",
    "work": "predicted GPU seconds",
    "gpus": "GPUs",
}

#: {items of a block of an observation: what they are}
_ITEMS = {
    ItemAxis.WAITING: "each visible waiting job",
    ItemAxis.PLACEMENT: "each visible waiting job with each way to start it",
    ItemAxis.RUNNING: "each running job",
    ItemAxis.LIVE: "each live job (waiting or running)",
    ItemAxis.SERVER: "each server",
    ItemAxis.SUMMARY: "all live jobs together",
    ItemAxis.OPERATION: "each operation of a job's graph",
    ItemAxis.DEPENDENCY: "each dependency between operations",
    ItemAxis.CLUSTER: "the whole cluster",
}

#: columns of five_environments.md that the page of an environment does without
_LEFT_OUT = {
    *("best", "p (Holm)", "makespan (s)", "queueing (s)", "slowdown", "mean rho", "worst rho", "p99 (s)"),
    *("GPUs held", "preemptions"),
    *(title for title, _, _ in LOSS_COLUMNS),
}

#: what stands in other pages, of environments without a table in five_environments.md
_ELSEWHERE = {
    "cluster": "Helios-like jobs on this cluster: [results](../results.md#generated-helios-like).",
    "tenants": "Schedulers, with and without the jobs' past: "
    "[results](../results.md#durations-unknown-tenants-known-generated-jobs). "
    "[PPO does not get below the untrained agent](../research/unknown_durations.md#ppo-on-tenants).",
    "plans": "Published schedulers: [results](../results.md#execution-plans).",
    "spot": "Published schedulers: [results](../results.md#guaranteed-and-spot-jobs).",
    "partitioning": "Blocking rates of PAC-ML's heuristics: [published comparisons]"
    "(../reproduction/pac_ml.md).",
}


def pages() -> dict[str, str]:
    """{name: page}, with an index of them."""
    ids = {"cluster": "Cluster-v0"}
    found_ids = environment_arguments().items()
    # of an experiment without an id of its own, the base of its forms' ids
    ids |= {made["experiment"]: name.rsplit("/", 1)[1].rsplit("-", 2)[0] for name, made in found_ids}
    ids |= {made["experiment"]: name.partition("/")[2] for name, made in found_ids if "form" not in made}
    found = {name: _described(name, id_) for name, id_ in ids.items()}
    others = [one for one in leaves("experiment") if one.name not in ids]
    written = {name: rendered("environment", **one) for name, one in found.items()}
    return {**written, "index": rendered("environments", environments=list(found.values()), others=others)}


def _described(name: str, id_: str) -> dict[str, Any]:
    described = _USUAL if name == _USUAL.name else leaf("experiment", name)
    parts = _USUAL_PARTS if name == _USUAL.name else parts_of(described)
    made = {key: one for key, one in environment_arguments().items() if one["experiment"] == name}
    found = {
        one["form"]: _form(key, one, parts_of(leaf("form", one["form"])))
        for key, one in made.items()
        if "form" in one
    }
    forms = [found[form] for form in _FORMS if form in found]
    forms = forms or [_form(f"ringyard/{id_}", made.get(f"ringyard/{id_}", {}), parts)]
    env: ClusterEnv = forms[0]["env"]
    title = id_.partition("-v")[0]
    own = f"ppo_weights_{name}"
    return {
        "experiment": name,
        "forms": forms,
        "items": _ITEMS,
        "replaced": f"ringyard/{id_}" if found and f"ringyard/{id_}" in made else "",
        "learner": own if own in {one.name for one in leaves("agent")} else "ppo_weights",
        "title": title,
        "summary": described.summary,
        "num_workloads": f"{env.config.num_workloads:,}",
        "limit": env.config.limit_seconds,
        "cluster": env.config.cluster,
        "parts": [leaf(part, parts[part]) for part in _ENVIRONMENT_PARTS if part in parts],
        "agents": _agents(title),
        "results": _results(title),
        "learners": _learners(title),
        "picture": _drawn(f"schedule_{name}.gif"),
        "plots": [_drawn(f"results_{name}.png"), _drawn(f"learning_{name}.png")],
        "elsewhere": _ELSEWHERE.get(name),
    }


def _form(id_: str, made: Mapping[str, str], parts: Mapping[str, str]) -> dict[str, Any]:
    """Id, spaces, actions and reward of a form of an environment, or of an environment without forms.

    Args:
        id_: of Gymnasium.
        made: arguments of `ClusterEnv`.
        parts: leaves of `action`, `observation` and `reward`.
    """
    env = ClusterEnv(**made)
    observation = parts.get("observation", "queue_and_cluster")
    return {
        "id": id_,
        "env": env,
        "form": made.get("form", ""),
        "summary": leaf("form", made["form"]).summary if "form" in made else "its only form",
        "acts": _shown(env.action_space),
        "action": leaf("action", parts["action"]) if "action" in parts else None,
        "actions": _actions(env, parts),
        "observation": observation,
        "observation_function": leaf("observation", observation).said["_target_"].rpartition(".")[2],
        "observed": _shown(env.observation_space),
        "blocks": [
            (one, one.shape(env.config.cluster, env.config.actions)) for one in env.config.observation.blocks
        ],
        "reward": leaf("reward", parts["reward"]),
        "metric": env.config.reward.metric,
        "played": _played(env),
    }


def _shown(space: spaces.Space[Any]) -> str:
    """The kind of a space and its size: `Box(38)`, or `Dict` and the number of its blocks."""
    if isinstance(space, spaces.Dict):
        return f"Dict of {len(space)} blocks"
    return f"{type(space).__name__}({space.n if isinstance(space, spaces.Discrete) else space.shape[0]})"


def _played(env: ClusterEnv) -> dict[str, str]:
    """Steps, return and mean reward of one episode: zeros, or the first valid action, at each step."""
    _, info = env.reset(seed=0)
    rewards, done = [], False
    numbers = env.action_space.dtype == np.float32
    while not done:
        action = np.zeros(env.action_space.shape, np.float32) if numbers else info["action_mask"].argmax()
        _, reward, done, _, info = env.step(action)
        rewards.append(reward)
    return {
        "steps": f"{len(rewards):,}",
        "return": f"{np.sum(rewards):,.4g}",
        "mean": f"{np.mean(rewards):.2g}",
    }


def _actions(env: ClusterEnv, parts: Mapping[str, str]) -> list[tuple[str, str]]:
    """(number or name, what it does) of each kind of action; empty where an action is one score a job."""
    actions = env.config.actions
    if isinstance(actions, Weights):
        features = next(block for block in env.config.observation.blocks if block.name == "mean").features
        meanings = {one.name: one.meaning for one in features}
        return [
            (f"`{number}`", f"weight of `{one}`: {meanings[one]}")
            for number, one in enumerate(actions.features)
        ]
    if not isinstance(actions, Actions):
        return []
    said = leaf("action", parts["action"]).said["templates"] if "action" in parts else []
    if isinstance(said, str):  # an interpolation: names of templates say it all
        said = []
    templates = [one if isinstance(one, Mapping) else {} for one in said] or [{}] * len(actions.starts)
    starts = [
        f"{_start(one.name)}{_arguments(said)}" for one, said in zip(actions.starts, templates, strict=True)
    ]
    changes = ["preempt it"] if actions.preemptive else []
    changes += [_adjustment(one) for one in actions.adjustments]
    visible = f"i from 0 to {actions.num_waiting - 1}, by {_ORDERS[actions.queue_order]}"
    rows = [
        (f"`{_numbered('i', len(starts), number)}`", f"start waiting job i ({visible}): {one}")
        for number, one in enumerate(starts)
    ]
    rows += [
        (
            f"`{actions.num_starts} + {_numbered('r', len(changes), number)}`",
            f"running slot r, from 0 to {actions.num_running - 1}: {one}",
        )
        for number, one in enumerate(changes)
    ]
    wait = "wait for the next event" + ("" if actions.may_wait else ", valid if no visible job fits")
    return [*rows, (f"`{actions.wait}`", wait)]


def _start(name: str) -> str:
    """What a way to start a job does: its placement rule, and the GPUs that it gives."""
    name = re.sub(r" fastest$", ", in its fastest execution plan", name)
    return re.sub(r" gpusx(\S+)", r", on \1 times the GPUs that the job asks for", name)


def _numbered(slot: str, kinds: int, number: int) -> str:
    """Number of an action among those of a slot, as a formula."""
    return slot if kinds == 1 else f"{slot} * {kinds} + {number}"


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


def _drawn(file: str) -> tuple[str, str]:
    """An image of docs/images and the command that made it; empty if there is none."""
    notes = json.loads((DOCS / "images" / "drawn.json").read_text())
    name = f"images/{file}"
    return (name, notes[name]["command"]) if name in notes else ("", "")


def _agents(title: str) -> Sequence[Sequence[str]]:
    """Rows of the page of agents about one environment, the heads first."""
    rows = first_table(page("agents"))
    return [row for number, row in enumerate(rows) if number == 0 or row[1] == f"the environment {title}"]
