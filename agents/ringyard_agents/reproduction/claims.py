"""Claims of papers, and the measured values of the same numbers."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.errors import ConfigurationError
from ringyard_agents.evaluation.evaluate import RunResult
from ringyard_agents.evaluation.statistics import Interval, mean_interval, ratio_interval
from ringyard_baselines.papers.gadget import SLOT_SECONDS, Utilities, drawn_utilities, total_utility

#: {case: {scheduler: {metric: values [seeds]}}}
CaseMetrics = Mapping[str, Mapping[str, Mapping[str, NDArray[np.float64]]]]


@checked("claim")
@dataclass(frozen=True, kw_only=True)
class Claim:
    """One number of a paper.

    Raises:
        ConfigurationError: a field of another kind, or a reference where the form has none.
    """

    text: str  #: the claim in words
    case: str  #: name of a case of the reproduction
    scheduler: str  #: label of the scheduler that the claim is about
    #: a field of `Metrics`, "cpu_queueing" (mean queueing seconds of CPU-only jobs), "finished_early"
    #: (jobs that ended before the last one arrived), "job_gpu_activity" (mean over jobs of the share of
    #: its GPU time in which GPUs compute), "jct_over_bound" (mean JCT / lower bound),
    #: "kernels_on_used_gpus" (kernel_utilisation / utilisation) or "utility" (GADGET's total utility of
    #: the GPU time that jobs held, `ringyard_baselines.papers.gadget`). Ada-SRSF's transfer model has
    #: "mean_jct" and "makespan" only.
    metric: str
    #: "change" (scheduler / reference - 1), "ratio" (reference / scheduler), "growth" (scheduler /
    #: reference), "at_most" (growth, which may be smaller), "value" (of the metric) or "at_least" (a
    #: value, which may be larger)
    form: Literal["change", "ratio", "growth", "at_most", "value", "at_least"]
    claimed: float  #: the claimed number in this form
    #: label of the scheduler of the comparison. None: the claim is about the metric itself.
    reference: str | None = None

    def __post_init__(self) -> None:
        if (self.form in ("value", "at_least")) != (self.reference is None):
            raise ConfigurationError(
                f"claim {self.text!r}: forms value and at_least have no reference, every other form one"
            )


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim and the interval of its measured value."""

    claim: Claim
    interval: Interval

    @property
    def verdict(self) -> str:
        """Whether the claim was reproduced, in words."""
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


def read_claims(rows: Sequence[Mapping[str, Any]], cases: Sequence[str]) -> list[Claim]:
    """Read the claims of a reproduction's yaml. A row without `case` is about the first case."""
    claims = [Claim(**{"case": cases[0], **row}) for row in rows]
    for claim in claims:
        if claim.case not in cases:
            found = f"claim {claim.text!r} has case {claim.case!r}"
            raise ConfigurationError(f"{found}; expected one of {', '.join(cases)}")
    return claims


def _utility(run: RunResult) -> float:
    """Return GADGET's total utility of the GPU time that jobs held."""
    times = run.times
    drawn = drawn_utilities(int(times.rows.max()) + 1)
    own = Utilities(*(column[times.rows] for column in drawn))
    return total_utility(times.gpu_seconds / SLOT_SECONDS, own)


#: {name: function of a run} of metrics that are not fields of `Metrics`
_METRICS: Mapping[str, Callable[[Any], float]] = {
    "cpu_queueing": lambda run: run.times.queueing_seconds[run.times.num_gpus == 0].mean(),
    "finished_early": lambda run: (run.times.end_seconds <= run.times.submit_seconds.max()).sum(),
    "job_gpu_activity": lambda run: float(np.nanmean(run.times.gpu_activity)),
    "jct_over_bound": lambda run: run.metrics.mean_jct / run.bounds.mean_jct,
    "kernels_on_used_gpus": lambda run: run.metrics.kernel_utilisation / run.metrics.utilisation,
    "utility": _utility,
}


def metric_values(results: Sequence[RunResult], metric: str) -> NDArray[np.float64]:
    """Return a metric of one scheduler's runs [seeds], see `Claim`."""
    measure = _METRICS.get(metric, operator.attrgetter(f"metrics.{metric}"))
    return np.array([measure(run) for run in results], dtype=np.float64)


def measure_claim(claim: Claim, metrics: CaseMetrics) -> MeasuredClaim:
    """Measure a claim's number with its 95 % interval."""
    of_case = metrics[claim.case]
    own = of_case[claim.scheduler][claim.metric]
    if claim.reference is None:
        return MeasuredClaim(claim, mean_interval(own))
    other = of_case[claim.reference][claim.metric]
    if claim.form == "ratio":
        return MeasuredClaim(claim, ratio_interval(other, own))
    ratio = ratio_interval(own, other)
    if claim.form == "change":
        ratio = Interval(ratio.value - 1, ratio.low - 1, ratio.high - 1)
    return MeasuredClaim(claim, ratio)


#: metrics in [0, 1]
_SHARES = {"utilisation", "gpu_activity", "job_gpu_activity", "blocking_rate"}
_SHARES |= {"kernel_utilisation", "kernels_on_used_gpus"}


def format_metric(value: float, metric: str) -> str:
    """Format a value of a metric: three decimals for shares, otherwise none from 100 on and two below."""
    if metric in _SHARES:
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _formed(value: float, measured: MeasuredClaim) -> str:
    form = measured.claim.form
    if form == "change":
        return f"{value:+.1%}"
    if form in ("value", "at_least"):
        return format_metric(value, measured.claim.metric)
    return f"{value:.2f}x"


def claim_rows(measured: Sequence[MeasuredClaim]) -> list[tuple[str, str, str, str]]:
    """Return the cells of a table: claim, claimed value, measured value with interval, verdict."""
    rows = []
    for one in measured:
        low, high = _formed(one.interval.low, one), _formed(one.interval.high, one)
        found = f"{_formed(one.interval.value, one)} [{low}, {high}]"
        rows.append((one.claim.text, _formed(one.claim.claimed, one), found, one.verdict))
    return rows
