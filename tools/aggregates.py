"""Aggregates over environments of the results of learners, by rliable (Agarwal et al. 2021).

`python tools/aggregates.py` writes docs/results/aggregates/learners.json. It runs in an environment of its
own (`pip install rliable "pandas<3"`), because rliable's arch does not run beside pandas 3.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

STORED = Path(__file__).parents[1] / "docs" / "results"
ENVIRONMENTS = ("contention", "cpu_gpu", "elastic", "full", "sharing")
#: results with learners in each environment; the first has the published schedulers, too
RESULTS = ("learners", "random_search", "evolution", "group_relative", "sac", "ppo")
#: scores at which performance profiles are read
SCORES = np.linspace(0.5, 1.5, 41)
#: draws of the stratified bootstrap, and its seed
DRAWS, SEED = 5_000, 0


def scores() -> dict[str, Any]:
    """Return {learner: [training seeds, environments] score}, of learners that ran in every environment.

    A score is the mean JCT of the best published scheduler over that of the agent, on the test workloads:
    above 1, the agent is better.
    """
    found: dict[str, list[list[float]]] = {}
    for environment in ENVIRONMENTS:
        schedulers: dict[str, Any] = {}
        for result in RESULTS:
            file = STORED / f"{result}_{environment}.json"
            if file.is_file():
                schedulers = json.loads(file.read_text())["schedulers"] | schedulers
        mean = {label: float(np.mean(one["values"]["mean_jct"])) for label, one in schedulers.items()}
        best = min(mean[label] for label, one in schedulers.items() if one["published"])
        learners = dict.fromkeys(label[:-2] for label in mean if label.endswith("_0"))
        for learner in learners:
            seeds = [best / mean[label] for label in mean if label[:-2] == learner and label[-1].isdigit()]
            found.setdefault(learner, []).append(seeds)
    complete = {learner: rows for learner, rows in found.items() if len(rows) == len(ENVIRONMENTS)}
    return {learner: np.array(rows).T for learner, rows in complete.items()}


def main() -> None:
    """Write the aggregates."""
    found = scores()
    rows: dict[str, Any] = {}
    means, intervals = library.get_interval_estimates(
        found,
        lambda one: np.array([metrics.aggregate_iqm(one)]),
        reps=DRAWS,
        random_state=np.random.RandomState(SEED),
    )
    profiles, bands = library.create_performance_profile(found, SCORES, reps=DRAWS)
    for learner, own in found.items():
        pair = {f"{learner},weights": (own, found["weights"])}
        better, span = library.get_interval_estimates(
            pair, metrics.probability_of_improvement, reps=DRAWS, random_state=np.random.RandomState(SEED)
        )
        [probability], [ends] = better.values(), span.values()
        rows[learner] = {
            "scores": own.round(6).tolist(),
            "iqm": [float(means[learner][0]), *intervals[learner].ravel().round(6).tolist()],
            "better_than_weights": [float(np.ravel(probability)[0]), *np.ravel(ends).round(6).tolist()],
            "profile": np.round(profiles[learner], 6).tolist(),
            "profile_band": np.round(bands[learner], 6).tolist(),
        }
    content = {"environments": ENVIRONMENTS, "profile_scores": SCORES.tolist(), "learners": rows}
    (STORED / "aggregates" / "learners.json").write_text(json.dumps(content, indent=1) + "\n")
    for learner, row in rows.items():
        print(learner, row["iqm"], row["better_than_weights"])


if __name__ == "__main__":
    main()
