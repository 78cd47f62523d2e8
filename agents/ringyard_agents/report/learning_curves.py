"""Learning curves of finished training runs. Runs that differ only in their seed make one curve."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ringyard_agents.report.comparison_table import METRIC_COLUMNS
from ringyard_agents.report.time_series import band_of_means
from ringyard_agents.runs.figures import save_figure
from ringyard_agents.runs.run_index import TrainingResult, short_names

_POINTS = 200

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
