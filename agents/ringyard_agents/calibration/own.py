"""A user's own measurements: fits, held-out errors, what is missing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.profiles import ModelProfile, catalogue
from ringyard_agents.calibration.fields import Fields, six_digits_down
from ringyard_agents.calibration.gpus import Factor, Figure, derive, factors_between
from ringyard_agents.calibration.lines import Line
from ringyard_agents.calibration.pipelines import core_curves, restart_growth
from ringyard_agents.calibration.rings import RingFit, fit_rings, predict_rings
from ringyard_agents.calibration.sharing import Sharing, fit_sharing
from ringyard_agents.measured import parts_of, servers_of, twins

__all__ = ["FOLDS", "Constants", "OwnModel", "fit_rows", "held_out", "missing", "own_models", "predict_rows"]

#: rows are held out in so many parts, each predicted by constants that were fitted to the others
FOLDS = 4

#: with fewer different counts of cores the serial share is taken from the models that Synergy measured
_CORE_COUNTS, _USUAL_SERIAL_SHARE = 4, 0.0358
_MOST_BYTES = 1e15
_GIVEN = "given with the measurements"
_MEMORY = ("fixed_memory_bytes", "sample_memory_bytes")
_BYTES_BY_GRADIENT = 4.0  # 16 bytes of weights, gradients and two optimiser moments per parameter over 4 sent
_MOST_FIXED_SHARE = 0.9  # of a GPU: what ran there also held samples
_RINGS = ("one GPU", "inside a server", "between servers", "all-reduce")


@dataclass(frozen=True)
class Constants:
    """What was fitted to rows.

    Attributes:
        rings: lines, overlap, networks and interconnects.
        sharing: {GPU type: sensitivity and pressure}.
    """

    rings: RingFit
    sharing: Mapping[str, Sharing]


@dataclass(frozen=True)
class OwnModel:
    """What becomes a profile."""

    name: str
    head: str
    task: str
    fields: Fields
    gpus: Mapping[str, Figure]
    sharing: Mapping[str, Mapping[float, tuple[float, float]]]


def fit_rows(rows: pd.DataFrame, gradient_bytes: Mapping[str, float]) -> Constants:
    """Every constant that these rows determine.

    Args:
        rows: a tidy table with networks and interconnects.
        gradient_bytes: {model: bytes of one all-reduce}.
    """
    part = parts_of(rows)
    rings = fit_rings(rows[part.isin(_RINGS)], gradient_bytes, RingFit(lines=_held_lines(rows)))
    pairs = rows[part == "sharing a GPU"]
    speeds = pairs.assign(speed=_alone(pairs, rings) / pairs.seconds)
    speeds = speeds[speeds.speed.notna()]
    sharing = {str(gpu_type): fit_sharing(one) for gpu_type, one in speeds.groupby("gpu_type")}
    return Constants(rings, sharing)


def _held_lines(rows: pd.DataFrame) -> Mapping[tuple[str, str], Line]:
    """Measured lines of profiles, for models and GPU types of which no row is on one GPU."""
    alone = rows[parts_of(rows) == "one GPU"]
    said = set(zip(alone.model, alone.gpu_type, strict=True))
    return {
        (model.name, kind): Line(figures.fixed_seconds, figures.sample_seconds)
        for model in catalogue()
        for kind, figures in model.gpus.items()
        if not figures.derived and (model.name, kind) not in said
    }


def _alone(rows: pd.DataFrame, rings: RingFit) -> NDArray[np.float64]:
    """[rows] seconds on one GPU alone; NaN where no line is known."""
    lines = [rings.lines.get(key) for key in zip(rows.model, rows.gpu_type, strict=True)]
    return np.array(
        [
            float("nan") if line is None else line.fixed + line.sample * batch
            for line, batch in zip(lines, rows.batch, strict=True)
        ]
    )


def predict_rows(rows: pd.DataFrame, constants: Constants, gradient_bytes: Mapping[str, float]) -> Any:
    """[rows] predicted seconds; NaN where the constants do not reach."""
    part = parts_of(rows)
    predicted = np.full(len(rows), np.nan)
    ring = part.isin(_RINGS).to_numpy()
    predicted[ring] = predict_rings(rows[ring], constants.rings, gradient_bytes)
    shared = (part == "sharing a GPU").to_numpy()
    predicted[shared] = _beside(rows[shared], constants)
    return predicted


def _beside(rows: pd.DataFrame, constants: Constants) -> NDArray[np.float64]:
    """[rows] seconds beside a neighbour on one GPU."""
    predicted = _alone(rows, constants.rings)
    own, other = (rows.model, rows.batch), (rows.neighbour, rows.neighbour_batch)
    keys = zip(rows.gpu_type, zip(*own, strict=True), zip(*other, strict=True), strict=True)
    for row, (gpu_type, mine, theirs) in enumerate(keys):
        fit = constants.sharing.get(gpu_type, {})
        known = mine in fit and theirs in fit
        predicted[row] *= 1.0 + fit[mine][0] * fit[theirs][1] if known else float("nan")
    return predicted


def held_out(rows: pd.DataFrame, gradient_bytes: Mapping[str, float], seed: int = 0) -> pd.DataFrame:
    """The rows with `predicted` by constants that have not seen them, and `error`.

    Rows that say the same (4+1+2 and 1+2+4 at one batch) are held out together.
    """
    texts = _situations(rows)
    distinct = sorted(set(texts))
    order = np.random.default_rng(seed).permutation(len(distinct))
    fold_of = {distinct[key]: position % FOLDS for position, key in enumerate(order)}
    fold = np.array([fold_of[text] for text in texts])
    predicted = np.full(len(rows), np.nan)
    for number in range(min(FOLDS, len(distinct))):
        here = fold == number
        if here.any() and not here.all():
            constants = fit_rows(rows[~here], gradient_bytes)
            predicted[here] = predict_rows(rows[here], constants, gradient_bytes)
    error = np.abs(predicted - rows.seconds.to_numpy()) / rows.seconds.to_numpy()
    return rows.assign(predicted=predicted, error=error)


def _situations(rows: pd.DataFrame) -> list[str]:
    """[rows] `measured.twins`, each batch of a job alone and each size of a transfer by itself."""
    alone = rows.neighbour == ""
    size = rows.batch.fillna(0.0) + rows.transfer_bytes.fillna(0.0)
    return [
        f"{situation} | {one:g}" if by_itself else str(situation)
        for situation, one, by_itself in zip(twins(rows), size, alone, strict=True)
    ]


def missing(rows: pd.DataFrame) -> list[str]:
    """What the rows cannot say, and what to measure for it; a line each."""
    part, said = parts_of(rows), []
    modelled = rows[rows.model != ""]
    for name, mine in modelled.groupby(modelled.model + " on " + modelled.gpu_type):
        parts = part[mine.index]
        alone = mine[parts == "one GPU"]
        if alone.empty:
            said.append(f"{name}: no row on one GPU; measure one batch there, better two")
        elif alone.batch.nunique() == 1:
            said.append(
                f"{name}: only batch {alone.batch.iloc[0]:g}: fixed and per-sample seconds cannot be told"
                " apart (all counted per sample); measure a second batch"
            )
        if not (parts == "sharing a GPU").any():
            said.append(f"{name}: no row beside a neighbour; measure a pair if jobs shall share GPUs")
    lacks = {
        (
            "inside a server",
            "between servers",
        ): "no row on several GPUs, so nothing says how transfers overlap; measure one server and two",
        ("restart",): "no restart; add restart_seconds on one GPU and on several",
        ("cores",): "no row with cores; measure 1, 2, 4 and 8 cores per GPU if CPU may be scarce",
    }
    for wanted, why in lacks.items():
        have = set(modelled.model[part[modelled.index].isin(wanted)])
        without = sorted(set(modelled.model) - have)
        if without:
            said.append(f"{', '.join(without)}: {why}")
    lacking = [
        name for name in sorted(set(modelled.model)) if any(value is None for value in _shipped_memory(name))
    ]
    if lacking:
        said.append(
            f"{', '.join(lacking)}: no GPU memory, so the largest batches are taken to fill their GPUs"
            " (sources say so); measure the bytes at two batches and write them into the profile"
        )
    return said


def _shipped_memory(name: str) -> list[float | None]:
    """Both figures of the profile of that name; [None] without one."""
    return [getattr(model, field) for model in catalogue() if model.name == name for field in _MEMORY] or [
        None
    ]


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


def gradient_bytes_of(rows: pd.DataFrame, given: Mapping[str, float]) -> Mapping[str, float]:
    """{model: bytes of one all-reduce}: given, else of the profile of that name.

    Raises:
        ConfigurationError: a model has neither, or bytes are given of a model that the rows do not name.
    """
    known: dict[str, float] = {model.name: model.gradient_bytes for model in catalogue()}
    models = sorted(set(rows.model) - {""})
    for name in sorted(set(given) - set(models)):
        raise ConfigurationError(
            f"--gradient-bytes names {name!r}, of which there is no row; expected one of {', '.join(models)}"
        )
    for name in models:
        if name not in known and name not in given:
            raise ConfigurationError(
                f"model {name} has no profile; give --gradient-bytes {name}=BYTES (4 x parameters in fp32)"
            )
    return {**known, **given}


def split_given(words: Sequence[str]) -> Mapping[str, float]:
    """{model: bytes} of NAME=BYTES.

    Raises:
        ConfigurationError: something else.
    """
    given: dict[str, float] = {}
    for word in words:
        name, equals, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not name or not equals or not 0 <= value <= _MOST_BYTES or name in given:
            raise ConfigurationError(
                f"--gradient-bytes is {word!r}; expected NAME=BYTES, such as mynet=102e6, once for each model"
            )
        given[name] = value
    return given
