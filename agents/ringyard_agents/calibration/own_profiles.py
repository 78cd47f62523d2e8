"""Profiles of a user's own models: what measured rows and their constants say of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.profiles import ModelProfile, catalogue
from ringyard_agents.calibration.cpu import core_curves
from ringyard_agents.calibration.gpus import Factor, Figure, derive, factors_between
from ringyard_agents.calibration.lines import Line, restart_growth
from ringyard_agents.calibration.own_fits import Constants
from ringyard_agents.calibration.sharing import Sharing
from ringyard_agents.calibration.yamls import Fields, six_digits_down
from ringyard_agents.measurements import parts_of, servers_of

__all__ = ["OwnModel", "own_models"]

#: with fewer different counts of cores the serial share is taken from the models that Synergy measured
_CORE_COUNTS, _USUAL_SERIAL_SHARE = 4, 0.0358
_GIVEN = "given with the measurements"
_BYTES_BY_GRADIENT = 4.0  # 16 bytes of weights, gradients and two optimiser moments per parameter over 4 sent
_MOST_FIXED_SHARE = 0.9  # of a GPU: what ran there also held samples


@dataclass(frozen=True)
class OwnModel:
    """What becomes a profile."""

    name: str
    head: str
    task: str
    fields: Fields
    gpus: Mapping[str, Figure]
    sharing: Mapping[str, Mapping[float, tuple[float, float]]]


def own_models(
    rows: pd.DataFrame, constants: Constants, gradient_bytes: Mapping[str, float], where: str
) -> list[OwnModel]:
    """One profile for each model of the rows; what they do not say stays as in the profile of that name.

    Args:
        rows: the tidy table.
        constants: fitted to it.
        gradient_bytes: {model: bytes of one all-reduce}.
        where: the file, for sources.
    """
    known = {model.name: model for model in catalogue()}
    names = sorted(set(rows.model) - {""})
    return [
        _own(name, rows[rows.model == name], constants, gradient_bytes, where, known.get(name))
        for name in names
    ]


def _own(
    name: str,
    rows: pd.DataFrame,
    constants: Constants,
    gradient_bytes: Mapping[str, float],
    where: str,
    base: ModelProfile | None,
) -> OwnModel:
    lines = {kind: line for (model, kind), line in constants.rings.lines.items() if model == name}
    unknown = sorted(set(lines) - set(GPU_MEMORY_BYTES))
    if unknown:
        raise ConfigurationError(
            f"{where}: {name} was measured on {unknown[0]}, a GPU type that is not known; expected"
            f" {', '.join(GPU_MEMORY_BYTES)}; add it to ringyard/gpu_types.py with its memory"
        )
    held = {
        kind: Figure(Line(figures.fixed_seconds, figures.sample_seconds), figures.source)
        for kind, figures in (base.gpus if base is not None else {}).items()
        if not figures.derived
    }
    measured = held | {
        kind: Figure(line, f"{where}, {_count(rows[rows.gpu_type == kind])}")
        for kind, line in lines.items()
        if kind not in held or held[kind].line != line
    }
    if not measured:
        raise ConfigurationError(
            f"{where}: no row says seconds of {name} on GPUs of its own; measure it alone on one GPU"
        )
    chains, factors = _catalogue_factors()
    known = {REFERENCE_GPU, *measured, *factors}
    types = sorted(known, key=lambda kind: (kind != REFERENCE_GPU, list(GPU_MEMORY_BYTES).index(kind)))
    gpus = derive(measured, "", chains, factors, types)
    return OwnModel(
        name,
        f"{name}, calibrated.",
        base.task if base is not None else "",
        _fields(name, rows, constants.rings.exponents, gradient_bytes, where, base),
        gpus,
        _own_sharing(name, constants.sharing, gpus, base),
    )


def _count(rows: pd.DataFrame) -> str:
    return f"{len(rows)} rows of {rows.batch.nunique()} batches"


def _catalogue_factors() -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Factor]]]:
    """How GPU types follow from the reference GPU: by the models of profiles measured on both."""
    root, factors = REFERENCE_GPU, {}
    for kind in GPU_MEMORY_BYTES:
        ratios = {}
        for model in catalogue():
            if kind not in model.gpus or root not in model.gpus:
                continue
            here, there = model.gpus[kind], model.gpus[root]
            if not (here.derived or there.derived) and min(here.sample_seconds, there.sample_seconds) > 0:
                ratios[model.name] = here.sample_seconds / there.sample_seconds
        if kind != root and ratios:
            factors[kind] = factors_between(ratios, {})
    return {kind: {"from": root} for kind in factors}, factors


def _fields(
    name: str,
    rows: pd.DataFrame,
    exponents: Mapping[str, float],
    gradient_bytes: Mapping[str, float],
    where: str,
    base: ModelProfile | None,
) -> Fields:
    """Those of the profile of that name, or what little is known of a new model."""
    if base is not None:
        values = {
            field: getattr(base, field) for field in base.sources if getattr(base, field, None) is not None
        }
        sources = dict(base.sources)
        if gradient_bytes[name] != base.gradient_bytes:
            values["gradient_bytes"] = gradient_bytes[name]
            sources["gradient_bytes"] = _GIVEN
    else:
        batches = sorted(rows.batch.dropna().unique())
        values = {"gradient_bytes": gradient_bytes[name], "batch_size": batches[(len(batches) - 1) // 2]}
        sources = {
            "gradient_bytes": _GIVEN,
            "batch_size": "the middle of those measured, the smaller of two",
        }
    for field, (value, source) in _assumed_memory(rows, values["gradient_bytes"]).items():
        if field not in values:
            values[field], sources[field] = value, source
    for field, value in _pipeline(rows).items():
        values[field], sources[field] = float(f"{value:.4g}"), where
    if name in exponents:
        values["overlap_exponent"] = float(f"{exponents[name]:.4g}")
        sources["overlap_exponent"] = f"{where}, together with its networks"
    return Fields(values, sources)


def _assumed_memory(rows: pd.DataFrame, gradient_bytes: float) -> Mapping[str, tuple[float, str]]:
    """GPU memory and sources: every batch fits, the tightest fills its GPU (half of a shared one)."""
    ran = rows[rows.batch.notna() & rows.gpu_type.isin(GPU_MEMORY_BYTES.keys())]
    if ran.empty:
        return {}
    shared = (parts_of(ran) == "sharing a GPU").to_numpy()
    room = ran.gpu_type.map(GPU_MEMORY_BYTES).to_numpy(dtype=np.float64) * np.where(shared, 0.5, 1.0)
    fixed = six_digits_down(min(_BYTES_BY_GRADIENT * gradient_bytes, _MOST_FIXED_SHARE * float(room.min())))
    each = (room - fixed) / ran.batch.to_numpy()
    tightest = ran.iloc[int(each.argmin())]
    beside = " beside a neighbour" if shared[each.argmin()] else ""
    return {
        "fixed_memory_bytes": (fixed, "assumed: 16 bytes x gradient_bytes / 4"),
        "sample_memory_bytes": (
            six_digits_down(float(each.min())),
            f"assumed: batch {tightest.batch:g}{beside}, which ran on {tightest.gpu_type}, fills it",
        ),
    }


def _pipeline(rows: pd.DataFrame) -> Mapping[str, float]:
    """Fields of cores and restarts, as far as the rows of one model say them."""
    part, found = parts_of(rows), {}
    by_cores = rows[part == "cores"]
    enough = by_cores.cores.nunique() >= _CORE_COUNTS
    for curve in core_curves(by_cores, None if enough else _USUAL_SERIAL_SHARE).values():
        if np.isfinite(curve.samples_per_core_second):
            found["samples_per_core_second"] = curve.samples_per_core_second
            found["loading_serial_share"] = curve.loading_serial_share
    restarts = rows[part == "restart"]
    gpus = restarts.placement.map(lambda placement: sum(servers_of(placement)))
    seconds = restarts.restart_seconds
    if (gpus == 1).any():
        found["restart_seconds"] = first = float(seconds[gpus == 1].mean())
        if (gpus > 1).any():
            growth = restart_growth(gpus[gpus > 1].tolist(), seconds[gpus > 1].tolist(), first)
            found["restart_seconds_per_doubling"] = max(growth, 0.0)
    return found


def _own_sharing(
    name: str,
    sharing: Mapping[str, Sharing],
    gpus: Mapping[str, Figure],
    base: ModelProfile | None,
) -> Mapping[str, Mapping[float, tuple[float, float]]]:
    """Of the rows; elsewhere the profile's own, else that of the first measured type."""
    fitted = {
        kind: {batch: pair for (model, batch), pair in fit.items() if model == name}
        for kind, fit in sharing.items()
    }
    fitted = {kind: curve for kind, curve in fitted.items() if curve}
    first = next(iter(fitted.values()), {})
    result: dict[str, Mapping[float, tuple[float, float]]] = {}
    for kind in gpus:
        shipped = base.gpus[kind].sharing if base is not None and kind in base.gpus else {}
        result[kind] = fitted.get(kind) or dict(shipped) or first
    return result
