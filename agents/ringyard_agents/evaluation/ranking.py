"""Which rows of a comparison may be held against one another, by what, and which are the best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard_agents.evaluation.evaluate import RunResult

__all__ = ["Ranking", "rank", "values_of"]


@dataclass(frozen=True)
class Ranking:
    """The rows of a table, in order.

    Who blocks fewer jobs is better, and among those who block as many the least mean JCT. Equal ones stand in
    the order in which they were given, `random` last.

    Attributes:
        order: labels, the best first.
        groups: {label: `Powers.group`}.
        metric: what rows are compared by: "mean_jct", of the rows that serve all jobs, or "blocking_rate"
            where every row blocks some.
        blocked: {label: share of the jobs that it blocks, mean over workloads}.
        stars: the best published row of each group (no agent): none that blocks jobs where others do not.
        reference: whom the others are compared with.
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
        """Those that can be compared with the reference: mean JCTs only of rows that serve all jobs."""
        able = [label for label in self.rows if self.metric == "blocking_rate" or not self.blocked[label]]
        return [label for label in able if label != self.reference] if self.reference in able else []


def values_of(results: Sequence[RunResult], label: str, metric: str) -> NDArray[np.float64]:
    """[workloads] of a field of `Metrics`."""
    return np.array([float(getattr(r.metrics, metric)) for r in results if r.label == label])


def rank(results: Sequence[RunResult], reference: str | None = None) -> Ranking:
    """Order the rows.

    Args:
        results: of every scheduler on every workload.
        reference: label; None, or one without results (left out, failed): the star of the first group, or
            the first row if there is no star.
    """
    labels = list(dict.fromkeys(result.label for result in results))
    blocked = {label: float(values_of(results, label, "blocking_rate").mean()) for label in labels}
    jct = {label: float(values_of(results, label, "mean_jct").mean()) for label in labels}

    def place(label: str) -> tuple[float, float, bool]:
        return _rounded(blocked[label]), _rounded(jct[label]), label.partition("@")[0] == "random"

    order = sorted(labels, key=place)
    groups = {result.label: result.may.group for result in results}
    all_block = min(blocked.values()) > 0
    published = {result.label for result in results if result.published}
    stars: dict[int, str] = {}
    for label in sorted(order, key=lambda one: groups[one]):
        if label in published and (all_block or not blocked[label]):
            stars.setdefault(groups[label], label)
    metric = "blocking_rate" if all_block else "mean_jct"
    first = next(iter(stars.values()), order[0])
    varied = any(len(set(values_of(results, label, metric).tolist())) > 1 for label in labels)
    own = reference if reference in labels else first
    return Ranking(order, groups, metric, blocked, list(stars.values()), own, varied)


def _rounded(value: float) -> float:
    """To be ordered: equal schedules differ in the last digits only, and NaN is worst."""
    return float("inf") if np.isnan(value) else float(f"{value:.9g}")
