"""Errors of the analytic model of execution plans, and how often it picks the best plan."""

import functools
from collections.abc import Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ringyard.errors import ConfigurationError
from ringyard.performance.execution_plans import (
    Plan,
    Transformer,
    check_plan,
    fitted_plan,
    plan_constants,
    plan_models,
    plan_seconds,
    plan_work,
)
from ringyard_agents.runs.figures import plot_predictions
from tools.calibration.plans import LEAST_ROWS, fit_plans, plan_priors
from tools.equations.result import Comparison, Part, halves, read, relative
from tools.measured_sets.readers import published

_NEAR = 1.05  # seconds over those of the best plan
_WORDS: Mapping[str, Mapping[str, Any]] = {
    "gc": {"checkpointing": True},
    "zero-dp": {"zero": 2},
    "zero-offload": {"zero": 2, "offload": True},
}
#: heads and layers of Arena's BERT (its configs.py); 1,024 tokens of 16-bit values, 51,200 words
_ARENA = {"760M": (24, 1536, 16), "1.3B": (24, 2048, 32), "2.6B": (32, 2560, 32), "6.7B": (32, 4096, 32)}


def plan_table(file: Path) -> pd.DataFrame:
    """[rows] model, placement, plan, measured seconds and columns of `plan_work` of a table of Morphling's.

    Plans are digits (pipeline, tensor and data ranks) or words joined by "+". Each has the fewest
    micro-batches that fit, and is checkpointed if it does not fit otherwise, as Morphling's large models are.

    Args:
        file: MODEL.csv, of a model of conf/plan_models. A column cpu_threads has CPU cores for each GPU.
    """
    model, rows = plan_models()[file.stem], []
    for row in pd.read_csv(file, dtype=str).to_dict("records"):
        text, gpus = str(row["exec_plan"]), tuple(map(int, row["placement"]))
        pipeline, tensor, data = map(int, text) if text.isdigit() else (1, 1, sum(gpus))
        options = {key: value for word in text.split("+") for key, value in _WORDS.get(word, {}).items()}
        plan = fitted_plan(model, Plan(data, tensor, pipeline, **options))
        found = {"model": model.name, "plan": plan, "placement": row["placement"]}
        work = plan_work(model, plan, gpus, cores=float(row.get("cpu_threads", 4)))
        rows.append(found | {"seconds": float(row["iter_time"])} | work)
    return pd.DataFrame(rows)


def plan_tables(data: Path) -> pd.DataFrame:
    """The rows of all tables in the folder of published files.

    Raises:
        MissingDataError: it has none.
    """
    place = published(data, "morphling_plans/placements/gpt2.csv").parent
    files = [file for file in sorted(place.glob("*.csv")) if file.stem in plan_models()]
    return pd.concat(map(plan_table, files), ignore_index=True)


def predict(rows: Any, constants: Mapping[str, Mapping[str, float]]) -> Any:
    """[rows] seconds by the constants of each row's model, "" for models without."""
    chosen: Any = pd.DataFrame([constants.get(model, constants[""]) for model in rows.model], rows.index)
    return plan_seconds(rows, chosen).total.to_numpy()


@functools.cache
def judged_plans(data: Path) -> pd.DataFrame:
    """All tables of the folder of published files, judged."""
    return judge(plan_tables(data))


def judge(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with seconds predicted by constants of the other `half`, and of models `left_out`.

    A half has half of the placements of each model. Small tables are predicted only, by what others share.
    """
    fitted = rows.groupby("model").model.transform("size") >= LEAST_ROWS
    half = pd.Series(halves([*zip(rows.model, rows.placement, strict=True)]), rows.index)
    splits = [("half", half), ("half", ~half)]
    splits += [("left_out", rows.model == name) for name in rows.model.unique()]
    rows = rows.copy()
    for column, mine in splits:
        kept: Any = rows[fitted & ~mine]
        constants = fit_plans(kept.model, kept, kept.seconds.to_numpy())
        rows.loc[mine, column] = predict(rows[mine], constants)
    return rows


def choices(rows: Any, column: str) -> Any:
    """[placements with two plans and more] seconds of the plan chosen by a column over those of the best."""
    places = [place for _, place in rows.groupby(["model", "placement"]) if len(place) > 1]
    return np.array([place.seconds[place[column].idxmin()] / place.seconds.min() for place in places])


def _chosen(rows: Any, column: str) -> str:
    lost = choices(rows, column)
    best, near = np.sum(lost == 1), np.sum(lost <= _NEAR)
    return f"best plan chosen at {best} of {len(lost)} placements, within 5 % of it at {near}"


def _comparison(data: Path, column: str, title: str, how: str, weak: str) -> Comparison:
    rows, points = judged_plans(data), []
    parts: list[Part] = []
    _, shared, own = np.array(list(plan_priors().values())).T > 0
    for name, mine in rows.groupby("model"):
        predicted, measured = mine[column].to_numpy(), mine.seconds.to_numpy()
        fitted = len(mine) // 2 if len(mine) >= LEAST_ROWS else 0
        constants = int(own.sum()) if fitted else 0
        if column == "left_out":
            sizes = rows[rows.model != name].model.value_counts()
            fitted, constants = int(sizes[sizes >= LEAST_ROWS].sum()), 0
        constants += 0 if parts else int(shared.sum())  # counted once
        parts.append(Part(str(name), relative(predicted, measured), fitted, constants, _chosen(mine, column)))
        points.append((str(name), measured, predicted))
    return Comparison(
        title=title,
        source="Morphling's tables (MLSys 2025), up to 8 x 8 A800",
        form=f"`ringyard.performance.execution_plans.plan_seconds`; {how}",
        parts=parts,
        weakness=weak,
        note=_chosen(rows, column),
        draw=lambda axes: plot_predictions(axes, points, "seconds per iteration"),
        aim=0.15,
    )


def execution_plans(data: Path) -> Comparison:
    """Each half of the placements of a model, predicted from the other half."""
    how = "each half of a model's placements by constants of the other"
    weak = (
        "Unexplained: ViT is several times as slow with odd numbers of GPUs on servers, without offload; T5's"
        " tensor and pipeline ranks compute four times as long. LLaMA-30B is not fitted."
    )
    return _comparison(data, "half", "Execution plans", how, weak)


def plans_of_new_models(data: Path) -> Comparison:
    """Each model predicted from its architecture and the constants of the others."""
    how = "a model's architecture and what the others share"
    weak = "Plain data parallelism and ZeRO are often a few percent apart."
    return _comparison(data, "left_out", "Execution plans of a model left out", how, weak)


def _plans(model: Transformer, gpus: int, gpu_type: str) -> list[Plan]:
    """Plans that fit on so many GPUs, with any number of micro-batches."""
    found = []
    for data, tensor, pipeline in product(range(1, gpus + 1), repeat=3):
        if data * tensor * pipeline == gpus:
            for count, again in product([2**i for i in range(8)], (False, True)):
                plan = Plan(data, tensor, pipeline, checkpointing=again, micro_batches=count)
                with suppress(ConfigurationError):
                    check_plan(model, plan, gpu_type)
                    found.append(plan)
    return found


def plans_by_gpu_type(data: Path) -> Comparison:
    """Seconds of Arena's best plans on three GPU types, by constants of A800 and a factor from A100."""
    rows = read(data, "arena/best_plan_iteration_seconds.csv")
    rows = rows[(rows.family == "bert") & rows.parameters.isin(_ARENA) & (rows.iteration_seconds > 0)]
    shared, best = plan_constants(), []
    for row in rows.to_dict("records"):
        layers, hidden, heads = _ARENA[row["parameters"]]
        weights = layers * 12 * hidden**2 + 51_200 * hidden
        model = Transformer("bert", layers, hidden, heads, 1024, weights, row["global_batch"], 2)
        gpus, kind = [row["gpus_per_node"]] * row["nodes"], row["gpu_type"]
        works = [plan_work(model, plan, gpus, kind) for plan in _plans(model, sum(gpus), kind)]
        best.append(min(plan_seconds(work, shared).total for work in works))
    rows = rows.assign(best=best, place=np.where(rows.nodes > 1, "several servers", "one server"))
    known = rows[(rows.gpu_type == "a100") & (rows.nodes == 1)]
    factor = float((known.iteration_seconds / known.best).median())
    judged = rows.drop(known.index).assign(predicted=rows.best * factor)
    parts: list[Part] = []
    points = []
    for (kind, place), mine in judged.groupby(["gpu_type", "place"]):
        predicted, measured = mine.predicted.to_numpy(), mine.iteration_seconds.to_numpy()
        fitted = 0 if parts else len(known)  # counted once
        parts.append(Part(f"{kind}, {place}", relative(predicted, measured), fitted, int(not parts)))
        points.append((f"{kind}, {place}", measured, predicted))
    return Comparison(
        title="Execution plans by GPU type",
        source="Arena (EuroSys 2026), best plans found for BERT of 0.76 to 6.7 billion weights",
        form=f"the fastest plan that fits; data sheets, what A800's models share, times {factor:.2f} (A100)",
        parts=parts,
        weakness="The network between Arena's servers is not published; A800's is assumed.",
        draw=lambda axes: plot_predictions(axes, points, "seconds per iteration"),
    )
