"""Order of the schedulers of a comparison, which of them can be compared, and which are the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.sim.metrics import Metrics
from ringyard_agents.evaluation.statistics import Interval, holm, mean_interval, p_value, ratio_interval


@dataclass(frozen=True)
class Ranking:
    """The rows of a table, in order.

    Schedulers that block fewer jobs come first; among equal shares of blocked jobs the mean JCT decides.
    Equal schedulers keep the order in which they were given, with `random` last.

    Attributes:
        order: labels, the best first.
        groups: {label: `Capabilities.group`}.
        metric: what rows are compared by: "mean_jct", of the rows that serve all jobs, or "blocking_rate"
            where every row blocks some.
        blocked: {label: share of the jobs that it blocks, mean over workloads}.
        stars: the best published row of each group; no agents, and none that blocks jobs where others do not.
        reference: the scheduler that the others are compared with.
        varied: some row's metric differs between workloads; else there is nothing to make intervals of.
    """

    order: Sequence[str]
    groups: Mapping[str, int]
    metric: str
    blocked: Mapping[str, float]
    stars: Sequence[str]
    reference: str
    varied: bool

    @property
    def rows(self) -> list[str]:
        """Labels, group by group."""
        return sorted(self.order, key=lambda label: self.groups[label])

    @property
    def compared(self) -> list[str]:
        """Labels that can be compared with the reference: by mean JCT only if both serve all jobs."""
        able = [label for label in self.rows if self.metric == "blocking_rate" or not self.blocked[label]]
        return [label for label in able if label != self.reference] if self.reference in able else []


def values_of(runs: pd.DataFrame, label: str, metric: str) -> NDArray[np.float64]:
    """[workloads] of the column of a metric of one scheduler, from the runs of `Results`."""
    return runs.loc[runs["scheduler"] == label, metric].to_numpy(float)


def rank(runs: pd.DataFrame, reference: str | None = None) -> Ranking:
    """Order the rows.

    Args:
        runs: of `Results`, every scheduler on every workload.
        reference: label; None, or one without results (left out, failed): the star of the first group, or
            the first row if there is no star.
    """
    first_runs = runs.drop_duplicates("scheduler").set_index("scheduler")
    labels = first_runs.index.tolist()
    blocked = {label: float(values_of(runs, label, "blocking_rate").mean()) for label in labels}
    jct = {label: float(values_of(runs, label, "mean_jct").mean()) for label in labels}

    def place(label: str) -> tuple[float, float, bool]:
        return _rounded(blocked[label]), _rounded(jct[label]), label.partition("@")[0] == "random"

    order = sorted(labels, key=place)
    groups = dict(zip(labels, first_runs["group"].tolist(), strict=True))
    all_block = min(blocked.values()) > 0
    stars: dict[int, str] = {}
    for label in sorted(order, key=lambda one: groups[one]):
        if first_runs["published"][label] and (all_block or not blocked[label]):
            stars.setdefault(groups[label], label)
    metric = "blocking_rate" if all_block else "mean_jct"
    first = next(iter(stars.values()), order[0])
    varied = any(len(set(values_of(runs, label, metric).tolist())) > 1 for label in labels)
    own = first if reference is None or reference not in labels else reference
    return Ranking(order, groups, metric, blocked, list(stars.values()), own, varied)


def _rounded(value: float) -> float:
    """A number to sort by: equal schedules differ in the last digits only, and NaN is worst."""
    return float("inf") if np.isnan(value) else float(f"{value:.9g}")


def schedulers_frame(runs: pd.DataFrame, ranking: Ranking) -> pd.DataFrame:
    """One row per scheduler, group by group, the best first: means over workloads, with intervals.

    Each metric M has `M` (mean), `M_low` and `M_high` (95 % interval); `workloads` is how many there are.
    `ratio` is the mean of `compared_by` over that of `reference`, workloads in pairs, `p_holm` its adjusted
    p-value, `over_bound` the mean JCT over the lower bound's; NaN where rows cannot be compared, and
    intervals are NaN where nothing varies.

    Args:
        runs: of `Results`.
        ranking: of the schedulers.
    """
    compared, metric, varied = ranking.compared, ranking.metric, ranking.varied
    against = values_of(runs, ranking.reference, metric)
    alone = [p_value(values_of(runs, label, metric), against) for label in compared if varied]
    adjusted = dict(zip(compared, holm(np.array(alone)).tolist(), strict=False))

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
                "over_bound": np.nan if ranking.blocked[label] else means["mean_jct"] / bound,
                **means,
                "wall_seconds": float(wall.mean()),
                "milliseconds_per_decision": 1e3 * float(wall.sum()) / int(own["decisions"].sum()),
            }
        )
    return pd.DataFrame(rows)
