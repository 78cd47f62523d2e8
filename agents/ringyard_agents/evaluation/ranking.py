"""Ranking of the schedulers of a comparison, its statistics, and the frame with one row per scheduler.

A scheduler is compared with the reference by the *ratio of their means*, the quantity that tables sort by
and papers claim. Its interval is Student's t of the ratio's logarithm by the delta method: each workload
moves the logarithm by x_i / mean(x) - y_i / mean(y) (van der Vaart, "Asymptotic Statistics", 1998, 3.1). The
interval of a mean is that of its ratio to ones. `benchmarks/coverage.py` measures how often this interval and
those of the bootstrap (percentile, BCa, studentised) cover the true value, see docs/benchmarks.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit  # Student's t; importing scipy.stats takes half a second

from ringyard.sim.metrics import Metrics
from ringyard_agents.evaluation.notes import NOTES

MIN_WORKLOADS = 20  #: fewer workloads than these print a warning

_CONFIDENCE = 0.95

_ROUNDING = 1e-12  #: relative differences below this are rounding errors between equal schedules


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float


def _estimate(values: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, float, bool]:
    """Return (ratio of means, its standard error, whether that is of its logarithm: no value below 0)."""
    own, other, count = float(values.mean()), float(reference.mean()), len(values)
    if other == 0:
        return float("nan"), float("nan"), False
    logarithmic = bool(own > 0 and other > 0 and values.min() >= 0 and reference.min() >= 0)
    moved = values / own - reference / other if logarithmic else (values - own / other * reference) / other
    spread = float(moved.std(ddof=1) / np.sqrt(count)) if count > 1 else float("inf")
    rounding = _ROUNDING if logarithmic else _ROUNDING * abs(own / other)
    return own / other, 0.0 if spread <= rounding else spread, logarithmic


def ratio_interval(
    values: NDArray[np.float64], reference: NDArray[np.float64], confidence: float = _CONFIDENCE
) -> Interval:
    """Return mean(values) / mean(reference) of paired workloads (NaN: by 0), with its interval."""
    ratio, error, logarithmic = _estimate(values, reference)
    half = error * float(stdtrit(max(len(values) - 1, 1), (1 + confidence) / 2))
    if not logarithmic:
        return Interval(ratio, ratio - half, ratio + half)
    with np.errstate(over="ignore"):
        return Interval(ratio, float(ratio * np.exp(-half)), float(ratio * np.exp(half)))


def mean_interval(values: NDArray[np.float64]) -> Interval:
    """Return the mean of [workloads] values with its 95 % interval."""
    return ratio_interval(values, np.ones(len(values)))


def p_value(values: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Return the two-sided p-value of equal means: at most 0.05 just if 1 is outside of `ratio_interval`."""
    ratio, error, logarithmic = _estimate(values, reference)
    away = abs(float(np.log(ratio)) if logarithmic else ratio - 1)
    if error == 0:
        errors = float("inf") if away > _ROUNDING else 0.0
    else:
        errors = away / error
    return float(2 * stdtr(max(len(values) - 1, 1), -errors))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjust p-values [comparisons] for multiple comparisons (Holm, Scand. J. Statist. 6, 1979)."""
    order = np.argsort(p_values)
    steps = (len(order) - np.arange(len(order))) * p_values[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def holm_confidences(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the confidence of each comparison's interval that excludes 1 just if Holm's test rejects.

    A rejected comparison has the level at which it was tested, the others that of the first not rejected.
    """
    ranks, alpha = np.argsort(np.argsort(p_values)), 1 - _CONFIDENCE
    return 1 - alpha / (len(ranks) - np.minimum(ranks, (holm(p_values) <= alpha).sum()))


def small_sample_warning(workloads: int) -> str | None:
    """Return a warning if a table has few workloads, else None."""
    if workloads >= MIN_WORKLOADS:
        return None
    return NOTES["one" if workloads == 1 else "few"].format(workloads=workloads, enough=MIN_WORKLOADS)


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
