"""All shipped constants, fitted to the folder of published measurements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from ringyard.errors import ConfigurationError
from ringyard.gpu_types import CPU_CORES, GPU_MEMORY_BYTES
from ringyard_agents.calibration.fits import (
    LEAST_FIXED_SECONDS,
    ComputeLine,
    ComputeTime,
    GpuFactor,
    Sharing,
    core_curves,
    derive_compute_times,
    fit_gpu_factor,
    fit_line,
    fit_sharing,
)
from ringyard_agents.calibration.rings import FittedConstants, fit_rings
from ringyard_agents.calibration.yamls import (
    CalibratedModel,
    ProfileFields,
    fabric_yaml,
    four_digits,
    profile_yaml,
)
from tools.calibration.fields import fields_of
from tools.calibration.storage import dataset
from tools.config_files import TOOLS_CONF
from tools.measured_sets.sets import rows_of

#: how the header of each file says that it is written
COMMAND = "python -m tools.calibrate FOLDER --out conf"

_Recipe = Mapping[str, Any]


@dataclass(frozen=True)
class Shipped:
    """All figures that ship.

    Attributes:
        fields: {model: everything but its figures by GPU type}.
        gpus: {model: {GPU type: figure}}.
        sharing: {model: {GPU type: {samples per GPU: (sensitivity, pressure)}}}.
        rings: networks, interconnects and overlap.
        factors: {GPU type: {kind of model: factor}} of derived types.
    """

    fields: Mapping[str, ProfileFields]
    gpus: Mapping[str, Mapping[str, ComputeTime]]
    sharing: Mapping[str, Mapping[str, Mapping[float, tuple[float, float]]]]
    rings: FittedConstants
    factors: Mapping[str, Mapping[str, GpuFactor]]


def read_recipe() -> _Recipe:
    """`tools/conf/calibration/shipped.yaml`."""
    text = (TOOLS_CONF / "calibration" / "shipped.yaml").read_text()
    recipe: _Recipe = yaml.safe_load(text)
    return recipe


def calibrate_shipped(data: Path) -> Shipped:
    """Fit, look up and derive every figure.

    Args:
        data: folder of the published measurements.

    Raises:
        MissingDataError: a file of it is not there.
        ConfigurationError: the recipe names what does not exist.
    """
    recipe = read_recipe()
    models = recipe["models"]
    rows = _Sets(data)
    fields = fields_of(models, recipe["ways"], data, _pipelines(recipe["pipelines"], rows))
    supplies = _Supplies(recipe, fields, rows)
    rings = supplies.fit_all_rings()
    kinds = {name: model.get("kind", "") for name, model in models.items()}
    measured = _with_fixed_parts(recipe, supplies, kinds)
    factors = _factors(recipe, supplies)
    types = ["v100", *(one for one in GPU_MEMORY_BYTES if one in recipe["types"])]
    gpus = {
        name: dict(derive_compute_times(measured[name], kinds[name], recipe["types"], factors, types))
        | {kind: figure for kind, figure in measured[name].items() if kind not in types}
        for name in models
    }
    for name, model in models.items():
        for gpu_type, other in model.get("as", {}).items():
            gpus[name][gpu_type] = ComputeTime(
                gpus[other][gpu_type].line, f"derived: no tensor cores, as {other}"
            )
    pairs = _pair_fits(recipe["sharing"], rows)
    for name, model in models.items():
        for gpu_type, figure in gpus[name].items():
            said = figure.source + _sharing_source(recipe, name, model, gpu_type, pairs)
            gpus[name][gpu_type] = ComputeTime(figure.line, said)
    return Shipped(
        _with_overlap(recipe, fields, rings), gpus, _sharing(recipe, fields, pairs, types), rings, factors
    )


def texts_of(shipped: Shipped) -> Mapping[str, str]:
    """{path under conf: text} of every profile, network and interconnect."""
    recipe, texts = read_recipe(), {}
    for name, model in recipe["models"].items():
        calibrated = CalibratedModel(
            name,
            model["title"],
            model.get("task", ""),
            shipped.fields[name],
            shipped.gpus[name],
            shipped.sharing[name],
        )
        texts[f"profiles/{name}.yaml"] = profile_yaml(calibrated, COMMAND)
    for group, fits in (("network", shipped.rings.networks), ("interconnect", shipped.rings.interconnects)):
        for name, about in recipe[f"{group}s"].items():
            said = {key: value for key, value in about.items() if key not in ("rings", "head")}
            texts[f"{group}/{name}.yaml"] = fabric_yaml(about["head"], replace(fits[name], **said), COMMAND)
    return texts


def _pipelines(about: Mapping[str, Any], rows: "_Sets") -> Mapping[str, Mapping[str, float]]:
    """{model of the set: {field: value}} of cores and storage."""
    table = rows([about["set"]])
    fitted = {}
    for name, curve in core_curves(table).items():
        rate, share = four_digits(curve.samples_per_core_second), four_digits(curve.loading_serial_share)
        fitted[name] = {"samples_per_core_second": rate, "loading_serial_share": share}
    for name, wanted in about["datasets"].items():
        sample_bytes, dataset_bytes = dataset(table, name, **wanted)
        fitted[name] |= {
            "sample_bytes": four_digits(sample_bytes),
            "dataset_bytes": four_digits(dataset_bytes),
        }
    return fitted


class _Sets:
    """Rows of measured sets, each read once."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.read: dict[str, pd.DataFrame] = {}

    def __call__(self, names: Sequence[str]) -> pd.DataFrame:
        for name in names:
            if name not in self.read:
                self.read[name] = rows_of(name, self.data).rows
        return pd.concat([self.read[name] for name in names], ignore_index=True)


def _where(rows: pd.DataFrame, conditions: Mapping[str, Any]) -> pd.DataFrame:
    """Rows whose columns hold these values; "max": the largest of each model."""
    for column, wanted in conditions.items():
        largest = rows.groupby("model")[column].transform("max") if wanted == "max" else wanted
        rows = rows[rows[column] == largest]
    return rows


class _Supplies:
    """Measured lines: from the rows of sets, from joint fits, or cited."""

    def __init__(self, recipe: _Recipe, fields: Mapping[str, ProfileFields], rows: _Sets) -> None:
        self.recipe, self.fields, self.rows = recipe, fields, rows
        self.rings: dict[str, FittedConstants] = {}

    def fit_all_rings(self) -> FittedConstants:
        """Every joint fit of the recipe; exponents found by one are held in the next."""
        gradient_bytes = {name: one.values["gradient_bytes"] for name, one in self.fields.items()}
        everything = FittedConstants()
        parts = [field.name for field in fields(FittedConstants)]
        for name, fit in self.recipe["rings"].items():
            rows = _where(self.rows(fit["sets"]), fit.get("where", {}))
            alone = rows[(rows.neighbour == "") & rows.seconds.notna()]
            exponents = {**everything.exponents, **fit.get("exponents", {})}
            held = FittedConstants(lines=self._held_lines(alone), exponents=exponents)
            self.rings[name] = fit_rings(alone, gradient_bytes, held)
            found = self.rings[name]
            everything = FittedConstants(
                *({**getattr(everything, part), **getattr(found, part)} for part in parts)
            )
        return everything

    def _held_lines(self, rows: pd.DataFrame) -> Mapping[tuple[str, str], ComputeLine]:
        """Lines of the models and types of these rows that other rows supply."""
        lines = {}
        for model, gpu_type in set(zip(rows.model, rows.gpu_type, strict=True)):
            said = self.recipe["models"].get(model, {}).get("gpus", {}).get(gpu_type)
            supply = self.recipe["supplies"].get(
                said if isinstance(said, str) else (said or {}).get("supply")
            )
            if supply is not None and "rings" not in supply:
                lines[model, gpu_type] = self._figure(model, gpu_type, said).line
        return lines

    def figures(self, model: str) -> Mapping[str, ComputeTime]:
        """{GPU type: measured or cited figure} of a model."""
        said = self.recipe["models"][model]["gpus"]
        return {gpu_type: self._figure(model, gpu_type, how) for gpu_type, how in said.items()}

    def _figure(self, model: str, gpu_type: str, how: Any) -> ComputeTime:
        if isinstance(how, str):
            how = {"supply": how}
        if "like" in how:
            other = self._figure(how["like"], gpu_type, self.recipe["models"][how["like"]]["gpus"][gpu_type])
            return ComputeTime(other.line, other.source + _why(how), other.batch)
        if "of" in how:
            said = self.recipe["models"][model]["gpus"][how["of"]]
            fixed, sample = self._figure(model, how["of"], said).line
            times = how["samples_per_second_there"] / how["samples_per_second"]
            source = f"derived: {how['of']}, per sample x {times:.3g}; {how['source']}"
            return ComputeTime(ComputeLine(fixed, sample * times), source)
        if "coefficients" in how:
            theta = self.fields[model].values[how["coefficients"]]
            return ComputeTime(ComputeLine(theta[1], theta[0]), how["source"])
        if "seconds" in how:
            return _one_batch(float(how["batch"]), float(how["seconds"]), how["source"])
        if "fixed_seconds" in how:
            return ComputeTime(ComputeLine(how["fixed_seconds"], how["sample_seconds"]), how["source"])
        return self._supplied(model, gpu_type, how)

    def lines(self, names: Sequence[str], gpu_type: str) -> Mapping[str, ComputeLine]:
        """{model: line on a GPU type} that these supplies measured, by the first of them."""
        lines: dict[str, ComputeLine] = {}
        for name in names:
            supply = self.recipe["supplies"][name]
            if "rings" in supply:
                fit = self.rings[supply["rings"]].lines
                found = {model: line for (model, kind), line in fit.items() if kind == gpu_type}
            elif "cited" in supply:
                cited = self.recipe["cited"][supply["cited"]]
                found = {one: _line(types[gpu_type]) for one, types in cited.items() if gpu_type in types}
            else:
                rows = self._rows_of(supply)
                rows = rows[rows.gpu_type == gpu_type]
                found = {str(one): _fitted(mine, supply) for one, mine in rows.groupby("model")}
            lines = {**found, **lines}
        return lines

    def _rows_of(self, supply: Mapping[str, Any]) -> pd.DataFrame:
        return _where(self.rows(supply["sets"]), supply.get("where", {}))

    def _supplied(self, model: str, gpu_type: str, how: Mapping[str, Any]) -> ComputeTime:
        supply = self.recipe["supplies"][how["supply"]]
        if "rings" in supply:
            line = self.rings[supply["rings"]].lines[model, gpu_type]
            return ComputeTime(line, supply["title"] + _why(how))
        if "cited" in supply:
            line = _line(self.recipe["cited"][supply["cited"]][model][gpu_type])
            return ComputeTime(line, supply["title"] + _why(how))
        rows = self._rows_of(supply)
        rows = rows[(rows.model == model) & (rows.gpu_type == gpu_type)]
        for column, value in how.get("without", {}).items():
            rows = rows[rows[column] != value]
        if rows.empty:
            raise ConfigurationError(
                f"calibration: models.{model}.gpus.{gpu_type} names {how['supply']!r}, which has no such rows"
            )
        source = f"{supply['title']}{_batches(rows, supply)}{_why(how)}"
        if not supply.get("fixed") and (supply.get("per_sample") or rows.batch.nunique() == 1):
            batch = float(np.exp(np.log(rows.batch).mean()))
            return _one_batch(batch, float(np.exp(np.log(rows.seconds / rows.batch).mean())) * batch, source)
        return ComputeTime(_fitted(rows, supply), source)


def _why(how: Mapping[str, Any]) -> str:
    return f"; {how['why']}" if "why" in how else ""


def _line(pair: Sequence[float]) -> ComputeLine:
    return ComputeLine(float(pair[0]), float(pair[1]))


def _fitted(rows: pd.DataFrame, supply: Mapping[str, Any]) -> ComputeLine:
    """The line of the rows of one model on one GPU type."""
    batch, seconds = rows.batch.to_numpy(), rows.seconds.to_numpy()
    if supply.get("fixed"):
        return ComputeLine(float(np.exp(np.log(seconds).mean())), 0.0)
    if supply.get("per_sample"):
        return ComputeLine(LEAST_FIXED_SECONDS, float(np.exp(np.log(seconds / batch).mean())))
    return fit_line(batch, seconds)


def _one_batch(batch: float, seconds: float, source: str) -> ComputeTime:
    return ComputeTime(fit_line(np.array([batch]), np.array([seconds])), source, batch)


def _batches(rows: pd.DataFrame, supply: Mapping[str, Any]) -> str:
    count = rows.batch.nunique()
    if supply.get("fixed") or supply.get("per_sample"):
        return ""
    return f", {count} batches" if count > 1 else f", batch {rows.batch.iloc[0]:g}"


def _with_fixed_parts(
    recipe: _Recipe, supplies: _Supplies, kinds: Mapping[str, str]
) -> Mapping[str, Mapping[str, ComputeTime]]:
    """{model: {GPU type: measured figure}}; where one batch was measured, with the fixed part of its kind."""
    rule = recipe["fixed_parts"]
    by_kind: dict[str, list[float]] = {}
    for name, line in supplies.lines(rule["by"], rule["gpu_type"]).items():
        if line.fixed > LEAST_FIXED_SECONDS and line.sample > 0 and name not in recipe["ratios_without"]:
            by_kind.setdefault(kinds[name], []).append(line.fixed)
    result = {}
    for name in recipe["models"]:
        result[name] = supplies.figures(name)
        if kinds[name] in by_kind:
            logs = np.log(by_kind[kinds[name]])
            fixed = float(np.exp(logs.mean()))
            said = (
                f"{fixed * 1e3:.3g} ms, mean of {len(logs)} {kinds[name]} models, {rule['most']:.0%} at most"
            )
            result[name] = {
                kind: _with_fixed_part(figure, fixed, rule["most"], said)
                for kind, figure in result[name].items()
            }
    return result


def _with_fixed_part(figure: ComputeTime, fixed_seconds: float, most: float, said: str) -> ComputeTime:
    """The figure with a fixed part taken from others, if its own cannot be told; its seconds stay.

    Args:
        figure: measured.
        fixed_seconds: of others.
        most: share of the figure's seconds that may be fixed.
        said: whose.
    """
    if figure.batch is None:
        return figure
    total = float(figure.line.seconds(np.array([figure.batch]))[0])
    fixed = min(fixed_seconds, most * total)
    line = ComputeLine(fixed, (total - fixed) / figure.batch)
    return ComputeTime(line, f"{figure.source}; fixed part derived: {said}", figure.batch)


def _factors(recipe: _Recipe, supplies: _Supplies) -> Mapping[str, Mapping[str, GpuFactor]]:
    """{GPU type: {kind: factor to the type it comes from}}."""
    kinds = {name: model.get("kind", "") for name, model in recipe["models"].items()}
    result = {}
    for gpu_type, chain in recipe["types"].items():
        here, there = (supplies.lines(chain["by"], one) for one in (gpu_type, chain["from"]))
        both = [name for name in here if name in there and name not in recipe["ratios_without"]]
        result[gpu_type] = fit_gpu_factors({name: _ratio(here[name], there[name]) for name in both}, kinds)
    return result


def fit_gpu_factors(ratios: Mapping[str, float], kinds: Mapping[str, str]) -> Mapping[str, GpuFactor]:
    """Return {kind (of two models or more): factor between two GPU types}, and that of all under ""."""
    factors = {"": fit_gpu_factor(ratios)}
    for kind in sorted({kinds.get(model, "") for model in ratios} - {""}):
        mine = {model: ratio for model, ratio in ratios.items() if kinds.get(model) == kind}
        if len(mine) > 1:
            factors[kind] = fit_gpu_factor(mine, kind)
    return factors


def _ratio(here: ComputeLine, there: ComputeLine) -> float:
    """Of seconds per sample; of fixed seconds where there are no others."""
    return here.sample / there.sample if here.sample > 0 and there.sample > 0 else here.fixed / there.fixed


def _with_overlap(
    recipe: _Recipe, fields: Mapping[str, ProfileFields], rings: FittedConstants
) -> Mapping[str, ProfileFields]:
    """Fields with `overlap_exponent`: fitted, that of another model, or the mean of the fitted ones."""
    free = [value for value in rings.exponents.values() if value > 1.0]
    mean = float(np.exp(np.log(free).mean()))
    result = {}
    for name, one in fields.items():
        said = recipe["models"][name].get("overlap_exponent", "")
        if said == "none" or not one.values["gradient_bytes"]:
            result[name] = one
            continue
        if name in rings.exponents:
            value, source = rings.exponents[name], "joint fit with the network; 1 by construction if it is 1"
        elif said:
            value, source = rings.exponents[said], f"that of {said}"
        else:
            value, source = mean, recipe["overlap_of_others"]
        values = {**one.values, "overlap_exponent": four_digits(value)}
        result[name] = ProfileFields(values, {**one.sources, "overlap_exponent": source})
    return result


def _sharing(
    recipe: _Recipe, fields: Mapping[str, ProfileFields], fits: Mapping[str, Sharing], types: Sequence[str]
) -> Mapping[str, Mapping[str, Mapping[float, tuple[float, float]]]]:
    """{model: {GPU type: {batch: (sensitivity, pressure)}}}."""
    result: dict[str, dict[str, Mapping[float, tuple[float, float]]]] = {}
    for name, model in recipe["models"].items():
        result[name] = {}
        if model.get("sharing") == "none":
            continue
        base = float(fields[name].values["batch_size"])
        like = model.get("sharing", name)
        for gpu_type in types:
            fit = fits.get(gpu_type, fits[recipe["sharing"]["others"]])
            mine = {batch: pair for (one, batch), pair in fit.items() if one == like}
            result[name][gpu_type] = mine or {base: _mean_pair(fit, fields)}
    return result


def _sharing_source(
    recipe: _Recipe, name: str, model: Mapping[str, Any], gpu_type: str, fits: Mapping[str, Sharing]
) -> str:
    """What the source of a model's figures on a GPU type says of sharing."""
    like = model.get("sharing", name)
    if like == "none" or gpu_type in CPU_CORES:
        return ""
    measured = gpu_type if gpu_type in fits else recipe["sharing"]["others"]
    of_model = any(one == like for one, _ in fits[measured])
    whose = f"assumed: that of {like}, " if like != name else ""
    said = whose if of_model else "assumed: geometric mean of the measured models, "
    pairs = f"Gavel's {measured} pairs" if measured == gpu_type else f"as on {measured}"
    return f"; sharing: {said}{pairs}"


def _pair_fits(about: Mapping[str, str], rows: _Sets) -> Mapping[str, Sharing]:
    """{GPU type: rank-one fit of its pairs}."""
    pairs, alone = rows([about["set"]]), rows([about["alone"]])
    seconds = alone.groupby(["gpu_type", "model", "batch"]).seconds.mean()
    keys = pd.MultiIndex.from_frame(pairs[["gpu_type", "model", "batch"]])
    pairs = pairs.assign(speed=seconds.reindex(keys).to_numpy() / pairs.seconds.to_numpy())
    return {str(gpu_type): fit_sharing(one) for gpu_type, one in pairs.groupby("gpu_type")}


def _mean_pair(fit: Sharing, fields: Mapping[str, ProfileFields]) -> tuple[float, float]:
    """Geometric means over the models of a fit, each at its measured batch nearest the profile's."""
    nearest = {}
    for model in sorted({model for model, _ in fit}):
        base = np.log(fields[model].values["batch_size"])
        batches = [batch for one, batch in fit if one == model]
        nearest[model] = fit[model, min(batches, key=lambda batch: abs(np.log(batch) - base))]
    logs = np.log(np.array(list(nearest.values()))).mean(axis=0)
    return float(np.exp(logs[0])), float(np.exp(logs[1]))
