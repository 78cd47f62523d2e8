"""Profiles of a user's models from measured rows and fitted constants."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.profiles import ModelProfile, catalogue
from ringyard_agents.calibration.fits import ComputeLine, core_curves, fit_restart_growth
from ringyard_agents.calibration.gpus import ComputeTime, GpuFactor, derive_compute_times, fit_gpu_factor
from ringyard_agents.calibration.rings import FittedConstants
from ringyard_agents.calibration.yamls import CalibratedModel, ProfileFields, four_digits, six_digits_down
from ringyard_agents.measurements import gpus_per_server, measurement_kinds

#: with fewer numbers of cores, the serial share is that of the models that Synergy measured
_CORE_COUNTS, _USUAL_SERIAL_SHARE = 4, 0.0358
_GIVEN = "given with the measurements"
_BYTES_BY_GRADIENT = 4.0  # 16 bytes of weights, gradients and two optimiser moments per parameter over 4 sent
_MAX_FIXED_SHARE = 0.9  # of GPU memory: the rest holds samples


def calibrated_models(
    rows: pd.DataFrame, constants: FittedConstants, gradient_bytes: Mapping[str, float], where: str
) -> list[CalibratedModel]:
    """Make a profile of each model in tidy rows, with other fields of the profile of that name."""
    known = {model.name: model for model in catalogue()}
    chains, factors = _catalogue_factors()
    models = []
    for name in sorted(set(rows.model) - {""}):
        mine, base = rows[rows.model == name], known.get(name)
        lines = {kind: line for (model, kind), line in constants.lines.items() if model == name}
        measured = _measured(name, mine, lines, where, base)
        types = {REFERENCE_GPU, *measured, *factors}
        order = [REFERENCE_GPU, *(kind for kind in GPU_MEMORY_BYTES if kind in types - {REFERENCE_GPU})]
        gpus = derive_compute_times(measured, "", chains, factors, order)
        fields = _fields(mine, constants.exponents.get(name), gradient_bytes[name], where, base)
        # the fitted figures, else those of the profile, else those of the first fitted GPU type
        fitted = {
            kind: {batch: pair for (model, batch), pair in fit.items() if model == name}
            for kind, fit in constants.sharing.items()
        }
        first = next(filter(None, fitted.values()), {})
        shipped = {} if base is None else {kind: dict(one.sharing) for kind, one in base.gpus.items()}
        sharing = {kind: fitted.get(kind) or shipped.get(kind) or first for kind in gpus}
        task = base.task if base is not None else ""
        models.append(CalibratedModel(name, f"{name}, calibrated.", task, fields, gpus, sharing))
    return models


def _measured(
    name: str, rows: pd.DataFrame, lines: Mapping[str, ComputeLine], where: str, base: ModelProfile | None
) -> Mapping[str, ComputeTime]:
    """Return {GPU type: compute time} of the profile, replaced by that of the rows."""
    unknown = sorted(set(lines) - set(GPU_MEMORY_BYTES))
    if unknown:
        raise ConfigurationError(
            f"{where}: {name} was measured on {unknown[0]}, an unknown GPU type; expected one of"
            f" {', '.join(GPU_MEMORY_BYTES)}. Add it to ringyard/gpu_types.py with its memory"
        )
    measured = {
        kind: ComputeTime(ComputeLine(figures.fixed_seconds, figures.sample_seconds), figures.source)
        for kind, figures in (base.gpus if base is not None else {}).items()
        if not figures.derived
    }
    for kind, line in lines.items():
        if kind not in measured or measured[kind].line != line:
            here = rows[rows.gpu_type == kind]
            said = f"{where}, {len(here)} rows of {here.batch.nunique()} batches"
            measured[kind] = ComputeTime(line, said)
    if not measured:
        raise ConfigurationError(
            f"{where}: no row has the seconds of {name} on its own GPUs; measure it isolated on one GPU"
        )
    return measured


def _catalogue_factors() -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, GpuFactor]]]:
    """Fit the factors from the reference GPU to other GPU types, by profiles that were measured on both."""
    factors = {}
    for kind in GPU_MEMORY_BYTES:
        ratios = {}
        for model in catalogue():
            here, there = model.gpus.get(kind), model.gpus[REFERENCE_GPU]
            if here is None or here.derived or there.derived:
                continue
            if min(here.sample_seconds, there.sample_seconds) > 0:
                ratios[model.name] = here.sample_seconds / there.sample_seconds
        if kind != REFERENCE_GPU and ratios:
            factors[kind] = {"": fit_gpu_factor(ratios)}
    return {kind: {"from": REFERENCE_GPU} for kind in factors}, factors


def _fields(
    rows: pd.DataFrame, exponent: float | None, gradient_bytes: float, where: str, base: ModelProfile | None
) -> ProfileFields:
    """Return the fields of the profile with that name, or the few fields of a new model."""
    values: dict[str, Any] = {}
    sources: dict[str, Any] = {}
    if base is not None:
        sources |= base.sources
        values |= {field: getattr(base, field) for field in sources if getattr(base, field, None) is not None}
    if base is None or gradient_bytes != base.gradient_bytes:
        values["gradient_bytes"], sources["gradient_bytes"] = gradient_bytes, _GIVEN
    if base is None:
        batches = sorted(rows.batch.dropna().unique())
        values["batch_size"] = batches[(len(batches) - 1) // 2]
        sources["batch_size"] = "the middle of those measured, the smaller of two"
    for field, (value, source) in _assumed_memory(rows, values["gradient_bytes"]).items():
        if field not in values:
            values[field], sources[field] = value, source
    for field, value in _pipeline(rows).items():
        values[field], sources[field] = four_digits(value), where
    if exponent is not None:
        values["overlap_exponent"] = four_digits(exponent)
        sources["overlap_exponent"] = f"{where}, together with its networks"
    return ProfileFields(values, sources)


def _assumed_memory(rows: pd.DataFrame, gradient_bytes: float) -> Mapping[str, tuple[float, str]]:
    """Assume GPU memory such that the tightest batch fills its GPU, or half of a shared GPU."""
    ran = rows[rows.batch.notna() & rows.gpu_type.isin(GPU_MEMORY_BYTES.keys())]
    if ran.empty:
        return {}
    shared = (measurement_kinds(ran) == "sharing a GPU").to_numpy()
    room = ran.gpu_type.map(GPU_MEMORY_BYTES).to_numpy(dtype=np.float64) * np.where(shared, 0.5, 1.0)
    fixed = six_digits_down(min(_BYTES_BY_GRADIENT * gradient_bytes, _MAX_FIXED_SHARE * float(room.min())))
    each = (room - fixed) / ran.batch.to_numpy()
    tightest = ran.iloc[int(each.argmin())]
    beside = " beside a neighbour" if shared[each.argmin()] else ""
    source = f"assumed: batch {tightest.batch:g}{beside}, which ran on {tightest.gpu_type}, fills it"
    memory = {"fixed_memory_bytes": (fixed, "assumed: 16 bytes x gradient_bytes / 4")}
    return memory | {"sample_memory_bytes": (six_digits_down(float(each.min())), source)}


def _pipeline(rows: pd.DataFrame) -> Mapping[str, float]:
    """Fit the fields of cores and restarts that the rows of one model determine."""
    part, found = measurement_kinds(rows), {}
    by_cores = rows[part == "cores"]
    enough = by_cores.cores.nunique() >= _CORE_COUNTS
    for curve in core_curves(by_cores, None if enough else _USUAL_SERIAL_SHARE).values():
        if np.isfinite(curve.samples_per_core_second):
            found["samples_per_core_second"] = curve.samples_per_core_second
            found["loading_serial_share"] = curve.loading_serial_share
    restarts = rows[part == "restart"]
    gpus = restarts.placement.map(lambda placement: sum(gpus_per_server(placement)))
    seconds = restarts.restart_seconds
    if (gpus == 1).any():
        found["restart_seconds"] = first = float(seconds[gpus == 1].mean())
        if (gpus > 1).any():
            growth = fit_restart_growth(gpus[gpus > 1].tolist(), seconds[gpus > 1].tolist(), first)
            found["restart_seconds_per_doubling"] = max(growth, 0.0)
    return found
