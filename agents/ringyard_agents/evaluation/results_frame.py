"""Results as tidy tables of numbers: a row a run, a row a job, a row a scheduler."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ringyard.sim.metrics import LOSSES
from ringyard.state.records import JobOutcome
from ringyard_agents.evaluation.evaluate import RunResult
from ringyard_agents.evaluation.ranking import Ranking, values_of
from ringyard_agents.evaluation.statistics import holm, mean_interval, p_value, ratio_interval
from ringyard_agents.runs.atomic_write import atomic_write

__all__ = ["jobs_frame", "outcome_names", "runs_frame", "schedulers_frame", "write_frame"]

#: {column: field of JobTimes} of a job's row, after its names and before what it lost time to
_JOB_COLUMNS = {
    "submit_time": "submit_seconds",
    "gpus": "num_gpus",
    "start_time": "start_seconds",
    "end_time": "end_seconds",
    "jct": "jct",
    "queueing": "queueing_seconds",
    "slowdown": "slowdown",
    "rho": "fairness",
    "gpu_seconds": "gpu_seconds",
    "stops": "num_preemptions",
}


def outcome_names(outcomes: Sequence[int]) -> list[str]:
    """How each job ended, as files say it: completed, failed, cancelled or blocked."""
    return [JobOutcome(one).name.lower() for one in outcomes]


def write_frame(file: Path, frame: pd.DataFrame) -> None:
    """A CSV whose numbers read back bit for bit; what has no value is empty."""
    with atomic_write(file) as partial:
        frame.to_csv(partial, index=False)


def runs_frame(results: Sequence[RunResult]) -> pd.DataFrame:
    """Every metric of every run: scheduler, workload, information, fields of `Metrics`, bound_mean_jct."""
    return pd.DataFrame(
        {
            "scheduler": one.label,
            "workload": one.workload,
            "information": one.information,
            **one.metrics.as_dict(),
            "bound_mean_jct": one.bounds.mean_jct,
            "wall_seconds": round(one.wall_seconds, 4),
        }
        for one in results
    )


def jobs_frame(results: Sequence[RunResult]) -> pd.DataFrame:
    """Every job that counts of every run, with the names that its table has; times in seconds."""
    return pd.concat([_jobs_of(one) for one in results], ignore_index=True)


def _jobs_of(result: RunResult) -> pd.DataFrame:
    times = result.times
    columns = {name: getattr(times, field) for name, field in _JOB_COLUMNS.items()}
    columns |= {f"lost_to_{name}": getattr(times, f"lost_to_{name}") for name in LOSSES}
    return pd.DataFrame(
        {
            "scheduler": result.label,
            "workload": result.workload,
            "job_id": times.job_id,
            "vc": times.vc,
            "user": times.user,
            **columns,
            "work_seconds": times.work_seconds,
            "outcome": outcome_names(times.outcome.tolist()),
        }
    )


def schedulers_frame(results: Sequence[RunResult], ranking: Ranking) -> pd.DataFrame:
    """One row per scheduler, group by group, the best first: means over workloads, with intervals.

    Each metric M has `M` (mean), `M_low` and `M_high` (95 % interval); `workloads` is how many there are.
    `ratio` is the mean of `compared_by` over that of `reference`, workloads in pairs, `p_holm` its adjusted
    p-value, `over_bound` the mean JCT over the lower bound's; NaN where rows cannot be compared, and
    intervals are NaN where nothing varies.

    Args:
        results: of every scheduler on every workload.
        ranking: of the schedulers.
    """
    adjusted = _adjusted(results, ranking)
    rows = []
    for label in ranking.rows:
        own = [result for result in results if result.label == label]
        bound = float(np.mean([result.bounds.mean_jct for result in own]))
        decisions = sum(result.num_decisions for result in own)
        means = _means(results, ranking, label)
        rows.append(
            {
                "scheduler": label,
                "best": label in ranking.stars,
                "may": str(own[0].may),
                "knows": own[0].information,
                "workloads": len(own),
                "reference": ranking.reference,
                "compared_by": ranking.metric,
                **_ratio(results, ranking, label),
                "p_holm": adjusted.get(label, np.nan),
                "bound_mean_jct": bound,
                "over_bound": np.nan if ranking.blocked[label] else means["mean_jct"] / bound,
                **means,
                "wall_seconds": float(np.mean([result.wall_seconds for result in own])),
                "milliseconds_per_decision": 1e3 * sum(one.wall_seconds for one in own) / decisions,
            }
        )
    return pd.DataFrame(rows)


def _means(results: Sequence[RunResult], ranking: Ranking, label: str) -> dict[str, float]:
    """Mean, low and high of every metric."""
    found = {}
    for name in results[0].metrics.as_dict():
        values = values_of(results, label, name)
        interval = mean_interval(values)
        found[name] = float(values.mean())
        found[f"{name}_low"] = interval.low if ranking.varied else np.nan
        found[f"{name}_high"] = interval.high if ranking.varied else np.nan
    return found


def _ratio(results: Sequence[RunResult], ranking: Ranking, label: str) -> dict[str, float]:
    """How far a row is from the reference."""
    if label == ranking.reference:
        return {"ratio": 1.0, "ratio_low": np.nan, "ratio_high": np.nan}
    if label not in ranking.compared:
        return dict.fromkeys(("ratio", "ratio_low", "ratio_high"), np.nan)
    values, against = (values_of(results, one, ranking.metric) for one in (label, ranking.reference))
    found = ratio_interval(values, against)
    low, high = (found.low, found.high) if ranking.varied else (np.nan, np.nan)
    return {"ratio": found.value, "ratio_low": low, "ratio_high": high}


def _adjusted(results: Sequence[RunResult], ranking: Ranking) -> dict[str, float]:
    """{label: p-value against the reference, adjusted for the number of rows} of those compared with it."""
    if not ranking.varied:
        return {}
    against = values_of(results, ranking.reference, ranking.metric)
    alone = [p_value(values_of(results, label, ranking.metric), against) for label in ranking.compared]
    return dict(zip(ranking.compared, holm(np.array(alone)).tolist(), strict=True))
