"""`python -m tools.figures`: write the measured tables of README and of pages in docs from stored results.

A table stands in its page between `<!-- results: VIEW NAME ... -->` and `<!-- end of results -->`. VIEW is a
function of `VIEWS`. A NAME is a result, docs/results/NAME.json, a pretrained agent or a benchmark.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pandas as pd
import yaml
from omegaconf import OmegaConf

from ringyard.errors import ConfigurationError, RingyardError
from ringyard.mdp.user_config import hydra_initialized
from ringyard.sim.metrics import LOSS_NAMES
from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.config.compose import compose_environments, to_plain
from ringyard_agents.evaluation.compare import plan_comparisons
from ringyard_agents.evaluation.evaluate import run_tasks
from ringyard_agents.evaluation.leaderboard import CONFIG, TABLE, Row, read_rows, table_row
from ringyard_agents.evaluation.notes import NOTES
from ringyard_agents.evaluation.ranking import rank, ratio_interval, schedulers_frame, values_of
from ringyard_agents.evaluation.selection import ComparisonRequest, read_entries
from ringyard_agents.evaluation.tuned_configs import read_tuned, with_tuned_options
from ringyard_agents.learning.evaluation import EvaluationWorkloads
from ringyard_agents.report.comparison_table import (
    LOSS_COLUMNS,
    METRIC_COLUMNS,
    NO_VALUE,
    notes_below,
    table_rows,
    window_notes,
)
from ringyard_agents.report.tables import markdown
from ringyard_agents.runs.run_index import find_runs
from tools.config_files import TOOLS_CONF
from tools.stored_reproductions import write_json
from tools.zoo.evaluation import read_records
from tools.zoo.page import summary_row

ROOT = Path(__file__).parents[1]
STORED = ROOT / "docs" / "results"
ROWS = ROOT / "docs" / "leaderboard"
COMMAND = "python -m tools.figures"
BLOCK = re.compile(r"<!-- results: (.+?) -->\n.*?<!-- end of results -->", re.DOTALL)

#: metrics of every workload that a file keeps, beside the bound and the parts of the mean JCT
_METRICS = (
    *("mean_jct", "blocking_rate", "makespan", "mean_queueing", "mean_slowdown", "mean_fairness"),
    *("worst_fairness", "p99_jct", "utilisation", "preemptions", "mean_work"),
)
#: of learners: decisions of a training, evaluations in it, training seeds
_DECISIONS, _EVALUATIONS, _TRAINING_SEEDS = 60_000, 6, 3
#: {form: algorithm and form} of the results `learners_...`
LEARNERS = {"weights": "PPO, weights", "jobs": "PPO with attention, jobs", "queue": "MaskablePPO, queue"}
#: the same of other results, on the same workloads
MORE_LEARNERS = {
    "sac": "SAC, weights",
    "own_weights": "PPO in one file, weights",
    "own_jobs": "PPO in one file with attention, jobs",
    "held": "PPO with attention that may hold back GPUs, jobs",
    "group": "group-relative PPO with attention, jobs",
    "evolution": "evolution, jobs",
    "search": "random search, constant weights",
    "constants": "random search, 10 times the decisions",
}
#: folder of the pretrained agents of each learner and environment, written by `python -m tools.pretrained`
PRETRAINED_BY_LEARNER = ROOT / "agents" / "pretrained"
#: pretrained agents, the more general first, so that the agent of one environment counts there
PRETRAINED = ("joint", "elastic", "full", "sharing")
#: what a file keeps of a scheduler
_DECLARED = ("observability", "capabilities", "capability_group", "published")
#: notes that a file keeps the values of
_STORED_NOTES = (
    *("untuned", "equal_workloads", "tuned_elsewhere", "training_range", "assumed", "pretrained"),
    "equal_schedules",
)
#: places by which a scheduler that moves is counted
_MOVED = 5
#: columns that full tables do not show
_HIDDEN = (
    *("p95 (s)", "median (s)", "GPUs busy", "fragmented", "blocked", "wall time (s)", "per decision (ms)"),
    "options",
    *(title for title, _, _ in LOSS_COLUMNS),
)
#: columns of the folded table of other metrics
_OTHERS = ("makespan (s)", "slowdown", "mean rho", "worst rho", "p99 (s)", "GPUs held", "preemptions")
#: the metric of a table, and which direction is better
_CAPTION = "*Mean JCT in seconds; lower is better. A change below 0 % is a lower mean JCT.*"


def commands() -> dict[str, dict[str, Any]]:
    """Return {result: its `title`, the `words` of `ringyard compare` and, if any, the trainings `train`}."""
    found: dict[str, dict[str, Any]] = yaml.safe_load((TOOLS_CONF / "results.yaml").read_text())
    return {name: _with_trainings(one) if "learners" in one else one for name, one in found.items()}


def _with_trainings(one: Mapping[str, Any]) -> dict[str, Any]:
    """Write out the trainings of a result's `learners` with each seed, and the comparison of the agents."""
    environment, trainings, agents = one["environment"], [], []
    for label, learner in one["learners"].items():
        decisions = learner.get("decisions", _DECISIONS)
        for seed in range(_TRAINING_SEEDS):
            agents.append(f"{label}_{seed}:runs/{environment}_{label}_{seed}")
            trainings.append(
                f"experiment={environment} {learner['words']} seed={seed} total_decisions={decisions}"
                f" evaluate.every={decisions // _EVALUATIONS} evaluate.workloads=16"
                f" evaluate.schedulers=[fifo_backfill] name={environment}_{label}_{seed}"
            )
    schedulers = f"schedulers=[{','.join([*one['references'], *agents])}]"
    words = [f"experiment={environment}", f"tuning={environment}", "seeds=40", schedulers]
    return {**one, "train": trainings, "words": words}


def same_environment(name: str) -> list[str]:
    """Return the other results of learners in the same environment."""
    every = commands()
    environment = every[name].get("environment")
    return [
        one for one in every if environment and one != name and every[one].get("environment") == environment
    ]


def shown_commands(name: str) -> list[str]:
    """Return the command lines that a result comes from."""
    one = commands()[name]
    trainings = [f"ringyard train {shlex.join(words.split())}" for words in one.get("train", ())]
    return [*trainings, f"ringyard compare {shlex.join(one['words'])}"]


def store(name: str, workers: int) -> None:
    """Run the commands of a result in the current folder, and write its file.

    Raises:
        RingyardError: a command failed.
    """
    more = [f"workers={workers}", "plots=false", "tensorboard=false", f"name={name}"]
    lines = shown_commands(name)
    for line in [*lines[:-1], f"{lines[-1]} {shlex.join(more)}"]:
        print(line, flush=True)
        done = subprocess.run([sys.executable, "-m", "ringyard_agents", *shlex.split(line)[1:]], check=False)
        if done.returncode:
            raise RingyardError(f"{line} failed")
    folder = Path("runs", f"{name}")
    runs, table = pd.read_csv(folder / "runs.csv"), (folder / "table.md").read_text().splitlines()
    options = pd.read_csv(folder / "table.csv", keep_default_na=False).set_index("scheduler")["options"]
    lost = [f"lost_to_{one}" for one in LOSS_NAMES if runs[f"lost_to_{one}"].any()]
    schedulers = {}
    for label, own in runs.groupby("scheduler", sort=False):
        is_promised = "sla_violations" in own and own["sla_violations"].notna().all()
        promised = ["sla_violations"] if is_promised else []
        values = {metric: own[metric].round(6).tolist() for metric in (*_METRICS, *promised, *lost)}
        declared = {column: own[column].tolist()[0] for column in _DECLARED}
        schedulers[label] = {**declared, "options": options[label], "values": values}
    first = runs[runs["scheduler"] == runs["scheduler"].iloc[0]]
    trained = [word[5:] for line in lines[:-1] for word in line.split() if word.startswith("name=")]
    curves = find_runs([f"runs/{one}" for one in trained])[0]
    content = {
        "command": lines,
        "curves": {one.folder.name: one.curve.round(6).to_dict("list") for one in curves},
        "config": yaml.safe_load((folder / "config.yaml").read_text()),
        "notes": noted([line for line in table if line and not line.startswith("|")]),
        "bound_mean_jct": first["bound_mean_jct"].round(6).tolist(),
        "schedulers": schedulers,
    }
    content["references"] = learning_references(name, content)
    STORED.mkdir(exist_ok=True)
    write_json(content, STORED / f"{name}.json")


def learning_references(name: str, content: Mapping[str, Any]) -> dict[str, float]:
    """Measure the lines of the learning curves of a result, on the evaluation workloads of its trainings.

    Returns:
        {label: mean JCT in seconds} of the allocator, and of the published scheduler that is best on the test
        workloads. {} without a published scheduler or a training.
    """
    runs, one = frame(content), commands()[name]
    published = list(runs.loc[runs["published"], "scheduler"].unique())
    if "learners" not in one or not published:
        return {}
    with hydra_initialized():
        settings = to_plain(hydra.compose("train", one["train"][0].split()))
        environments = compose_environments(settings, [])
        wanted = [_best(runs, published).partition("@")[0], "allocator"]
        entries = with_tuned_options(read_entries(wanted), read_tuned(one["environment"]))
        given = settings["evaluate"]
        workloads = EvaluationWorkloads(environments, given["workloads"], given["workload_seed"], ())
        found = {label: workloads.mean_metrics(entry, "mean_jct") for label, entry in entries.items()}
    return {label: round(mean, 6) for label, means in found.items() for mean in means.values()}


def noted(lines: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Return (name, values) of the notes of a table that its stored results do not tell (`NOTES`)."""
    found = []
    for name in _STORED_NOTES:
        form = re.escape(NOTES[name]).replace(r"\{", "{").replace(r"\}", "}")
        pattern = re.sub(r"{(\w+)}", r"(?P<\1>.+)", form)
        found += [(name, one.groupdict()) for line in lines if (one := re.fullmatch(pattern, line))]
    return found


def read(name: str) -> dict[str, Any]:
    """Return the content of a result's file, {} if it was not run yet.

    Raises:
        ConfigurationError: tools/conf/results.yaml has no such result.
    """
    if name not in commands():
        raise ConfigurationError(f"unknown result {name!r}; expected some of {', '.join(commands())}")
    file = STORED / f"{name}.json"
    content: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return content


def stale_rows(name: str) -> list[str]:
    """Run the first workload of a stored result again, and note in its file the schedulers that differ.

    Agents that are trained first are not run. They are stale if their commands changed, or another row did.
    """
    content, given = read(name), [*commands()[name]["words"], "seeds=1"]
    with hydra_initialized():
        config = hydra.compose("compare", given)
        every = config.schedulers == "all"
        listed: Any = ["all"] if every else OmegaConf.to_container(config.schedulers, resolve=True)
        trained = [one.partition(":")[0] for one in listed if isinstance(one, str) and ":runs/" in one]
        config.schedulers = [one for one in listed if str(one).partition(":")[0] not in trained]
        [comparison] = plan_comparisons(ComparisonRequest.read(config)).values()
        found = {run.label: run.metrics.mean_jct for run in run_tasks(comparison.tasks, 1, lambda run: None)}
    known = {label: one["values"]["mean_jct"][0] for label, one in content["schedulers"].items()}
    stale = [label for label in {**known, **found} if label not in trained]
    stale = [one for one in stale if not np.isclose(found.get(one, -1), known.get(one, -2), 0, 1e-5)]
    stale += trained if stale or content["command"] != shown_commands(name) else []
    if stale != content.get("stale", []):
        write_json(content | {"stale": stale}, STORED / f"{name}.json")
    return stale


def _table(rows: Sequence[Mapping[str, str]], names: Sequence[str] = (), caption: str | None = None) -> str:
    """Return a table of `rows` below its `caption`, and a line about results of `names` that were not run."""
    table = [*([caption] if caption else []), markdown(rows).rstrip()] if rows else []
    return "\n\n".join([*table, *_missing(names)])


def _missing(names: Sequence[str]) -> list[str]:
    """Return a line that names the results of `names` which were not run yet, if there are any."""
    found = [name for name in names if not read(name)]
    return [f"**Missing: run `{COMMAND} {' '.join(found)}`**"] if found else []


def frame(content: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each scheduler and workload, as runs.csv of a comparison has them."""
    rows = []
    for label, one in content["schedulers"].items():
        columns = {name: np.array(values, float) for name, values in one["values"].items()}
        declared = {column: one[column] for column in _DECLARED}
        bound = np.array(content["bound_mean_jct"], float)
        own = {"scheduler": label, "workload": range(len(bound)), **declared, **columns}
        rows.append(pd.DataFrame({**own, "bound_mean_jct": bound, "wall_seconds": np.nan, "decisions": 1}))
    return pd.concat(rows, ignore_index=True)


def _change(values: Any, reference: Any) -> str:
    found = ratio_interval(values, reference)
    low, high = (f"{100 * (one - 1):+.1f}" for one in (found.low, found.high))
    return f"{100 * (found.value - 1):+.1f} % [{low}, {high}]"


def _listing(lines: Sequence[str]) -> str:
    return "```\n" + "\n".join(lines) + "\n```"


def rows_and_notes(content: Mapping[str, Any]) -> tuple[list[dict[str, str]], list[str]]:
    """Return (rows, notes below them) of the table of a result, as `ringyard compare` writes it."""
    runs = frame(content)
    given = content["config"]["reference"]
    named = [label for label in content["schedulers"] if given in (label, label.partition("@")[0])]
    ranking = rank(runs, named[0] if named else None)
    table = schedulers_frame(runs, ranking)
    missing = [metric for _, metric, _ in METRIC_COLUMNS if metric not in table]
    missing += [f"lost_to_{one}" for one in LOSS_NAMES if f"lost_to_{one}" not in table]
    options = [content["schedulers"][label]["options"] for label in table["scheduler"]]
    rows = table_rows(table.assign(**dict.fromkeys(missing, np.nan), options=options), ranking)
    about = [NOTES[note].format(**values) for note, values in content["notes"]]
    about += window_notes(tuple(content["config"]["measured_jobs"]))
    return rows, notes_below(rows, ranking, runs["workload"].nunique(), about)


def loss_columns(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the headers of the parts of the mean JCT other than queueing that are not 0 for all rows."""
    zeros = {title: form.format(0.0) for title, _, form in LOSS_COLUMNS}
    return [title for title, zero in zeros.items() if any(row[title] not in (zero, NO_VALUE) for row in rows)]


def comparison(name: str, columns: tuple[str, ...] = ()) -> str:
    """Everything of one result: commands, a row for each scheduler, notes. Or `columns` by beginnings."""
    content = read(name)
    if not content:
        return _missing([name])[0]
    rows, notes = rows_and_notes(content)
    if columns:
        return _columns(rows, [title for title in rows[0] if title.startswith(columns)], _CAPTION)
    parts = ("queueing (s)", *loss_columns(rows))
    main = [title for title in rows[0] if title not in (*_HIDDEN, *_OTHERS, *parts)]
    main = [title for title in main if title != "late" or any(row[title] != NO_VALUE for row in rows)]
    tables = [
        _columns(rows, main, _CAPTION),
        _folded("Parts of the mean JCT (s); lower is better", _columns(rows, ("scheduler", *parts))),
        _folded(
            "Other metrics; lower is better, of GPUs held neither", _columns(rows, ("scheduler", *_OTHERS))
        ),
    ]
    return "\n\n".join([_listing(content["command"]), *tables, *notes])


def _columns(rows: Sequence[Mapping[str, str]], titles: Sequence[str], caption: str | None = None) -> str:
    return _table([{title: row[title] for title in titles} for row in rows], caption=caption)


def _folded(title: str, content: str) -> str:
    """Content that a reader opens by a click on its title."""
    return f"<details><summary>{title}</summary>\n\n{content}\n\n</details>"


def brief(name: str) -> str:
    """A row for each scheduler of one result, with its mean JCT."""
    return comparison(name, ("scheduler", "capabilities", "mean JCT", "vs ", "gap to bound"))


def _labelled(runs: pd.DataFrame, name: str) -> str:
    """Return the label of a scheduler, with its placement rule."""
    return next(label for label in runs["scheduler"].unique() if label.partition("@")[0] == name)


def _best(runs: pd.DataFrame, labels: Sequence[str]) -> str:
    return min(labels, key=lambda label: float(values_of(runs, label, "mean_jct").mean()))


def groups(*names: str) -> str:
    """A row for each result: the best published scheduler of each set of capabilities."""
    rows = []
    for name in filter(read, names):
        runs = frame(read(name))
        mean = runs.groupby("scheduler")["mean_jct"].mean()
        bound = runs["bound_mean_jct"].mean()
        stars = rank(runs).stars
        kinds = {int(runs.loc[runs["scheduler"] == one, "capability_group"].iloc[0]): one for one in stars}
        cells = [f"{mean[kinds[kind]]:,.0f} `{kinds[kind]}`" if kind in kinds else "" for kind in range(3)]
        backfill = _labelled(runs, "fifo_backfill")
        rows.append(
            {
                "environment": commands()[name]["title"],
                "best that only starts jobs": cells[0],
                "best that also preempts": cells[1],
                "best that also resizes": cells[2],
                "`fifo_backfill`": f"{mean[backfill]:,.0f}",
                "best: gap to bound": f"{mean[_best(runs, stars)] / bound:.2f}",
                "`allocator`": f"{mean['allocator']:,.0f}",
                "`allocator`: gap to bound": f"{mean['allocator'] / bound:.2f}",
            }
        )
    return _table(rows, names, _CAPTION)


def overview(*names: str) -> str:
    """A row for each result: the best published scheduler, the allocator and the first pretrained agent."""
    rows, lines = [], []
    for name in filter(read, names):
        content = read(name)
        lines += content["command"]
        runs = frame(content)
        mean, bound = runs.groupby("scheduler")["mean_jct"].mean(), runs["bound_mean_jct"].mean()
        jct = {label: values_of(runs, label, "mean_jct") for label in mean.index}
        best = _best(runs, list(runs.loc[runs["published"], "scheduler"].unique()))
        agent = next(label for label in content["schedulers"] if label.startswith("zoo:"))
        row = {
            "environment": commands()[name]["title"],
            "lower bound (s)": f"{bound:,.0f}",
            "best published (s)": f"{mean[best]:,.0f} `{best}`",
            "`allocator` (s)": f"{mean['allocator']:,.0f}",
            "agent (s)": f"{mean[agent]:,.0f} `{agent}`",
            "agent vs best published": _change(jct[agent], jct[best]),
            "agent vs `allocator`": _change(jct[agent], jct["allocator"]),
        }
        if "priced" in jct:
            row["with `preemption_price` (s)"] = f"{mean['priced']:,.0f}"
            row["`preemption_price` vs `allocator`"] = _change(jct["priced"], jct["allocator"])
        rows.append(row)
    commands_run = [_folded("Commands", _listing(lines))] if rows else []
    return "\n\n".join([*commands_run, _table(rows, names, _CAPTION)])


def agents(*names: str) -> str:
    """A row for each environment in which pretrained agents were evaluated, from their records."""
    records = read_records()
    rows = [summary_row(name, world) for name in names or records for world in records[name]["worlds"]]
    return _table(rows, caption=_CAPTION)


def _learners(names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any], pd.DataFrame, str]]:
    """Yield (title, content, runs, best published scheduler) of each result of learners that was run."""
    for name in filter(read, names):
        content = read(name)
        runs, title = frame(content), commands()[name]["title"]
        for more in filter(read, same_environment(name)):
            content = {**content, "curves": {**content["curves"], **read(more)["curves"]}}
            added = frame(read(more))
            runs = pd.concat([runs, added[~added["scheduler"].isin(runs["scheduler"])]])
        published = list(runs.loc[runs["published"], "scheduler"].unique())
        yield title, content, runs, _best(runs, published)


def _of_learner(runs: pd.DataFrame, learner: str) -> Any:
    """Return [workloads] mean JCT of a learner's agents, over the training seeds, in seconds."""
    labels = [label for label in runs["scheduler"].unique() if label.rpartition("_")[0] == learner]
    return np.mean([values_of(runs, label, "mean_jct") for label in labels], axis=0)


def learners(*names: str) -> str:
    """A row for each result and algorithm: before and after training, and against other schedulers."""
    rows = []
    environment_of = {one["title"]: one["environment"] for one in commands().values() if "environment" in one}
    for title, content, runs, best in _learners(names):
        shortest = _labelled(runs, "sjf")
        for learner, label in (LEARNERS | MORE_LEARNERS).items():
            if f"{learner}_0" not in set(runs["scheduler"]):
                continue
            begin = f"{environment_of[title]}_{learner}_"
            curves = [one for run, one in content["curves"].items() if run.startswith(begin)]
            before, after = (np.mean([one["value"][at] for one in curves]) for at in (0, -1))
            jct, weights = _of_learner(runs, learner), _of_learner(runs, "weights")
            allocator = values_of(runs, "allocator", "mean_jct")
            rows.append(
                {
                    "environment": title,
                    "algorithm": label,
                    "before training (s)": f"{before:,.0f}",
                    "after (s)": f"{after:,.0f}",
                    "test (s)": f"{jct.mean():,.0f}",
                    "`sjf` (s)": f"{values_of(runs, shortest, 'mean_jct').mean():,.0f}",
                    "vs PPO, weights": "" if learner == "weights" else _change(jct, weights),
                    "vs best published": _change(jct, values_of(runs, best, "mean_jct")),
                    "vs `allocator`": _change(jct, allocator),
                    "gap to bound": f"{jct.mean() / runs['bound_mean_jct'].mean():.2f}",
                }
            )
    return _table(rows, names, _CAPTION)


def references(*names: str) -> str:
    """A row for each result of learners: mean JCT of what they are compared with, on the same workloads."""
    rows = []
    for name in filter(read, names):
        environment = commands()[name]["environment"]
        content = read(f"environment_{environment}")
        [(title, _, learnt, _)] = _learners([name])
        runs = frame(content)
        mean = runs.groupby("scheduler")["mean_jct"].mean()
        published = runs[runs["published"]]
        starts = published.loc[published["capability_group"] == 0, "scheduler"]
        row = {"environment": title}
        for scheduler, label in {"random": "random order", "fifo": "FIFO"}.items():
            row[label] = f"{mean[_labelled(runs, scheduler)]:,.0f}"
        for label, some in {
            "best that only starts": starts,
            "best published": published["scheduler"],
        }.items():
            best = _best(runs, list(some.unique()))
            row[label] = f"{mean[best]:,.0f} ({best.partition('@')[0]})"
        for scheduler, label in {"untuned": "allocator, untuned", "allocator": "allocator, tuned"}.items():
            known = scheduler in set(learnt["scheduler"])
            row[label] = f"{values_of(learnt, scheduler, 'mean_jct').mean():,.0f}" if known else ""
        row["best constant weights"] = f"{_of_learner(learnt, 'constants').mean():,.0f}"
        rows.append(row | {"lower bound": f"{learnt['bound_mean_jct'].mean():,.0f}"})
    return _table(rows, names)


def pretrained(*names: str) -> str:
    """A row for each pretrained agent of a learner in an environment: its folder and its mean JCT."""
    rows = []
    for name, (title, _, runs, best) in zip(filter(read, names), _learners(names), strict=True):
        environment = commands()[name]["environment"]
        for learner, label in (LEARNERS | MORE_LEARNERS).items():
            card = PRETRAINED_BY_LEARNER / f"{environment}-{learner}" / "run.json"
            if card.is_file():
                agent = f"{learner}_{json.loads(card.read_text())['seeds']['seed']}"
                jct = values_of(runs, agent, "mean_jct")
                rows.append(
                    {
                        "environment": title,
                        "algorithm": label,
                        "agent": f"`agents/pretrained/{card.parent.name}`",
                        "mean JCT (s)": f"{jct.mean():,.0f}",
                        "vs best published": _change(jct, values_of(runs, best, "mean_jct")),
                    }
                )
    return _table(rows, names)


def aggregates() -> str:
    """A row for each learner: aggregates over environments and seeds of `python tools/aggregates.py`."""
    content = json.loads((STORED / "aggregates" / "learners.json").read_text())
    rows = []
    for learner, label in (LEARNERS | MORE_LEARNERS).items():
        if learner in content["learners"]:
            mean, better = (content["learners"][learner][key] for key in ("iqm", "better_than_weights"))
            rows.append(
                {
                    "algorithm": label,
                    "interquartile mean": "{:.3f} [{:.3f}, {:.3f}]".format(*mean),
                    "better than PPO, weights": "{:.0%} [{:.0%}, {:.0%}]".format(*better)
                    if learner != "weights"
                    else "",
                }
            )
    return markdown(rows).rstrip()


def leaders(*names: str) -> str:
    """A row for each result of learners: mean JCT, its change from the best published, the lowest in bold."""
    worlds = {world["title"]: world for name in PRETRAINED for world in read_records()[name]["worlds"]}
    rows = []
    for title, _, runs, best in _learners(names):
        agent = worlds[f"the environment {title}"]
        published = values_of(runs, best, "mean_jct")
        own = {label: _of_learner(runs, learner) for learner, label in LEARNERS.items()}
        own["allocator, no agent"] = values_of(runs, "allocator", "mean_jct")
        found = {label: (jct.mean(), ratio_interval(jct, published).value) for label, jct in own.items()}
        found["pretrained agent"] = (agent["mean"], agent["mean"] / published.mean())
        lowest = min(round(mean) for mean, _ in found.values())
        cells = {
            label: f"{'**' * (round(mean) == lowest)}{mean:,.0f}{'**' * (round(mean) == lowest)}"
            f" ({100 * (ratio - 1):+.0f} %)"
            for label, (mean, ratio) in found.items()
        }
        backfill = values_of(runs, _labelled(runs, "fifo_backfill"), "mean_jct")
        rows.append(
            {
                "environment": title,
                "FIFO with backfilling": f"{backfill.mean():,.0f}",
                "best published": f"{published.mean():,.0f} ({best.partition('@')[0]})",
                **cells,
                "lower bound": f"{runs['bound_mean_jct'].mean():,.0f}",
            }
        )
    return _table(rows, names)


def switched_off(*names: str) -> str:
    """For each environment, every scheduler with its physics on and off, on the same workloads."""
    first = {name: name.replace("physics_off", "environment") for name in names}
    return _places(first, "on", "off")


def warm_start(*names: str) -> str:
    """For each trace, every scheduler in windows that begin empty and with the jobs that ran there."""
    return _places({name: name.removesuffix("_warm") for name in names}, "empty", "warm")


def _places(names: Mapping[str, str], first: str, second: str) -> str:
    """Means and places of schedulers in both results of {second: first}, with these names in columns."""
    parts = []
    for name, on_name in names.items():
        if not read(name):
            continue
        on, off = frame(read(on_name)), frame(read(name))
        on = on[on["workload"] < off["workload"].nunique()]
        labels = [label for label in off["scheduler"].unique() if label in set(on["scheduler"])]
        mean = [runs.groupby("scheduler")["mean_jct"].mean()[labels] for runs in (on, off)]
        jct = {label: [values_of(runs, label, "mean_jct") for runs in (off, on)] for label in labels}
        places = [one.rank(method="min").astype(int) for one in mean]
        rows = [
            {
                "scheduler": label,
                f"{first} (s)": f"{mean[0][label]:,.0f}",
                "place": str(places[0][label]),
                f"{second} (s)": f"{mean[1][label]:,.0f}",
                f"place, {second}": str(places[1][label]),
                f"{second} against {first}": _change(*jct[label]),
            }
            for label in places[0].sort_values().index
        ]
        moved = int(((places[0] - places[1]).abs() >= _MOVED).sum())
        title = f"**{commands()[on_name]['title']}.** {second.title()}: {commands()[name]['title']}."
        count = f"{moved} of {len(rows)} schedulers move by {_MOVED} places or more."
        parts += [f"{title} {count}", _listing(shown_commands(name)), _table(rows, caption=_CAPTION)]
    return "\n\n".join([*parts, *_missing(list(names))])


def listing(*names: str) -> str:
    """The commands of some results, folded."""
    return _folded("All commands", _listing([line for name in names for line in shown_commands(name)]))


def printed(name: str) -> str:
    """Everything that a benchmark printed, below its command."""
    text = (ROOT / "benchmarks" / "results" / f"{name}.txt").read_text()
    return _listing([line.rstrip() for line in text.strip().splitlines()])


def _tables(keep: Callable[[Row], bool]) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield (title, cells of its rows) of each table of the leaderboard with rows to keep."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in filter(keep, read_rows(ROWS)):
        found.setdefault(tuple(row[name] for name in TABLE), []).append(row)
    order = list(CONFIG["environments"])
    for key in sorted(found, key=lambda one: (order.index(one[0]), *map(str, one[1:]))):
        environment, split, level_set, _ = key
        title = commands()[f"environment_{environment}"]["title"]
        words = " ".join(CONFIG["environments"][environment]["splits"].get(split, ()))
        heading = f"**{title}**, {level_set} set" + (f", split {split}: `{words}`" if words else "")
        yield heading, [_leaderboard_cells(row) for row in found[key]]


def _leaderboard_cells(row: Row) -> dict[str, str]:
    cells = table_row(row)
    return {
        "scheduler": f"`{cells.pop('scheduler')}`",
        **cells,
        "capabilities": row["capabilities"],
        "observability": row["observability"],
        "commit": f"`{row['commit'][:8]}`" if row["commit"] else "",
    }


def leaderboard(environment: str) -> str:
    """Rows of the leaderboard in an environment, without its splits."""
    tables = _tables(lambda row: row["environment"] == environment and row["split"] == "standard")
    missing = f"**Missing: run `ringyard leaderboard srsf allocator zoo:joint --environment {environment}`**"
    return "\n\n".join(text for one in tables for text in (one[0], _table(one[1]))) or missing


def splits() -> str:
    """Rows of the leaderboard with other loads, cluster sizes and restart costs."""
    tables = _tables(lambda row: row["split"] != "standard")
    missing = "**Missing: run `ringyard leaderboard srsf allocator zoo:joint --split load`**"
    return "\n\n".join(text for one in tables for text in (one[0], _table(one[1]))) or missing


def levels() -> str:
    """A row for each set of workloads of the leaderboard."""
    return _table(
        [
            {
                "set": name,
                "seed": "from a secret" if one["seed"] is None else f"{one['seed']:,}",
                "workloads": f"{one['workloads']:,}",
                "used by": one["used_by"],
            }
            for name, one in CONFIG["sets"].items()
        ]
    )


def fields() -> str:
    """A row for each field of a row of the leaderboard."""
    return _table([{"field": f"`{name}`", "what it has": text} for name, text in CONFIG["fields"].items()])


#: {name in a page: what writes its blocks}
VIEWS: Mapping[str, Callable[..., str]] = {
    one.__name__: one
    for one in (
        comparison,
        brief,
        groups,
        overview,
        agents,
        learners,
        references,
        pretrained,
        aggregates,
        leaders,
        switched_off,
        warm_start,
        listing,
        printed,
        leaderboard,
        splits,
        levels,
        fields,
    )
}


def pages() -> list[Path]:
    """Return README and the pages that have blocks."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [file for file in files if BLOCK.search(file.read_text())]


def rendered(text: str) -> str:
    """Return the text of a page with its blocks written anew.

    Raises:
        ConfigurationError: a block names a view or a result that is not there.
    """

    def write(block: re.Match[str]) -> str:
        view, *names = block[1].split()
        if view not in VIEWS:
            raise ConfigurationError(f"results: {view!r}; expected one of {', '.join(VIEWS)}")
        stale = {name: read(name).get("stale") for name in names if name in commands()}
        notes = [
            f"**Stale: {', '.join(rows)}: run `{COMMAND} {name}`**" for name, rows in stale.items() if rows
        ]
        content = "\n\n".join([VIEWS[view](*names), *notes])
        return f"<!-- results: {block[1]} -->\n\n{content}\n\n<!-- end of results -->"

    return BLOCK.sub(write, text)


def _run(words: Sequence[str]) -> int:
    parser = Arguments(prog=COMMAND, description="Write measured tables of README and docs from results.")
    parser.add_argument("names", metavar="NAME", nargs="*", help="results to run anew before (default: none)")
    parser.add_argument("--workers", type=int, default=1, help="processes of each run (%(default)s)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is stale")
    parser.add_argument(
        "--replay",
        action="store_true",
        help="run only the first workload of NAMEs, and note rows that differ",
    )
    parser.add_argument(
        "--references", action="store_true", help="measure only the lines of the learning curves of NAMEs"
    )
    given = parser.parse_args(words)
    for name in given.names:
        read(name)  # an unknown name is an error before anything runs
    for name in given.names:
        if given.references:
            write_json(
                read(name) | {"references": learning_references(name, read(name))}, STORED / f"{name}.json"
            )
        elif given.replay:
            print(f"{name}: {', '.join(stale_rows(name)) or 'nothing'} is stale", flush=True)
        else:
            store(name, given.workers)
    stale = [file for file in pages() if rendered(file.read_text()) != file.read_text()]
    for file in stale:
        print(f"{file.relative_to(ROOT)}: {f'stale; run {COMMAND}' if given.check else 'written'}")
        if not given.check:
            file.write_text(rendered(file.read_text()))
    return int(bool(stale and given.check))


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of the command line, and return its exit code."""
    return exit_code("tools.figures", lambda: _run(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
