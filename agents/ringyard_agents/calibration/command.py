"""`ringyard calibrate`: profiles, networks and interconnects from a CSV of measurements."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from ringyard.checks import shown
from ringyard.config_folder import USER_FOLDERS_VARIABLE
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.profiles import ModelProfile, catalogue
from ringyard_agents.calibration.fits import (
    ComputeLine,
    ComputeTime,
    GpuFactor,
    core_curves,
    derive_compute_times,
    fit_gpu_factor,
    fit_restart_growth,
    fit_sharing,
)
from ringyard_agents.calibration.rings import FittedConstants, fit_rings, predict_rings
from ringyard_agents.calibration.yamls import (
    CalibratedModel,
    ProfileFields,
    fabric_yaml,
    four_digits,
    profile_yaml,
    six_digits_down,
    write_yamls,
)
from ringyard_agents.measurements import gpus_per_server, measurement_kinds, read_measured_rows, situations
from ringyard_agents.runs.figures import plot_predictions, save_figure

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


#: number of folds of the cross-validation
_FOLDS = 4
_RINGS = ("one GPU", "inside a server", "between servers", "all-reduce")
_UNKNOWN = (float("nan"), float("nan"))


def fit_constants(rows: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> FittedConstants:
    """Fit all that tidy rows determine. Without a row on one GPU, the measured lines of profiles are kept."""
    part = measurement_kinds(rows)
    alone = rows[part == "one GPU"]
    measured = set(zip(alone.model, alone.gpu_type, strict=True))
    profiles = [(model.name, kind, one) for model in catalogue() for kind, one in model.gpus.items()]
    known = [one for one in profiles if not one[2].derived and one[:2] not in measured]
    held = {(name, kind): ComputeLine(one.fixed_seconds, one.sample_seconds) for name, kind, one in known}
    rings = fit_rings(rows[part.isin(_RINGS)], gradient_bytes, FittedConstants(held))
    pairs = rows[part == "sharing a GPU"]
    speeds = pairs.assign(speed=rings.compute_seconds(pairs) / pairs.seconds).dropna(subset="speed")
    sharing = {str(gpu_type): fit_sharing(one) for gpu_type, one in speeds.groupby("gpu_type")}
    return replace(rings, sharing=sharing)


def _predict(
    rows: pd.DataFrame, constants: FittedConstants, gradient_bytes: Mapping[str, float]
) -> NDArray[np.float64]:
    """Predict seconds [rows], NaN where a constant is missing."""
    part = measurement_kinds(rows)
    predicted = np.full(len(rows), np.nan)
    ring, shared = part.isin(_RINGS).to_numpy(), (part == "sharing a GPU").to_numpy()
    predicted[ring] = predict_rings(rows[ring], constants, gradient_bytes)
    pairs = rows[shared]
    own = zip(pairs.model, pairs.batch, strict=True)
    other = zip(pairs.neighbour, pairs.neighbour_batch, strict=True)
    fits = [constants.sharing.get(gpu_type, {}) for gpu_type in pairs.gpu_type]
    predicted[shared] = constants.compute_seconds(pairs) * [
        1.0 + fit.get(mine, _UNKNOWN)[0] * fit.get(theirs, _UNKNOWN)[1]
        for fit, mine, theirs in zip(fits, own, other, strict=True)
    ]
    return predicted


def cross_validate(rows: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> pd.DataFrame:
    """Add `predicted` seconds and relative `error` to each row, fitted to other rows, in four folds.

    Rows that measure the same situation (4+1+2 and 1+2+4 at one batch) are in one fold. Each batch of an
    isolated job and each size of a transfer is its own situation.
    """
    size = rows.batch.fillna(0.0) + rows.transfer_bytes.fillna(0.0)
    keys = situations(rows)
    texts = keys.where(rows.neighbour != "", keys + size.map(" | {:g}".format))
    distinct = sorted(set(texts))
    order = np.random.default_rng(0).permutation(len(distinct))
    fold_of = {distinct[key]: position % _FOLDS for position, key in enumerate(order)}
    fold = texts.map(fold_of).to_numpy()
    predicted = np.full(len(rows), np.nan)
    for here in (fold == number for number in set(fold.tolist())):
        if not here.all():
            constants = fit_constants(rows[~here], gradient_bytes)
            predicted[here] = _predict(rows[here], constants, gradient_bytes)
    return rows.assign(predicted=predicted, error=np.abs(predicted - rows.seconds) / rows.seconds)


_COMMAND = "ringyard calibrate"
_MAX_BYTES = 1e15  # per all-reduce
_NAME = re.compile(r"\w[\w.+-]*")
_PARTS = ("one GPU", "inside a server", "between servers", "sharing a GPU", "all-reduce")


def calibrate(
    place: str,
    out: str,
    network: str,
    interconnect: str,
    gradient_bytes: Sequence[str],
    overwrite: bool = False,
) -> None:
    """Fit constants to a tidy CSV, write the configs to a folder, and print the constants and their errors.

    `network` and `interconnect` name those of rows that name none. `gradient_bytes` lists NAME=BYTES for
    models without a profile.
    """
    path = Path(place)
    if path.is_dir():
        raise ConfigurationError(
            f"{path} is a folder; expected a CSV (the shipped configs are fitted to published measurements by"
            " `python -m tools.calibrate FOLDER --out conf`, in a checkout of the repository)"
        )
    rows = read_measured_rows(path)
    for column, name in (("network", network), ("interconnect", interconnect)):
        rows[column] = rows[column].mask(rows[column] == "", name)
    for column in ("model", "network", "interconnect"):
        for name in sorted(set(rows[column]) - {""}):
            if not _NAME.fullmatch(name):
                raise ConfigurationError(
                    f"{path}: {column} is {shown(name)}, which becomes the name of a yaml; expected letters,"
                    " digits, _, ., + and -, beginning with one of the first three"
                )
    given = _gradient_bytes(rows, gradient_bytes)
    usable = rows[rows.seconds.notna() & measurement_kinds(rows).isin(_PARTS)].reset_index(drop=True)
    if usable.empty:
        raise ConfigurationError(f"{path}: no row has seconds of an isolated model or of a pair of models")
    held_out = cross_validate(usable, given)
    constants = fit_constants(usable, given)
    models = calibrated_models(rows, constants, given, path.name)
    written_by = f"{_COMMAND} {path.name}"
    texts = {f"profiles/{one.name}.yaml": profile_yaml(one, written_by) for one in models}
    fabrics = {"network": constants.networks, "interconnect": constants.interconnects}
    for group, fits in fabrics.items():
        for name, fit in fits.items():
            fabric = replace(fit, source=f"trainings: {path.name}")
            texts[f"{group}/{name}.yaml"] = fabric_yaml(f"{name}.", fabric, written_by)
    folder = Path(out)
    write_yamls(folder, texts, _COMMAND, overwrite)
    held_out.to_csv(folder / "held_out.csv", index=False)
    groups = held_out[held_out.predicted.notna()].groupby("model")
    points = [(model or "transfers", mine.seconds, mine.predicted) for model, mine in groups]
    labels = "seconds per iteration", "predicted seconds (the row is held out of the fit)"
    save_figure(folder / "held_out.png", lambda axes: plot_predictions(axes, points, *labels))
    _report(models, held_out)
    print(f"rows: {folder / 'held_out.csv'}, plot: {folder / 'held_out.png'}")
    use = [f"{group}@performance.{group}={next(iter(fits))}" for group, fits in fabrics.items() if fits]
    command = shlex.join(["ringyard", "simulate", *use])
    print(f"use them (docs/calibration.md): {USER_FOLDERS_VARIABLE}={shlex.quote(str(folder))} {command}")


def _gradient_bytes(rows: pd.DataFrame, words: Sequence[str]) -> Mapping[str, float]:
    """Return {model: bytes of one all-reduce}, from words NAME=BYTES, otherwise from the model's profile."""
    given: dict[str, float] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        value = float(pd.to_numeric(number, errors="coerce"))
        if not name or not 0 <= value <= _MAX_BYTES or name in given:
            raise ConfigurationError(
                f"--gradient-bytes is {word!r}; expected NAME=BYTES, such as mynet=102e6, once for each model"
            )
        given[name] = value
    known = {model.name: model.gradient_bytes for model in catalogue()} | given
    models = sorted(set(rows.model) - {""})
    for name in sorted(set(given) - set(models)):
        raise ConfigurationError(
            f"--gradient-bytes names {name!r}, a model without rows; expected one of {', '.join(models)}"
        )
    for name in models:
        if name not in known:
            raise ConfigurationError(
                f"model {name} has no profile; give --gradient-bytes {name}=BYTES (4 x parameters in fp32)"
            )
    return known


def _report(models: Sequence[CalibratedModel], held_out: pd.DataFrame) -> None:
    """Print the constants and the errors of held-out rows."""
    names = ("model", "GPU", "fixed", "per sample", "overlap", "rows", "mean", "median")
    title = "iteration seconds = fixed + per sample x samples per GPU, with errors of held-out rows"
    table = Table(*(Column(name, overflow="fold") for name in names), title=title)
    for one in models:
        overlap = one.fields.values.get("overlap_exponent")
        for kind, figure in one.gpus.items():
            mine = held_out[(held_out.model == one.name) & (held_out.gpu_type == kind)]
            if mine.empty:
                continue
            errors = mine.error.dropna()
            cells = [f"{value:.4g}" for value in figure.line]
            cells += ["-" if overlap is None else f"{overlap:.3g}", str(len(errors))]
            cells += [f"{value:.1%}" if len(errors) else "-" for value in (errors.mean(), errors.median())]
            table.add_row(one.name, kind, *cells)
    Console().print(table)
    seen = held_out.error.dropna()
    if len(seen):
        print(f"held out: mean error {seen.mean():.1%}, median {seen.median():.1%}, {len(seen)} rows")
    if len(seen) < len(held_out):
        print(f"{len(held_out) - len(seen)} rows not held out: no other row determines their constants")
