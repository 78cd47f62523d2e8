"""What a paper claims, and the same number measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard_agents.evaluation.evaluate import RunResult
from ringyard_agents.evaluation.statistics import Interval, mean_interval, ratio_interval
from ringyard_baselines.papers.gadget import SLOT_SECONDS, Utilities, drawn_utilities, total_utility

__all__ = [
    "Claim",
    "Measured",
    "SweepTable",
    "claim_rows",
    "format_metric",
    "measure_claim",
    "metric_values",
    "read_claims",
    "read_tables",
]


@dataclass(frozen=True)
class Claim:
    """One number of a paper.

    Attributes:
        text: what it says.
        case: of the reproduction, by name.
        scheduler: whose number it is.
        reference: whom it is compared with; None: the metric itself is claimed.
        metric: a field of `Metrics`, "cpu_queueing" (mean queueing seconds of CPU-only jobs),
            "finished_early" (jobs that ended before the last one arrived), "job_gpu_activity" (mean over
            jobs of the share of its GPU time in which GPUs compute: a long job counts like a short one),
            "jct_over_bound" (mean completion time over what no schedule can beat), "kernels_on_used_gpus"
            (kernel_utilisation / utilisation: of GPUs that hold jobs), "utility" (GADGET's total, of the
            GPU time that jobs held, `ringyard_baselines.papers.gadget`);
            of Ada-SRSF's transfer model "mean_jct" and "makespan" only.
        form: "change" (ratio - 1), "ratio" (reference / scheduler: times smaller), "growth" (scheduler /
            reference: times larger), "at_most" (the same, and less is as good), "value" or "at_least" (a
            value, and more is as good).
        claimed: the number, in that form.
    """

    text: str
    case: str
    scheduler: str
    reference: str | None
    metric: str
    form: str
    claimed: float


@dataclass(frozen=True)
class SweepTable:
    """A metric over cases: a sweep, or one assumption changed at a time.

    Attributes:
        title: above the table.
        metric: as of a `Claim`.
        cases: its rows.
        schedulers: its columns, those that a case has.
        against: of `schedulers`: each other one's change from it is printed as well; None: nothing is.
    """

    title: str
    metric: str
    cases: Sequence[str]
    schedulers: Sequence[str]
    against: str | None = None


@dataclass(frozen=True)
class Measured:
    """A claim beside what was measured."""

    claim: Claim
    interval: Interval

    @property
    def verdict(self) -> str:
        """How the two compare."""
        claimed, found = self.claim.claimed, self.interval
        if np.isnan(found.value):
            return "no: the reference is 0"
        if self.claim.form == "at_most":
            return "yes: not more" if found.value <= claimed else "no"
        if self.claim.form == "at_least":
            return "yes: not less" if found.value >= claimed else "no"
        neutral = {"change": 0.0, "ratio": 1.0, "growth": 1.0}.get(self.claim.form)
        if found.low <= claimed <= found.high:
            open_question = neutral is not None and found.low <= neutral <= found.high
            return "inconclusive: so is no effect" if open_question else "yes: within the interval"
        if neutral is None:
            return f"no: {found.value / claimed - 1:+.0%}" if claimed else "no"
        if (found.value - neutral) * (claimed - neutral) <= 0:
            return "no: not even the direction"
        stronger = abs(found.value - neutral) > abs(claimed - neutral)
        if found.low <= neutral <= found.high:
            return "no: the direction, within noise"
        return "direction only: " + ("stronger" if stronger else "weaker")


def read_claims(rows: Sequence[Mapping[str, object]], cases: Sequence[str]) -> list[Claim]:
    """Claims of a reproduction's yaml.

    Raises:
        ConfigurationError: a row that makes no sense.
    """
    claims = []
    for row in rows:
        claim = Claim(
            text=str(row["text"]),
            case=str(row.get("case", cases[0])),
            scheduler=str(row["scheduler"]),
            reference=None if row.get("reference") is None else str(row["reference"]),
            metric=str(row["metric"]),
            form=str(row["form"]),
            claimed=float(str(row["claimed"])),
        )
        if claim.case not in cases:
            raise ConfigurationError(
                f"claim {claim.text!r} has case {claim.case!r}; expected one of {list(cases)}"
            )
        if claim.form not in ("change", "ratio", "growth", "at_most", "value", "at_least"):
            raise ConfigurationError(
                f"claim {claim.text!r} has form {claim.form!r}; expected change, ratio, growth,"
                " at_most, value or at_least"
            )
        if (claim.form in ("value", "at_least")) != (claim.reference is None):
            raise ConfigurationError(
                f"claim {claim.text!r}: forms value and at_least have no reference, every other form one"
            )
        claims.append(claim)
    return claims


def read_tables(
    rows: Sequence[Mapping[str, Any]], cases: Mapping[str, Mapping[str, Any]]
) -> list[SweepTable]:
    """Tables of a reproduction's yaml.

    Args:
        rows: `tables` of the yaml.
        cases: of the yaml, by name.

    Raises:
        ConfigurationError: a case, or a scheduler, that is not there.
    """
    tables = [SweepTable(**row) for row in rows]
    for table in tables:
        for case in table.cases:
            if case not in cases:
                raise ConfigurationError(
                    f"table {table.title!r} has case {case!r}; expected some of {list(cases)}"
                )
        found = {label for case in table.cases for label in cases[case]["schedulers"]}
        wanted = [*table.schedulers, *([] if table.against is None else [table.against])]
        missing = [label for label in wanted if label not in found]
        if missing:
            raise ConfigurationError(
                f"table {table.title!r} has scheduler {missing[0]!r}; expected some of {sorted(found)}"
            )
    return tables


def metric_values(results: Sequence[RunResult], metric: str) -> NDArray[np.float64]:
    """[seeds] a metric of one scheduler's runs."""
    if metric == "cpu_queueing":
        return np.array([r.times.queueing_seconds[r.times.num_gpus == 0].mean() for r in results])
    if metric == "jct_over_bound":
        return np.array([r.metrics.mean_jct / r.bounds.mean_jct for r in results])
    if metric == "job_gpu_activity":
        return np.array([np.nanmean(r.times.gpu_activity) for r in results])
    if metric == "kernels_on_used_gpus":
        return metric_values(results, "kernel_utilisation") / metric_values(results, "utilisation")
    if metric == "utility":
        return np.array([_utility(r) for r in results])
    if metric == "finished_early":
        return np.array([float((r.times.end_seconds <= r.times.submit_seconds.max()).sum()) for r in results])
    return np.array([float(getattr(r.metrics, metric)) for r in results])


def _utility(result: RunResult) -> float:
    """GADGET's total utility of the GPU time that jobs held."""
    times = result.times
    drawn = drawn_utilities(int(times.rows.max()) + 1)
    own = Utilities(*(column[times.rows] for column in drawn))
    return total_utility(times.gpu_seconds / SLOT_SECONDS, own)


def measure_claim(claim: Claim, values: Mapping[tuple[str, str], NDArray[np.float64]]) -> Measured:
    """The claim's number with its 95 % interval.

    Args:
        claim: what is claimed.
        values: {(scheduler, metric): [seeds]} of the claim's case.
    """
    own = values[claim.scheduler, claim.metric]
    if claim.reference is None:
        return Measured(claim, mean_interval(own))
    other = values[claim.reference, claim.metric]
    if claim.form == "ratio":
        return Measured(claim, ratio_interval(other, own))
    ratio = ratio_interval(own, other)
    if claim.form in ("growth", "at_most"):
        return Measured(claim, ratio)
    return Measured(claim, Interval(ratio.value - 1, ratio.low - 1, ratio.high - 1))


#: metrics in [0, 1]
_SHARES = {
    "utilisation",
    "gpu_activity",
    "job_gpu_activity",
    "blocking_rate",
    "kernel_utilisation",
    "kernels_on_used_gpus",
}


def format_metric(value: float, metric: str) -> str:
    """Format a metric's value: three decimals for shares, else as many digits as it is worth."""
    if metric in _SHARES:
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _formed(value: float, measured: Measured) -> str:
    form = measured.claim.form
    if form == "change":
        return f"{value:+.1%}"
    if form in ("value", "at_least"):
        return format_metric(value, measured.claim.metric)
    return f"{value:.2f}x"


def claim_rows(measured: Sequence[Measured]) -> list[tuple[str, str, str, str]]:
    """(claim, claimed, measured with interval, reproduced?) of each."""
    rows = []
    for one in measured:
        low, high = _formed(one.interval.low, one), _formed(one.interval.high, one)
        found = f"{_formed(one.interval.value, one)} [{low}, {high}]"
        rows.append((one.claim.text, _formed(one.claim.claimed, one), found, one.verdict))
    return rows
