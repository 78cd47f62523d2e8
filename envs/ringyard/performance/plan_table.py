"""Seconds of an iteration by execution plan and placement, as a table.

A plan of a job is a number: its position in `Transformer.plans`, counted from 1. 0 is the fastest plan on the
GPUs that the job holds. Some of them idle if that is faster, or if no plan divides their number.

A placement counts by its GPUs n, its servers s and m, the fewest GPUs on any of these. On three servers and
more it stands for the one with these numbers where the other servers are filled one after the other. m = 0
is the fastest of all m.
"""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.performance.execution_plans import (
    Plan,
    Transformer,
    fitted_plan,
    named_plan,
    plan_class,
    plan_models,
    plan_times,
    rings_cross,
)

_Split = tuple[int, ...]  # GPUs on each server of a placement, descending
FASTEST = 0  #: number of the fastest plan


def _placement_class(split: _Split) -> tuple[int, int, int]:
    return sum(split), len(split), min(split)


@functools.cache
def _splits(servers: int, gpus_per_server: int) -> dict[tuple[int, int, int], _Split]:
    """Return {(n, s, m): the placement that stands for these numbers}, n ascending."""
    found = {}
    for count, fewest in itertools.product(range(1, servers + 1), range(1, gpus_per_server + 1)):
        room = gpus_per_server - fewest  # of each server beside the one with the fewest
        for more in range((count - 1) * room + 1):
            full, part = divmod(more, room) if room else (0, 0)
            split = [gpus_per_server] * full + [fewest + part] * (part > 0)
            placement = tuple(split + [fewest] * (count - len(split)))
            found[_placement_class(placement)] = placement
    return dict(sorted(found.items()))


@dataclass(frozen=True, eq=False)
class PlanTable:
    """Seconds of an iteration of each model by plan and placement."""

    models: tuple[Transformer, ...]  #: positions are values of `JobTable.plan_model`
    servers: int  #: most servers of a placement
    gpus_per_server: int  #: most GPUs on each
    first: NDArray[np.int64]  #: [models] row of each model's fastest plan. Its other plans follow.
    #: [n + 1, s + 1, m + 1] column of a placement of n GPUs on s servers, at least m on each. -1: none
    column: NDArray[np.int64]
    #: [rows, columns, 2] seconds without rings between servers, and of these alone on their links. inf: the
    #: plan does not divide the GPUs or fit their memory
    seconds: NDArray[np.float64]
    fits: NDArray[np.bool_]  #: [rows, n + 1] whether the plan runs on so many GPUs
    stage_gpus: NDArray[np.float64]  #: [rows, columns] GPUs of a pipeline stage, inf where `seconds` are

    def row(self, model: int, plan: int) -> int:
        """Return the row of a plan of a model."""
        return int(self.first[model]) + plan

    def names(self, model: int, gpus: int) -> list[str]:
        """Return the names of the plans of a model that run on so many GPUs."""
        named = enumerate(self.models[model].plans, 1)
        return [f"{number} ({name})" for number, name in named if self.fits[self.row(model, number), gpus]]

    def fastest_of(self, kind: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the fastest plan of a class on n GPUs of as few servers as can be, and its relative speed.

        Args:
            kind: one of `execution_plans.PLAN_CLASSES`.

        Returns:
            [models, n + 1] numbers of plans, 0 if this is the fastest of all or there is none, and their
            speeds / those of the fastest of all, 0 if there is none.
        """
        sizes = np.arange(1, self.servers * self.gpus_per_server + 1)
        seconds = self.seconds.sum(axis=2)[:, self.column[sizes, -(-sizes // self.gpus_per_server), 0]]
        numbers, speeds = np.zeros((2, len(self.models), len(sizes) + 1))
        for i, model in enumerate(self.models):
            own = [number for number, name in enumerate(model.plans, 1) if plan_class(name) == kind]
            if own:
                found, fastest = seconds[self.first[i] + np.array(own)], seconds[self.first[i]]
                speeds[i, 1:] = np.where(np.isfinite(fastest), fastest, 0.0) / found.min(axis=0)
                slower = (0.0 < speeds[i, 1:]) & (speeds[i, 1:] < 1.0)
                numbers[i, 1:] = np.where(slower, np.array(own)[found.argmin(axis=0)], FASTEST)
        return numbers, speeds


def _plan_parts(
    model: Transformer,
    name: str,
    splits: list[_Split],
    gpu_type: str,
    measured: Mapping[tuple[int, int, int], float],
) -> NDArray[np.float64]:
    """Return [splits, 3] `PlanTable.seconds` and `stage_gpus` of a plan. Replicas divide the batch evenly.

    `measured` are seconds by (n, s, m). The analytic model has all others.
    """
    parts = np.full((len(splits), 3), np.inf)
    fitted: dict[int, Plan] = {}
    for gpus in {sum(split) for split in splits if sum(split) <= model.most_gpus}:
        plan = named_plan(name, gpus)
        if plan is not None and model.batch % plan.data == 0:
            try:
                fitted[gpus] = fitted_plan(model, plan, gpu_type)
            except ConfigurationError:  # no room in memory, or more ranks than heads, layers or samples
                continue
    for i, split in enumerate(splits):
        if sum(split) in fitted:
            plan = fitted[sum(split)]
            found = plan_times(model, plan, split, gpu_type, measured.get(_placement_class(split)))
            ring = found.ring if rings_cross(plan, split) else 0.0
            parts[i] = found.total - ring, ring, plan.data * plan.tensor
    return parts


def _add_fastest(rows: NDArray[np.float64], splits: list[_Split]) -> None:
    """Write the fastest plan of each placement, where GPUs may idle, to the first of a model's rows."""
    place = {_placement_class(split): i for i, split in enumerate(splits)}
    for i, split in enumerate(splits):
        *others, last = split
        used = [place[_placement_class((*others, gpus))] for gpus in range(1, last + 1)]
        choices = [*rows[1:, used].reshape(-1, 3)]
        fewer = [tuple(others), *((*split[:k], split[k] - 1, *split[k + 1 :]) for k in range(len(split)))]
        for one in fewer:
            before = place.get(_placement_class(one)) if one and all(one) else None
            if before is not None and all(a <= b for a, b in zip(splits[before], split, strict=False)):
                choices.append(rows[0, before])
        rows[0, i] = min(choices, key=lambda parts: parts[0] + parts[1])


@functools.cache
def plan_table(
    servers: int, gpus_per_server: int, gpu_type: str, measured: tuple[tuple[str, str, str, float], ...] = ()
) -> PlanTable:
    """Return the table of all models of conf/plan_models, which takes about a second.

    `measured` are (model, plan, GPUs of each server such as "4+4", seconds of an iteration).

    Raises:
        ConfigurationError: a measured row of an unknown model, plan or placement.
    """
    models = tuple(plan_models().values())
    rows_of: dict[Any, dict[Any, float]] = {(one.name, plan): {} for one in models for plan in one.plans}
    known = _splits(servers, gpus_per_server)
    named = {"+".join(map(str, split)): one for one, split in known.items()}
    for name, plan, placement, given in measured:
        if (name, plan) not in rows_of or placement not in named:
            raise ConfigurationError(
                f"performance.measured has {name}, {plan}, {placement}; expected a model of conf/plan_models,"
                f" one of its plans and GPUs of up to {servers} servers, most first: {gpus_per_server}+1"
            )
        rows_of[name, plan][named[placement]] = given
    splits, most = list(known.values()), servers * gpus_per_server
    column = np.full((most + 1, servers + 1, gpus_per_server + 1), -1)
    for i, (n, s, m) in enumerate(known):
        column[n, s, m] = i
    pairs = sorted({(n, s) for n, s, _ in known})
    for i, (n, s) in enumerate(pairs, len(splits)):
        column[n, s, 0] = i
    tables = []
    for model in models:
        rows = np.full((1 + len(model.plans), len(splits) + len(pairs), 3), np.inf)
        for number, name in enumerate(model.plans, 1):
            known_rows = rows_of[model.name, name]
            rows[number, : len(splits)] = _plan_parts(model, name, splits, gpu_type, known_rows)
        _add_fastest(rows, splits)
        for n, s in pairs:
            of_any = rows[:, [one for one in column[n, s, 1:] if one >= 0]]
            best = of_any[:, :, :2].sum(axis=2).argmin(axis=1)
            rows[:, column[n, s, 0]] = of_any[np.arange(len(rows)), best]
        tables.append(rows)
    parts = np.concatenate(tables)
    seconds, stage_gpus = parts[:, :, :2], parts[:, :, 2]
    fits = np.zeros((len(seconds), most + 1), np.bool_)
    for n, s in pairs:
        fits[:, n] |= np.isfinite(seconds[:, column[n, s, 0], 0])
    first = np.cumsum([0, *map(len, tables[:-1])])
    return PlanTable(models, servers, gpus_per_server, first, column, seconds, fits, stage_gpus)
