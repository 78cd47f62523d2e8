"""Plots of a comparison, and of several finished runs together."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.sim.metrics import LOSS_NAMES
from ringyard_agents.evaluation.results_frame import Results
from ringyard_agents.report.comparison_table import METRIC_COLUMNS
from ringyard_agents.report.tables import pluralize
from ringyard_agents.report.time_series import (
    band_of_means,
    band_of_ratios,
    band_of_shares,
    interquartile_mean,
    time_curves,
)
from ringyard_agents.runs.figures import save_figure
from ringyard_agents.runs.run_index import ComparisonResult, TrainingResult, find_runs, short_names

_Plot = tuple[str, Callable[[Any], None], str]  #: (file name, function that draws into axes, title)


def plot(places: Sequence[str], out: str, format: str, max_schedulers: int) -> None:
    """Plot finished runs, of `max_schedulers` by mean JCT, into a folder, and print the files."""
    folder = Path(out)
    trained, compared, damaged = find_runs(places)
    folder.mkdir(parents=True, exist_ok=True)
    plots, joined = [], _join_comparisons(compared)
    for name, (runs, jobs) in joined.items():
        shown = runs.groupby("scheduler")["mean_jct"].mean().nsmallest(max_schedulers).index
        best_runs, best_jobs = (frame[frame["scheduler"].isin(shown)] for frame in (runs, jobs))
        plots += _environment_plots(best_runs, best_jobs, name if len(joined) > 1 else "")
    plots += _profile_plots({name: runs for name, (runs, _) in joined.items()})
    for file in (*draw_learning_curves(trained, folder, format), *_save_plots(plots, folder, format)):
        print(f"plot: {file}")
    if damaged:
        raise ConfigurationError(f"some runs could not be plotted: {'; '.join(damaged)}")


def _join_comparisons(compared: Sequence[ComparisonResult]) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Join comparisons on the same workloads into {name: (runs, jobs)}. Different results get own labels."""
    names = short_names([one.folder for one in compared])
    found: dict[tuple[float, ...], tuple[str, list[ComparisonResult]]] = {}
    for one, name in zip(compared, names, strict=True):
        bounds = one.runs.drop_duplicates("workload").sort_values("workload")["bound_mean_jct"]
        _, same_workloads = found.setdefault(tuple(bounds.tolist()), (name, []))
        same_workloads.append(_without_duplicates(one, name, same_workloads))
    return {
        name: (pd.concat([one.runs for one in some]), pd.concat([one.jobs for one in some]))
        for name, some in found.values()
    }


def _without_duplicates(
    one: ComparisonResult, name: str, earlier: Sequence[ComparisonResult]
) -> ComparisonResult:
    """Drop schedulers with equal results in earlier comparisons, and relabel those with other results."""

    def jcts(runs: pd.DataFrame, label: str) -> list[float]:
        return runs.loc[runs["scheduler"] == label, "mean_jct"].tolist()

    runs, jobs = one.runs, one.jobs
    for label in runs["scheduler"].unique():
        others = [jcts(before.runs, label) for before in earlier]
        if jcts(one.runs, label) in others:
            runs, jobs = (frame[frame["scheduler"] != label] for frame in (runs, jobs))
        elif any(others):
            to = {label: f"{label} ({name})"}
            runs, jobs = (frame.replace({"scheduler": to}) for frame in (runs, jobs))
    return ComparisonResult(one.folder, runs, jobs)


_POINTS = 200

#: {part of the mean JCT: (metric, colour)}, from left to right
_JCT_PARTS = {"work": ("mean_work", "#bab0ac"), "queueing": ("mean_queueing", "#4e79a7")} | {
    name.replace("_", " "): (f"lost_to_{name}", colour)
    for name, colour in zip(
        LOSS_NAMES,
        ("#f28e2b", "#b07aa1", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#ff9da7", "#9c755f", "#1f1f1f"),
        strict=True,
    )
}


def draw_plots(results: Results, folder: Path) -> list[Path]:
    """Draw all plots of the `results` of a comparison into a `folder` and return the files."""
    seconds, found = time_curves(results.jobs, results.timelines)
    workloads = _sample_text(results.runs["workload"].nunique())

    def over_time(name: str, title: str, curve: str, ylabel: str) -> _Plot:
        def draw(axes: Any) -> None:
            for label, bands in found.items():
                bands[curve].draw(axes, seconds / 3600, label)
            axes.set(xlabel="simulated time (h) until 99 % of the jobs have ended", ylabel=ylabel)

        return name, draw, f"{title}; {workloads}"

    plots = [
        *_environment_plots(results.runs, results.jobs),
        *_profile_plots({"": results.runs}),
        over_time("jct_over_time", "Mean JCT of the jobs finished so far", "running_jct", "mean JCT (s)"),
        over_time("queue_length", "Queue length", "waiting", "number of waiting jobs"),
        over_time("utilisation", "GPU utilisation", "utilisation", "fraction of GPUs held by jobs"),
    ]
    return _save_plots(plots, folder, "png")


def _save_plots(plots: Sequence[_Plot], folder: Path, suffix: str) -> list[Path]:
    return [save_figure(folder / f"{name}.{suffix}", draw, title) for name, draw, title in plots]


def _environment_plots(runs: pd.DataFrame, jobs: pd.DataFrame, name: str = "") -> list[_Plot]:
    """Plot the distribution of job completion times, and the parts of their means."""
    labels = runs.groupby("scheduler")["mean_jct"].mean().sort_values(kind="stable").index.tolist()
    count = runs["workload"].nunique()
    of, ending = (f" of {name}", f"_{name.replace('/', '_')}") if name else ("", "")
    title = f"Job completion times{of}; {_sample_text(count)}"
    parts = f"Parts of the mean JCT{of}; {pluralize(count, 'workload')}"
    return [
        (f"jct_distribution{ending}", lambda axes: _draw_jct_distribution(axes, jobs, labels), title),
        (f"losses{ending}", lambda axes: _draw_jct_parts(axes, runs), parts),
    ]


def _profile_plots(environments: Mapping[str, pd.DataFrame]) -> list[_Plot]:
    """Plot the profile and the interquartile means of mean JCT / lower bound, of schedulers in `_scores`."""
    scores = _scores(environments)
    if not scores:
        return []
    over = _sample_text(sum(len(strata) for strata in next(iter(scores.values()))), len(environments))
    titles = f"Performance profile; {over}", f"Mean JCT / lower bound; {over}"
    profile = ("performance_profile", lambda axes: _draw_profile(axes, scores), titles[0])
    return [profile, ("interquartile_means", lambda axes: _draw_aggregates(axes, scores), titles[1])]


def _sample_text(workloads: int, environments: int = 1) -> str:
    """Return the end of a title: number of workloads and environments, and whether there are intervals."""
    of = f" of {environments} environments" if environments > 1 else ""
    return pluralize(workloads, "workload") + of + (", 95 % intervals" if workloads > 1 else "")


def _draw_jct_distribution(axes: Any, jobs: pd.DataFrame, labels: Sequence[str]) -> None:
    """Draw the fraction of jobs with at most a completion time, over all workloads, without blocked jobs."""
    served = jobs[jobs["outcome"] != "blocked"]
    most, least = served["jct"].max(), served.loc[served["jct"] > 0, "jct"].min()
    if not least < most:
        least, most = 0.5 * most, 2.0 * most
    seconds = np.geomspace(least, most, _POINTS)
    for label in labels:
        own = served[served["scheduler"] == label]
        if own.empty:
            continue
        sorted_jcts = [np.sort(one["jct"]) for _, one in own.groupby("workload")]
        below = np.array([np.searchsorted(jcts, seconds, side="right") for jcts in sorted_jcts], float).T
        sizes = np.array([len(jcts) for jcts in sorted_jcts], float)
        band = band_of_ratios(below, np.broadcast_to(sizes, below.shape)).within(0.0, 1.0)
        band.draw(axes, seconds, label)
    axes.set(xscale="log", xlabel="job completion time (s)", ylabel="fraction of jobs", ylim=(0, 1.02))


#: {scheduler: mean JCT / lower bound [workloads] of each environment}
_Scores = dict[str, list[NDArray[np.float64]]]


def _scores(environments: Mapping[str, pd.DataFrame]) -> _Scores:
    """Score the schedulers that block no jobs in any environment, the best first (else means mislead)."""
    found: _Scores = {}
    for runs in environments.values():
        for label, own in runs.groupby("scheduler", sort=False):
            if not (own["blocking_rate"] > 0).any():
                score = (own["mean_jct"] / own["bound_mean_jct"]).to_numpy(float)
                found.setdefault(str(label), []).append(score)
    everywhere = [label for label, strata in found.items() if len(strata) == len(environments)]
    everywhere.sort(key=lambda label: float(np.mean(np.concatenate(found[label]))))
    return {label: found[label] for label in everywhere}


def _draw_profile(axes: Any, scores: _Scores) -> None:
    """Draw the fraction of workloads on which mean JCT / lower bound is at most tau."""
    pooled = {label: np.concatenate(strata) for label, strata in scores.items()}
    worst = max(float(values.max()) for values in pooled.values())
    taus = np.geomspace(1.0, max(worst, 1.01), _POINTS)
    for label, values in pooled.items():
        band_of_shares(values[None, :] <= taus[:, None] * (1 + 1e-12)).draw(axes, taus, label)
    axes.set(xscale="log", xlabel="mean JCT / lower bound, at most")
    axes.set(ylabel="fraction of workloads", ylim=(0, 1.02))
    # Label a logarithmic axis that spans little more than a decade with numbers such as 1.5
    from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

    low, high = axes.get_xlim()
    if high / low < 20:
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())


def _draw_aggregates(axes: Any, scores: _Scores) -> None:
    """Draw the interquartile mean of each scheduler with its interval, and the mean and the median."""
    rows = range(len(scores))
    found = [interquartile_mean(strata) for strata in scores.values()]
    pooled = [np.concatenate(strata) for strata in scores.values()]
    values = np.array([one.value for one in found])
    around = np.array([[one.value - one.low, one.high - one.value] for one in found]).T
    axes.errorbar(values, rows, xerr=np.maximum(around, 0.0), fmt="o", capsize=3, label="interquartile mean")
    axes.plot([float(np.mean(one)) for one in pooled], rows, "k|", markersize=12, label="mean")
    axes.plot([float(np.median(one)) for one in pooled], rows, "kx", markersize=6, label="median")
    axes.set_yticks(rows, list(scores))
    axes.margins(y=0.5 / len(scores))
    axes.invert_yaxis()
    axes.set(xlabel="mean JCT / lower bound (less is better, 1 is optimal)")


def _draw_jct_parts(axes: Any, runs: pd.DataFrame) -> None:
    """Draw the parts of each scheduler's mean JCT as a stacked bar, with gains to the left of 0."""
    means = runs.groupby("scheduler").mean(numeric_only=True).sort_values("mean_jct", kind="stable")
    jct = means["mean_jct"].to_numpy()
    rows = range(len(means))
    right, left = np.zeros(len(means)), np.zeros(len(means))
    for name, (field, colour) in _JCT_PARTS.items():
        if field not in means:
            continue
        widths = means[field].to_numpy()
        if (np.abs(widths) < 1e-3 * jct).all():
            continue
        axes.barh(rows, widths, left=np.where(widths < 0, left, right), color=colour, label=name)
        right, left = right + np.maximum(widths, 0.0), left + np.minimum(widths, 0.0)
    if (left < 0).any():
        axes.axvline(0.0, color="black", linewidth=0.8)
    axes.plot(jct, rows, "k|", markersize=14, label="mean JCT")
    axes.set_yticks(rows, means.index.tolist())
    axes.invert_yaxis()
    axes.use_sticky_edges = False
    axes.autoscale_view()
    axes.set(xlabel="seconds of the mean JCT: work, and time lost to the rest (below 0: gained)")


#: settings that do not distinguish agents
_IGNORED_SETTINGS = (
    *("seed", "name", "resume", "overwrite", "num_threads", "save_minutes", "total_decisions", "trust"),
    *("evaluate", "hydra"),
)

_MAX_LABEL_SETTINGS = 3  #: a label names at most so many settings

_TITLES = {"mean_jct": "mean JCT (s)"} | {metric: title for title, metric, _ in METRIC_COLUMNS}


def draw_learning_curves(runs: Sequence[TrainingResult], folder: Path, suffix: str = "png") -> list[Path]:
    """Draw a figure for each metric and set of evaluation workloads, with baselines as lines."""
    comparable: dict[Any, list[TrainingResult]] = {}
    for run in runs:  # equal values of the baselines mean equal workloads
        comparable.setdefault((run.metric, tuple(sorted(run.baselines.items()))), []).append(run)
    files = []
    for number, some in enumerate(comparable.values()):
        name = "learning_curves" if len(comparable) == 1 else f"learning_curves_{number}"
        files.append(_draw(some, folder / f"{name}.{suffix}"))
    return files


def _draw(runs: Sequence[TrainingResult], file: Path) -> Path:
    groups = group_by_settings(runs)

    def draw(axes: Any) -> None:
        for label, some in groups.items():
            _draw_group(axes, some, f"{label} ({len(some)} seeds)" if len(some) > 1 else label)
        for style, (name, value) in enumerate(runs[0].baselines.items()):
            dashes = ("--", ":", "-.")[style % 3]
            axes.axhline(value, color="black", linestyle=dashes, linewidth=1, label=name)
        axes.set(xlabel="training decisions (millions)", ylabel=_TITLES.get(runs[0].metric, runs[0].metric))

    several = any(len(some) > 1 for some in groups.values())
    bands = "; means over seeds, 95 % intervals" if several else ""
    title = f"Learning curves: agents on the evaluation workloads of their training{bands}"
    return save_figure(file, draw, title)


def _draw_group(axes: Any, runs: Sequence[TrainingResult], label: str) -> None:
    """Draw the mean over seeds, from the first decision that all have to the last."""
    curves = [(run.curve["decisions"].to_numpy(float), run.curve["value"].to_numpy(float)) for run in runs]
    if len(curves) == 1:
        (decisions, values) = curves[0]
    else:
        first, last = max(one[0][0] for one in curves), min(one[0][-1] for one in curves)
        decisions = np.linspace(first, last, _POINTS)
        values = np.stack([np.interp(decisions, *one) for one in curves], axis=1)
    band_of_means(values.reshape(len(decisions), -1)).draw(axes, decisions / 1e6, label)


def group_by_settings(runs: Sequence[TrainingResult]) -> dict[str, list[TrainingResult]]:
    """Group runs that differ only in their seed, by a label of the settings that distinguish them."""
    settings = [run.settings for run in runs]
    given = dict.fromkeys(name for one in settings for name in one)
    names = [name for name in given if name.partition(".")[0] not in _IGNORED_SETTINGS]
    different = [name for name in names if len({repr(one.get(name)) for one in settings}) > 1]
    variants: dict[str, list[TrainingResult]] = {}
    for run in runs:
        variants.setdefault(repr([run.settings.get(name) for name in different]), []).append(run)
    groups = list(variants.values())
    if len(runs) > 1 and len(groups) == 1:
        return {"agent": groups[0]}
    # Drop the settings inside of a part if its class differs
    parts = [name.removesuffix("_target_") for name in different if name.endswith("._target_")]
    outer = [part for part in parts if not any(part != one and part.startswith(one) for one in parts)]
    rest = [name for name in different if not any(name.startswith(part) for part in parts)]
    short = [*(f"{part}_target_" for part in outer), *rest]
    values = [group[0].settings for group in groups]
    labels = [", ".join(_setting_text(name, one.get(name)) for name in short) for one in values]
    if len(set(labels)) < len(labels) or "" in labels or len(short) > _MAX_LABEL_SETTINGS:
        labels = short_names([group[0].folder for group in groups])
    return dict(zip(labels, groups, strict=True))


def _setting_text(name: str, value: Any) -> str:
    """Return `agent=EvolutionStrategies` for a class, `num_workloads=64` for another setting."""
    if name.endswith("._target_"):
        return f"{name.split('.')[-2]}={str(value).rpartition('.')[2]}"
    return f"{name.rpartition('.')[2]}={value}"
