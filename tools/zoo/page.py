"""The page of the pretrained agents, docs/agents.md, with learning curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringyard_agents.evaluation.ranking import small_sample_warning
from ringyard_agents.report.tables import markdown
from ringyard_agents.runs.figures import save_figure
from ringyard_agents.shipped_agents import ZOO_PREFIX

_INTRODUCTION = """# Pretrained agents

Agents that come with Ringyard, and how they compare. `ringyard compare schedulers=[zoo:NAME,...]` runs an
agent in any environment, and notes each setting that is not one of its training. `ringyard train
init=zoo:NAME` continues its training. Each is 3 to 6 kB, and loading one [runs no
code](runs.md#trusted-classes).

Sharing, Elastic and Full have an agent each. On Contention and CpuGpu, use `zoo:joint`, which is trained in
all five environments and Helios-like jobs. `zoo:unknown` does not see how long jobs will run, and neither do
the schedulers that it is compared with. `zoo:starts` and `zoo:starts_unknown` only start jobs; their training
trace is not distributed with Ringyard.

* **Training seeds.** The shipped seed is the best on the evaluation workloads of its training. All tables
  are of other workloads, the same for every row.
* **Best published** is the published scheduler with the least mean JCT in the table, or in the column
  *compared with*, with the rule and options tuned on separate workloads. `all` are schedulers with at most
  the agent's observability and capabilities. Named ones are the best of [the whole
  table](five_environments.md), or close to it.
* **Its allocator** turns the agent's scores into GPU assignments. Its row has no agent: every score is 0, and
  tuned options order jobs by predicted time left, so the difference is what learning adds. Only `zoo:joint`
  [counts a restart](schedulers.md#if-restarts-are-slow) before it preempts a job.
* **Differences** are of mean JCT, paired by workload, with 95 % intervals. Less is better, of all
  [metrics](metrics.md).
  Environments of 1,024 GPUs have 10 workloads, all others 40. Minutes are wall time on a shared machine.

`python -m tools.agents` writes this page from the recipes in `tools/conf/zoo`. [Aims and
limits](research/aims.md) are in the research log.
"""


#: columns of the folded table: whether a lower mean delays single jobs, and wall time
_OTHERS = ("slowdown", "worst rho", "p99 (s)", "per decision (ms)")


def agents_page(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of all agents.

    Args:
        records: {name: training, figures and title} as `write_record` stores them.
    """
    summary = [summary_row(name, world) for name, one in records.items() for world in one["worlds"]]
    parts = [_INTRODUCTION, markdown(summary), *(_section(name, one) for name, one in records.items())]
    return "\n".join(parts)


def _changed(change: Sequence[float]) -> str:
    value, low, high = (100 * one for one in change)
    return f"{value:+.1f}% [{low:+.1f}, {high:+.1f}]"


def summary_row(name: str, world: Mapping[str, Any]) -> dict[str, str]:
    """Return a row of an agent in one environment of its record, beside the best published scheduler."""
    seeds = [f"{100 * one:+.1f}" for one in sorted(world["seeds_against_best"])]
    return {
        "agent": f"`{ZOO_PREFIX}{name}`",
        "environment": world["title"],
        "best published": f"`{world['best']}`",
        "its mean JCT (s)": f"{world['best_mean']:,.0f}",
        "the agent's (s)": f"{world['mean']:,.0f}",
        "agent against best published": _changed(world["against_best"]),
        "each training seed against best published (%)": ", ".join(seeds),
        "agent against its allocator": _changed(world["against_rule"]),
        "best published: gap to bound": f"{world['best_mean'] / world['bound']:.2f}",
        "agent: gap to bound": f"{world['mean'] / world['bound']:.2f}",
    }


def _section(name: str, record: Mapping[str, Any]) -> str:
    training = record["training"]
    parts = [f"## {ZOO_PREFIX}{name}\n\n{record['title'][0].upper()}{record['title'][1:]}."]
    parts.append(f"```\n{training['command']}\n```")
    parts.append(f"{len(training['runs'])} seeds; {training['hardware']}.")
    parts.append(markdown([_run_row(run, training) for run in training["runs"]]).rstrip())
    parts.append(f"![mean JCT on the evaluation workloads while {name} learns](images/agents_{name}.png)")
    parts += [_world(world) for world in record["worlds"]]
    if record["elsewhere"]:
        rows = [_elsewhere_row(world) for world in record["elsewhere"]]
        files = dict.fromkeys(f"conf/tuned/{world['best_from']}.yaml" for world in record["elsewhere"])
        caption = f"Rules and options of {', '.join(files)}, tuned in other environments than these."
        parts.append(f"### Elsewhere\n\n{caption}\n\n{markdown(rows).rstrip()}")
    return "\n\n".join(parts) + "\n"


def _run_row(run: Mapping[str, Any], training: Mapping[str, Any]) -> dict[str, str]:
    against = {
        f"against {label}": f"{100 * (run['best'] / value - 1):+.1f}%"
        for label, value in training["baselines"].items()
    }
    constraint = training["constraint"]
    kept = {} if constraint is None else {f"{constraint} / its bound": f"{run['used']:.3f}"}
    return {
        "training seed": str(run["seed"]),
        "decisions": f"{run['decisions']:,}",
        "minutes": f"{run['minutes']:,.1f}",
        f"{training['metric']} on the evaluation workloads": _number(run["best"]),
        **against,
        **kept,
        "shipped": "*" if run["seed"] == training["shipped_seed"] else "",
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"


def _world(world: Mapping[str, Any]) -> str:
    warning = small_sample_warning(world["workloads"])
    caption = (
        f"{world['workloads']} workloads; rules and options of conf/tuned/{world['best_from']}.yaml."
        f" Its allocator is `{world['rule']}`."
    )
    parts = [
        f"### {world['title'][0].upper()}{world['title'][1:]}",
        caption,
        markdown(
            [{key: text for key, text in row.items() if key not in _OTHERS} for row in world["rows"]]
        ).rstrip(),
        "<details><summary>Other metrics</summary>",
        markdown([{key: row[key] for key in ("scheduler", *_OTHERS)} for row in world["rows"]]).rstrip(),
        "</details>",
    ]
    return "\n\n".join([*parts, *([] if warning is None else [warning])])


def _elsewhere_row(world: Mapping[str, Any]) -> dict[str, str]:
    return {
        "environment": world["title"],
        "workloads": str(world["workloads"]),
        "compared with": _competitors(world),
        "best published": f"`{world['best']}`",
        "its mean JCT (s)": f"{world['best_mean']:,.0f}",
        "the agent's (s)": f"{world['mean']:,.0f}",
        "agent against best published": _changed(world["against_best"]),
        "agent against its allocator": _changed(world["against_rule"]),
        "agent: gap to bound": f"{world['mean'] / world['bound']:.2f}",
    }


def _competitors(world: Mapping[str, Any]) -> str:
    """The published schedulers of a record."""
    own = ("zoo:", "allocator", "lower bound")
    labels = [row["scheduler"] for row in world["rows"] if not row["scheduler"].startswith(own)]
    names = sorted({label.partition("@")[0] for label in labels})
    return ", ".join(f"`{name}`" for name in names)


def draw_training(folder: Path, name: str, training: Mapping[str, Any]) -> Path:
    """Write agents_NAME.png: the metric on the evaluation workloads of every seed, baselines as lines across.

    Args:
        folder: for the plot; made if missing.
        name: of the agent.
        training: as `training.training_record` gives it.
    """

    def draw(axes: Any) -> None:
        for run in training["runs"]:
            decisions, values = zip(*run["curve"], strict=True)
            axes.plot([one / 1e6 for one in decisions], values, marker=".", label=f"seed {run['seed']}")
        for label, value in training["baselines"].items():
            axes.axhline(value, color="black", linestyle="--", linewidth=1, label=label)
        axes.set(xlabel="million decisions", ylabel=f"{training['metric']} on the evaluation workloads")

    folder.mkdir(parents=True, exist_ok=True)
    return save_figure(folder / f"agents_{name}.png", draw)
