"""`ringyard reproduce`: run a paper's experiment and compare the result with its claims."""

import functools
import operator
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import hydra
import numpy as np
import yaml
from numpy.typing import NDArray
from omegaconf import OmegaConf
from rich.console import Console
from rich.table import Table

from ringyard.checks import checked, suggest
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError, SchedulerError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.config.compose import plain_groups, to_plain
from ringyard_agents.evaluation import ranking
from ringyard_agents.evaluation.evaluate import EvaluationTask, RunResult, check_tasks, run_tasks
from ringyard_agents.learning.agent_file import AGENT_FILE
from ringyard_agents.report.tables import print_line, print_note
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
    #: the GPU time that jobs held, `ringyard_baselines.papers.gadget`)
    metric: str
    #: "change" (scheduler / reference - 1), "ratio" (reference / scheduler), "growth" (scheduler /
    #: reference), "at_most" (growth, which may be smaller), "value" (of the metric) or "at_least" (a
    #: value, which may be larger)
    form: Literal["change", "ratio", "growth", "at_most", "value", "at_least"]
    claimed: float | None  #: the claimed number in this form. None: the paper's is not public.
    #: label of the scheduler of the comparison. None: the claim is about the metric itself.
    reference: str | None = None
    reference_case: str | None = None  #: the case of the reference, on equal workloads. None: `case`.

    def __post_init__(self) -> None:
        if (self.form in ("value", "at_least")) != (self.reference is None):
            raise ConfigurationError(
                f"claim {self.text!r}: forms value and at_least have no reference, every other form one"
            )


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim and the interval of its measured value."""

    claim: Claim
    interval: ranking.Interval

    @property
    def verdict(self) -> str:
        """Whether the claim was reproduced, in words."""
        claimed, found = self.claim.claimed, self.interval
        if claimed is None:
            return "no public figure"
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
        if not {claim.case, claim.reference_case or claim.case} <= set(cases):
            raise ConfigurationError(
                f"claim {claim.text!r} has case {claim.case!r} and reference_case {claim.reference_case!r}"
                f"; expected some of {', '.join(cases)}"
            )
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


def measure_claim(claim: Claim, metrics: CaseMetrics) -> MeasuredClaim:
    """Measure a claim's number with its 95 % interval."""
    own = metrics[claim.case][claim.scheduler][claim.metric]
    if claim.reference is None:
        return MeasuredClaim(claim, ranking.mean_interval(own))
    other = metrics[claim.reference_case or claim.case][claim.reference][claim.metric]
    if claim.form == "ratio":
        return MeasuredClaim(claim, ranking.ratio_interval(other, own))
    ratio = ranking.ratio_interval(own, other)
    if claim.form == "change":
        ratio = ranking.Interval(ratio.value - 1, ratio.low - 1, ratio.high - 1)
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
        claimed = "not public" if one.claim.claimed is None else _formed(one.claim.claimed, one)
        rows.append((one.claim.text, claimed, found, one.verdict))
    return rows


#: metrics shown for every scheduler
_SHOWN = ("mean_jct", "p99_jct", "mean_queueing", "mean_slowdown", "mean_fairness", "makespan", "utilisation")


def read_paper(paper: str) -> dict[str, Any]:
    """Read a paper's yaml, in conf/reproduction or in such a folder of RINGYARD_CONF."""
    files = config_files("reproduction")
    if paper not in files:
        problem = f"unknown paper {paper!r}" if paper else "no paper"
        raise ConfigurationError(f"{problem}; expected {suggest(paper, files)}")
    content: dict[str, Any] = yaml.safe_load(files[paper].read_text())
    expected = ("title", "setup", "rule", "seeds", "cases", "claims", "deviations")
    missing = [key for key in expected if key not in content]
    if missing:
        raise ConfigurationError(f"{files[paper]} lacks the keys {', '.join(missing)}")
    return content


def _scheduler(entry: Mapping[str, Any], rule: str | None) -> Any:
    """Compose the config of {scheduler: NAME or NAME@RULE, overrides: [...], options: {...}}."""
    name, _, own = entry["scheduler"].partition("@")
    placement = own or rule
    words = [f"scheduler={name}", *([f"placement={placement}"] if placement else [])]
    words += entry.get("overrides", [])
    words += [f"scheduler.{option}={value}" for option, value in entry.get("options", {}).items()]
    config = hydra.compose("entry", words)
    OmegaConf.resolve(config)
    if placement is None and config.scheduler.get("placement") == config.placement:
        raise ConfigurationError(
            f"scheduler {name!r} needs a placement rule; expected {name}@RULE, or the key rule in the yaml"
        )
    return to_plain(config.scheduler)


def _trained(
    case: Mapping[str, Any], folder: Path, on_result: Callable[[str], None]
) -> dict[str, Mapping[str, Any]]:
    """Train agents with a case's overrides and those in `train` of each; return all schedulers' entries."""
    entries = dict(case["schedulers"])
    for number, (label, entry) in enumerate(entries.items()):
        if "train" in entry:
            words = [*case["overrides"], *entry["train"]]
            on_result(f"training {label}: {shlex.join(['ringyard', 'train', *words])}")
            run = folder / str(number)
            command = [sys.executable, "-m", "ringyard_agents", "train", *words, f"hydra.run.dir={run}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SchedulerError(f"training {label} failed: {done.stderr.strip()}")
            agent = f"scheduler.checkpoint={run / AGENT_FILE}"
            entries[label] = {"scheduler": "learned/agent", "overrides": [agent]}
    return entries


def scheduler_tasks(case: Mapping[str, Any], seeds: int, rule: str | None) -> list[EvaluationTask]:
    """Return a task for every scheduler and seed. Random clusters differ between seeds.

    `environment` of a scheduler lists overrides of its environment beside the case's.
    """

    @functools.cache
    def environment(*own: str) -> tuple[dict[str, Any], tuple[float, float]]:
        config = hydra.compose("compare", [*case["overrides"], *own])
        first, last = config.measured_jobs
        return plain_groups(config), (first, last)

    entries = {label: (_scheduler(one, rule), one) for label, one in case["schedulers"].items()}
    tasks = []
    for seed in range(seeds):
        for label, (scheduler, entry) in entries.items():
            groups, measured = environment(*entry.get("environment", ()))
            cluster = groups["cluster"]
            drawn = groups | {"cluster": cluster | ({"seed": seed} if "seed" in cluster else {})}
            tasks.append(EvaluationTask(label, scheduler, drawn, seed, seed, measured))
    return tasks


def run_cases(
    paper: str,
    content: Mapping[str, Any],
    seeds: int,
    workers: int | None,
    on_result: Callable[[str], None],
    rows: Collection[tuple[str, str]] | None = None,
) -> Iterator[tuple[str, dict[str, dict[str, NDArray[np.float64]]], dict[str, Any]]]:
    """Run schedulers of the cases of a paper, one case after the other.

    Args:
        paper: name of its yaml.
        content: content of the yaml.
        seeds: number of workloads.
        workers: number of processes. None: one per core.
        on_result: called with a line when a case begins.
        rows: (case, label of a scheduler) to run. None: all.

    Yields:
        A case, its measured values {label: {metric: values [seeds]}}, and its composed configuration
        {"environments": {label: config}, "schedulers": {label: config}}.

    Raises:
        RingyardError: a scheduler cannot run, or an agent could not be trained.
    """
    first = next(iter(content["cases"]))
    with hydra_initialized():
        for name, case in content["cases"].items():
            entries = case["schedulers"].items()
            named = {label: entry for label, entry in entries if rows is None or (name, label) in rows}
            if not named:
                continue
            case = {**case, "schedulers": named}
            on_result(f"{paper}: {name}, {len(named)} schedulers, {seeds} seeds")
            with TemporaryDirectory() as folder:
                ready = _trained(case, Path(folder), on_result)
                tasks = scheduler_tasks({**case, "schedulers": ready}, seeds, content["rule"])
                check_tasks(tasks)
                results = run_tasks(tasks, workers, lambda result: None)
            # `_SHOWN` and the metrics that claims, ablations and tables name for the case
            rows_of_claims = [*content["claims"], *content.get("ablations", [])]
            wanted = {row["metric"] for row in rows_of_claims if row.get("case", first) == name}
            wanted |= {row["metric"] for row in content.get("tables", []) if name in row["cases"]}
            measures = {
                metric: _METRICS.get(metric, operator.attrgetter(f"metrics.{metric}"))
                for metric in (*_SHOWN, *sorted(wanted))
            }
            runs = {label: [run for run in results if run.label == label] for label in ready}
            figures = {
                label: {metric: np.array([*map(of, own)], np.float64) for metric, of in measures.items()}
                for label, own in runs.items()
            }
            composed = {task.label: task.scheduler for task in tasks}
            configs = {label: v if "train" in v else composed[label] for label, v in named.items()}
            environments = {task.label: task.environment for task in tasks if task.seed == tasks[0].seed}
            yield name, figures, {"environments": environments, "schedulers": configs}


def reproduce_paper(paper: str, seeds: int | None, workers: int | None) -> None:
    """Run all that a paper's claims need, and print the claims and the measured values.

    Args:
        paper: name of its yaml.
        seeds: number of workloads. None: as the yaml says.
        workers: number of processes. None: one per core.
    """
    console, content = Console(), read_paper(paper)
    count = seeds or int(content["seeds"])
    claims = read_claims(content["claims"], list(content["cases"]))
    runs = run_cases(paper, content, count, workers, lambda line: print_line(console, line))
    figures = {name: values for name, values, _ in runs}
    header = ("claim", "claimed", "measured [95% CI]", "reproduced")
    table = Table(*header, title=f"{content['title']}; {count} seeds", title_justify="left")
    for row in claim_rows([measure_claim(one, figures) for one in claims]):
        table.add_row(*row)
    console.print(table)
    warning = ranking.small_sample_warning(count)
    if warning is not None:
        print_note(console, warning)
