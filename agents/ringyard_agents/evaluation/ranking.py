"""Ranking of the schedulers of a comparison, and the frame with one row per scheduler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.sim.metrics import Metrics
from ringyard_agents.evaluation.statistics import Interval, holm, mean_interval, p_value, ratio_interval


@dataclass(frozen=True)
class Ranking:
    """Order of the rows of a table, and which of them can be compared.

    Schedulers that block fewer jobs come first, then those with a lower mean JCT. Ties keep the order in
    which the schedulers were given, with `random` last.
    """

    order: Sequence[str]  #: labels, the best first
    groups: Mapping[str, int]  #: {label: `Capabilities.group`}, 0 for schedulers that only start jobs
    #: metric of the comparison: "mean_jct" over the rows that block no jobs, or "blocking_rate" if every
    #: row blocks some
    metric: str
    blocked: Mapping[str, float]  #: {label: mean share of blocked jobs}
    #: labels of the best published row of each group, which tables mark. Agents have no star, nor do rows
    #: that block jobs where others block none.
    stars: Sequence[str]
    reference: str  #: label of the row that the others are compared with
    varied: bool  #: whether the metric of some row differs between workloads. If not, there are no intervals.

    @property
    def rows(self) -> list[str]:
        """Labels, sorted by group and then the best first."""
        return sorted(self.order, key=lambda label: self.groups[label])

    @property
    def compared(self) -> list[str]:
        """Labels that can be compared with the reference; mean JCTs only if no jobs are blocked."""
        every = self.metric == "blocking_rate"
        comparable = [label for label in self.rows if every or not self.blocked[label]]
        others = [label for label in comparable if label != self.reference]
        return others if self.reference in comparable else []


def values_of(runs: pd.DataFrame, label: str, metric: str) -> NDArray[np.float64]:
    """Return a metric of one scheduler's `runs` on each workload, [workloads]."""
    return runs.loc[runs["scheduler"] == label, metric].to_numpy(float)


def rank(runs: pd.DataFrame, reference: str | None = None) -> Ranking:
    """Rank the schedulers of a comparison; `runs` has every scheduler on every workload.

    Without results of the `reference`, it is the best published row of the first group that has one
    (`Ranking.stars`), else the first row.
    """
    first_runs = runs.drop_duplicates("scheduler").set_index("scheduler")
    labels = first_runs.index.tolist()
    blocked = {label: float(values_of(runs, label, "blocking_rate").mean()) for label in labels}
    jct = {label: float(values_of(runs, label, "mean_jct").mean()) for label in labels}

    def sort_key(label: str) -> tuple[float, float, bool]:
        return _rounded(blocked[label]), _rounded(jct[label]), label.partition("@")[0] == "random"

    order = sorted(labels, key=sort_key)
    groups = dict(zip(labels, first_runs["capability_group"].tolist(), strict=True))
    all_block = min(blocked.values()) > 0
    stars: dict[int, str] = {}
    for label in sorted(order, key=lambda one: groups[one]):
        if first_runs["published"][label] and (all_block or not blocked[label]):
            stars.setdefault(groups[label], label)
    metric = "blocking_rate" if all_block else "mean_jct"
    first = next(iter(stars.values()), order[0])
    varied = any(len(set(values_of(runs, label, metric).tolist())) > 1 for label in labels)
    if reference is None or reference not in labels:
        reference = first
    return Ranking(order, groups, metric, blocked, list(stars.values()), reference, varied)


def _rounded(value: float) -> float:
    """Round a sort key, since equal schedules can differ in the last digits. NaN sorts last."""
    return float("inf") if np.isnan(value) else float(f"{value:.9g}")


def schedulers_frame(runs: pd.DataFrame, ranking: Ranking) -> pd.DataFrame:
    """Average the `Results.runs` of each scheduler over workloads.

    Returns:
        One row per scheduler, in the order of `Ranking.rows`. NaN stands where rows cannot be compared or
        nothing varies.

        * `scheduler`, `best` (has a star), `capabilities`, `observability`, `workloads` (their number)
        * each metric M of `ringyard.sim.metrics.Metrics`: mean `M`, 95 % interval `M_low` to `M_high`
        * `ratio`, `ratio_low`, `ratio_high`: mean of the metric `compared_by` / that of `reference`, over
          pairs of the same workload; `p_holm`: p-value of equal means, adjusted for the number of rows
        * `bound_mean_jct`: lower bound on the mean JCT, seconds; `gap_to_bound`: mean JCT / that bound
        * `wall_seconds` of a run, `milliseconds_per_decision`
    """
    compared, metric, varied = ranking.compared, ranking.metric, ranking.varied
    against = values_of(runs, ranking.reference, metric)
    p_values = [p_value(values_of(runs, label, metric), against) for label in compared if varied]
    adjusted = dict(zip(compared, holm(np.array(p_values)).tolist(), strict=False))

    def columns(name: str, found: Interval) -> dict[str, float]:
        low, high = (found.low, found.high) if varied else (np.nan, np.nan)
        return {name: found.value, f"{name}_low": low, f"{name}_high": high}

    rows = []
    for label in ranking.rows:
        own = runs[runs["scheduler"] == label]
        bound, wall = float(own["bound_mean_jct"].to_numpy().mean()), own["wall_seconds"].to_numpy()
        ratio = Interval(1.0 if label == ranking.reference else np.nan, np.nan, np.nan)
        if label in compared:
            ratio = ratio_interval(values_of(runs, label, metric), against)
        means: dict[str, float] = {}
        for name in (field.name for field in fields(Metrics) if field.name in runs):
            means |= columns(name, mean_interval(own[name].to_numpy(float)))
        rows.append(
            {
                "scheduler": label,
                "best": label in ranking.stars,
                "capabilities": own["capabilities"].iloc[0],
                "observability": own["observability"].iloc[0],
                "workloads": len(own),
                "reference": ranking.reference,
                "compared_by": metric,
                **columns("ratio", ratio),
                "p_holm": adjusted.get(label, np.nan),
                "bound_mean_jct": bound,
                "gap_to_bound": np.nan if ranking.blocked[label] else means["mean_jct"] / bound,
                **means,
                "wall_seconds": float(wall.mean()),
                "milliseconds_per_decision": 1e3 * float(wall.sum()) / int(own["decisions"].sum()),
            }
        )
    return pd.DataFrame(rows)
