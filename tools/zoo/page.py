"""The page of the pretrained agents, docs/agents.md, with learning curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringyard_agents.evaluation.statistics import small_sample_warning
from ringyard_agents.report.tables import markdown
from ringyard_agents.runs.figures import save_figure
from ringyard_agents.shipped_agents import ZOO_PREFIX

_INTRODUCTION = """# Agents that ship

Written by `python -m tools.agents`, which trains what is not trained yet, judges, and writes this page;
`--only NAME` does it for one agent, `--skip-training` judges the weights that ship, `--new-worlds` judges
them only where a recipe has got a world since. Nothing here is written by hand.
Recipes are in `tools/conf/zoo`.
`ringyard compare schedulers=[zoo:NAME,...]` runs an agent
anywhere, `ringyard train init=zoo:NAME` goes on from it.

Each agent is trained from the seeds listed below. The one that ships is the best on the evaluation
workloads of its training; the tables are of other workloads, which nothing was chosen by, the same for
all rows. *Best published*: of the published schedulers in the table, or in the column *held against*,
each with the rule and options that `ringyard tune` found for it on yet other workloads, the one with the
least mean there. The recipe names them, or says `all`: every one that knows and may no more than the
agent (told how long jobs run only if the agent is, starting jobs only if that is all the agent does). A
rival that would go by predicted durations has the best of what was tried that does not: `synergy_tune`
then starts jobs in order of attained service (`order=las`). On environments, who is named was best, or close
to it, in the environment's whole table ([five_environments.md](five_environments.md)); the rest were run with
restarts of 300 s (Elastic, CpuGpu, Sharing, Full) or 30 s (Contention), 10 workloads each (`ringyard compare
experiment=full restart.seconds=300 tuning=full schedulers=all seeds=10`): nobody published is ahead of
those named. On other sizes and loads they were not run. *Its rule* is what an agent's scores go through,
with every score at 0: what learning adds to. It is `allocator`, tuned in the same way, but for agents
that only start jobs or do not know durations; each table names it. The agent keeps the options that it
learnt with, in its recipe; those of its rule may be others (only `zoo:joint` has `preemption_price`, which
helps where restarts are dear). Under *Elsewhere*, slowdown, the worst rho and p99 are the agent's, then
the best published scheduler's: a lower mean may be bought by starving somebody. Differences are of means,
paired by workload, with 95 % intervals; columns are explained in [metrics.md](metrics.md). One workload
of 1,024 GPUs has as many jobs as 16 of 64: there are 10 of these, and 40 of all others. Minutes are of
wall time, on a machine that may have had other things to do. Aims, what was tried without gain and what
bounds it: [learning.md](learning.md). All worlds beside one another, with real traces:
[results.md](results.md).

Sharing, Elastic and Full have an agent of their own; on Contention and CpuGpu `zoo:joint` is the one to
take, which learnt on all five and the quickstart. Partitioning has none. `zoo:unknown` is not told how
long jobs will run, nor are those that it is held against. `ringyard compare schedulers=all` shows agents
beside the schedulers. They are part of the wheel, 3 to 6 kB each: weights as safetensors, with what the
agent is made of as JSON; loading one [runs no code](runs.md#trusted-classes). `zoo:starts` and
`zoo:starts_unknown` only start jobs. They learnt on a trace that is not ours to ship, and are trained and
judged where its files lie in the folder of the command; without them they are left out.
"""


#: columns of a world's table by which a lower mean is seen to be bought by starving somebody
_STARVED = ("slowdown", "worst rho", "p99 (s)")


def agents_page(records: Mapping[str, Mapping[str, Any]]) -> str:
    """The page of all agents.

    Args:
        records: {name: training, figures and title} as `write_record` stores them.
    """
    summary = [_summary_row(name, world) for name, one in records.items() for world in one["worlds"]]
    parts = [_INTRODUCTION, markdown(summary), *(_section(name, one) for name, one in records.items())]
    return "\n".join(parts)


def _changed(change: Sequence[float]) -> str:
    value, low, high = (100 * one for one in change)
    return f"{value:+.1f}% [{low:+.1f}, {high:+.1f}]"


def _summary_row(name: str, world: Mapping[str, Any]) -> dict[str, str]:
    seeds = [f"{100 * one:+.1f}" for one in sorted(world["seeds_against_best"])]
    return {
        "agent": f"`{ZOO_PREFIX}{name}`",
        "world": world["title"],
        "best published": f"`{world['best']}`",
        "its mean JCT (s)": f"{world['best_mean']:,.0f}",
        "the agent's (s)": f"{world['mean']:,.0f}",
        "against it": _changed(world["against_best"]),
        "each training seed against it (%)": ", ".join(seeds),
        "against its rule": _changed(world["against_rule"]),
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
        told = f"Rules and options of {', '.join(files)}, which were not found in these worlds."
        parts.append(f"### Elsewhere\n\n{told}\n\n{markdown(rows).rstrip()}")
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
        "ships": "*" if run["seed"] == training["shipped_seed"] else "",
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"


def _world(world: Mapping[str, Any]) -> str:
    warning = small_sample_warning(world["workloads"])
    told = (
        f"{world['workloads']} workloads; rules and options of conf/tuned/{world['best_from']}.yaml."
        f" Its rule is `{world['rule']}`."
    )
    parts = [f"### {world['title'][0].upper()}{world['title'][1:]}", told, markdown(world["rows"]).rstrip()]
    return "\n\n".join([*parts, *([] if warning is None else [warning])])


def _elsewhere_row(world: Mapping[str, Any]) -> dict[str, str]:
    return {
        "world": world["title"],
        "workloads": str(world["workloads"]),
        "held against": _rivals(world),
        "best published": f"`{world['best']}`",
        "its mean JCT (s)": f"{world['best_mean']:,.0f}",
        "the agent's (s)": f"{world['mean']:,.0f}",
        "against it": _changed(world["against_best"]),
        "against its rule": _changed(world["against_rule"]),
        "agent: gap to bound": f"{world['mean'] / world['bound']:.2f}",
        **{name: _beside(world, name) for name in _STARVED},
    }


def _rivals(world: Mapping[str, Any]) -> str:
    """The published schedulers of a record."""
    own = ("zoo:", "allocator", "lower bound")
    labels = [row["scheduler"] for row in world["rows"] if not row["scheduler"].startswith(own)]
    names = sorted({label.partition("@")[0] for label in labels})
    return ", ".join(f"`{name}`" for name in names)


def _beside(world: Mapping[str, Any], column: str) -> str:
    """An agent's figure and that of the best published scheduler."""
    figures = {row["scheduler"]: row[column] for row in world["rows"]}
    return f"{world['rows'][0][column]} / {figures[world['best']]}"


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
