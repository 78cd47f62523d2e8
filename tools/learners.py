"""`python -m tools.learners`: train learners of other libraries on each form of an environment."""

import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO

from ringyard_agents import JobAttentionPolicy
from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.evaluation.statistics import ratio_interval
from ringyard_agents.validation.report import markdown_table

ROOT = Path(__file__).parents[1]
#: {experiment: its name in ids}
ENVIRONMENTS = {
    "contention": "Contention",
    "cpu_gpu": "CpuGpu",
    "elastic": "Elastic",
    "full": "Full",
    "sharing": "Sharing",
}
#: {label: (form, algorithm, policy)}: all with the algorithm's defaults
LEARNERS: Mapping[str, tuple[str, Any, Any]] = {
    "PPO, weights": ("weights", PPO, "MlpPolicy"),
    "PPO with attention, jobs": ("jobs", PPO, JobAttentionPolicy),
    "MaskablePPO, queue": ("queue", MaskablePPO, "MultiInputPolicy"),
}
PUBLISHED = ("fifo_backfill", "sjf", "srtf", "srsf", "sjf_bco", "synergy_tune", "ones", "pollux")
ALLOCATOR = "allocator"

_PAGE = """# Learners of other libraries on the three forms

Written by `python -m tools.learners` from `docs/learners.json`. Each learner is trained with all of its
library's defaults on one core, for {decisions:,} decisions and once for each of {seeds} seeds; then its agent
and tuned schedulers play the same {workloads} workloads, which no training draws. *Untrained* is the same
agent before its training. A change is that of the mean JCT by the training, with a 95 % interval
(Student's t of the logarithm of the ratio of two means, paired by workload; seeds are averaged).
The best published scheduler is the best of {published}.

## Mean JCT in seconds

{means}

## What training changes

{changes}

## Against the best published scheduler

{against}
"""


def _compare(experiment: str, form: str, models: Mapping[str, Path], count: int) -> dict[str, list[float]]:
    """Play `ringyard compare` and return {label: mean JCT of each workload, s}."""
    with tempfile.TemporaryDirectory() as folder:
        entries = [*PUBLISHED, ALLOCATOR, *(f"{label}:{file}" for label, file in models.items())]
        words = [f"experiment={experiment}", f"form={form}", f"tuning={experiment}", f"seeds={count}"]
        words += [f"schedulers=[{','.join(entries)}]", "trust=true", "plots=false", "tensorboard=false"]
        words += ["workers=1", f"hydra.run.dir={folder}/out"]
        command = [sys.executable, "-m", "ringyard_agents", "compare", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{shlex.join(command)}: {done.stderr}")
        runs = pd.read_csv(f"{folder}/out/runs.csv").sort_values("seed")
    names = runs["scheduler"].str.partition("@")[0]  # without the tuned placement
    return {str(name): rows["mean_jct"].tolist() for name, rows in runs.groupby(names)}


def measure(experiment: str, learner: str, decisions: int, seeds: int, workloads: int) -> dict[str, Any]:
    """Train one learner in one environment and play its agents.

    Returns:
        {"seconds": of training by seed, "runs": {label: mean JCT of each workload}}. Agents are called
        `untrained_SEED` and `trained_SEED`.
    """
    torch.set_num_threads(1)
    form, algorithm, policy = LEARNERS[learner]
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        models = {}
        for seed in range(seeds):
            env = gymnasium.make(f"ringyard/{ENVIRONMENTS[experiment]}-{form.capitalize()}-v0")
            model = algorithm(policy, env, seed=seed, device="cpu")
            for name, count in (("untrained", 0), ("trained", decisions)):
                start = time.process_time()
                if count:
                    model.learn(count)
                    seconds.append(time.process_time() - start)
                models[f"{name}_{seed}"] = Path(folder) / f"{name}_{seed}.zip"
                model.save(models[f"{name}_{seed}"])
        return {"seconds": seconds, "runs": _compare(experiment, form, models, workloads)}


def page(results: Mapping[str, Any]) -> str:
    """Return the page of `results`: the settings, and {experiment: {learner: row of `measure`}} as "rows"."""
    means: list[list[str]] = []
    changes: list[list[str]] = []
    against: list[list[str]] = []
    for experiment, rows in results["rows"].items():
        first = next(iter(rows.values()))["runs"]
        known = {name: np.array(first[name]) for name in (*PUBLISHED, ALLOCATOR) if name in first}
        best = min((name for name in PUBLISHED if name in known), key=lambda name: known[name].mean())
        cells = [f"{np.mean(known[name]):,.0f}" for name in ("fifo_backfill", best, ALLOCATOR)]
        means.append([experiment, cells[0], f"{best} {cells[1]}", cells[2]])
        changes.append([experiment])
        against.append([experiment])
        for learner in LEARNERS:
            if learner not in rows:
                for table in (means, changes, against):
                    table[-1].append("")
                continue
            runs = rows[learner]["runs"]
            before, after = (
                np.mean([runs[f"{name}_{seed}"] for seed in range(results["seeds"])], axis=0)
                for name in ("untrained", "trained")
            )
            means[-1].append(f"{before.mean():,.0f}, {after.mean():,.0f}")
            changes[-1].append(_change(after, before))
            against[-1].append(_change(after, known[best]))
    header = ["environment", "fifo_backfill", "best published", "allocator, tuned"]
    header += [f"{one}: untrained, trained" for one in LEARNERS]
    return _PAGE.format(
        decisions=results["decisions"],
        seeds=results["seeds"],
        workloads=results["workloads"],
        published=", ".join(PUBLISHED),
        means="\n".join(markdown_table(header, means)),
        changes="\n".join(markdown_table(["environment", *LEARNERS], changes)),
        against="\n".join(markdown_table(["environment", *LEARNERS], against)),
    )


def _change(values: Any, reference: Any) -> str:
    found = ratio_interval(values, reference)
    return "{:+.1%} [{:+.1%}, {:+.1%}]".format(*(one - 1 for one in (found.value, found.low, found.high)))


def _run(words: Sequence[str]) -> int:
    parser = Arguments(prog="python -m tools.learners", description="Train learners and write their page.")
    parser.add_argument("experiments", metavar="EXPERIMENT", nargs="*", help="default: all five")
    parser.add_argument("--learners", nargs="*", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--decisions", type=int, default=100_000, help="of each training (%(default)s)")
    parser.add_argument("--seeds", type=int, default=2, help="trainings of each learner (%(default)s)")
    parser.add_argument("--workloads", type=int, default=40, help="to play afterwards (%(default)s)")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "learners.json")
    given = parser.parse_args(words)
    settings = {name: getattr(given, name) for name in ("decisions", "seeds", "workloads")}
    results: dict[str, Any] = {**settings, "rows": {}}
    if given.results.exists():
        stored = json.loads(given.results.read_text())
        if {name: stored[name] for name in settings} == settings:
            results = stored
    for experiment in given.experiments or list(ENVIRONMENTS):
        for learner in given.learners:
            rows = results["rows"].setdefault(experiment, {})
            if learner not in rows:
                print(f"{experiment}: {learner}", flush=True)
                rows[learner] = measure(experiment, learner, **settings)
                given.results.write_text(json.dumps(results, indent=1) + "\n")
    given.results.with_suffix(".md").write_text(page(results))
    return 0


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of the command line, and return its exit code."""
    return exit_code("tools.learners", lambda: _run(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
