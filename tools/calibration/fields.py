"""Fields of shipped profiles: looked up, computed or cited, with their sources."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ringyard.errors import ConfigurationError
from ringyard.learning_curves import hyperbola
from ringyard_agents.calibration.fits import fit_restart_growth
from ringyard_agents.calibration.yamls import ProfileFields, six_digits_down
from tools.measured_sets.aiturbo import MORE_RESTARTS, RESTARTS
from tools.measured_sets.readers import MissingDataError

#: keys of a model in the recipe that are no fields
NO_FIELDS = ("title", "task", "names", "kind", "gpus", "sharing", "overlap_exponent", "as")


class _Tables:
    """CSV files of the data folder, each read once."""

    def __init__(self, data: Path, fitted: Mapping[str, Mapping[str, float]]) -> None:
        self.data, self.fitted = data, fitted
        self.read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self.read:
            file = self.data / name
            if not file.is_file():
                raise MissingDataError(f"{name} is not in {self.data}")
            self.read[name] = pd.read_csv(file)
        return self.read[name]


def fields_of(
    models: Mapping[str, Mapping[str, Any]],
    ways: Mapping[str, Mapping[str, Any]],
    data: Path,
    fitted: Mapping[str, Mapping[str, float]],
) -> Mapping[str, ProfileFields]:
    """{model: its fields}.

    Args:
        models: of the recipe.
        ways: of the recipe.
        data: folder of the published measurements.
        fitted: {model of a measured set: {field: value}}.

    Raises:
        ConfigurationError: a way that does not exist, or a row that is not in its table.
        MissingDataError: a table is not in the folder.
    """
    tables = _Tables(data, fitted)
    return {name: _Model(name, model, ways, tables).fields() for name, model in models.items()}


class _Model:
    def __init__(self, name: str, model: Mapping[str, Any], ways: Mapping[str, Any], tables: _Tables) -> None:
        self.name, self.model, self.ways, self.tables = name, model, ways, tables
        self.names: Mapping[str, str] = model.get("names", {})

    def fields(self) -> ProfileFields:
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for field, said in self.model.items():
            if field in NO_FIELDS:
                continue
            way = self._way(field, said)
            sources[field] = way["source"]
            value = self._value(field, way, values)
            if value is not None:
                values[field] = value
        return ProfileFields(values, sources)

    def _way(self, field: str, said: Any) -> Mapping[str, Any]:
        known = self.ways.get(field, {})
        if isinstance(said, int | float):
            said = {"way": "number", "value": said}
        if isinstance(said, str):
            said = {"way": said}
        if "way" in said and said["way"] not in known:
            raise ConfigurationError(
                f"calibration: models.{self.name}.{field} names {said['way']!r}; expected one of"
                f" {', '.join(known) or 'none'}, or a value with its source"
            )
        way = {**known.get(said.get("way"), {}), **said}
        if "source" not in way:
            raise ConfigurationError(f"calibration: models.{self.name}.{field} has no source; add one")
        return way

    def _value(self, field: str, way: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        if "value" in way:
            return way["value"]
        if "by_batch" in way:
            return self._kernel_share(way)
        if "table" in way:
            return self._looked_up(field, way)
        if "field" in way:
            return _six_digits(values[way["field"]] * way["times"], exact=True)
        if "filled_bytes" in way:
            return self._sample_memory(field, way, values)
        if "curve" in way:
            return self._curve()[way["curve"]]
        if "restarts" in way:
            return self._restarts()[way["restarts"]]
        if "fitted" in way:
            return self.tables.fitted[self.names[way["fitted"]]][field]
        return None

    def _restarts(self) -> Mapping[str, float]:
        first, *more = (RESTARTS | MORE_RESTARTS)[self.names["aiturbo"]]
        growth = fit_restart_growth(range(2, 2 + len(more)), more, first)
        return {"first": float(first), "growth": float(f"{growth:.4g}")}

    def _looked_up(self, field: str, way: Mapping[str, Any]) -> float:
        table = self.tables[way["table"]]
        wanted = {column: self._cell(field, cell) for column, cell in way["row"].items()}
        rows = table[np.logical_and.reduce([table[column] == cell for column, cell in wanted.items()])]
        if len(rows) != 1:
            raise ConfigurationError(
                f"calibration: models.{self.name}.{field} looks for {wanted} in {way['table']} and finds"
                f" {len(rows)} rows; expected one"
            )
        return _six_digits(float(rows.iloc[0][way["column"]]) * way.get("times", 1), exact=True)

    def _kernel_share(self, way: Mapping[str, Any]) -> Mapping[str, Mapping[float, float]]:
        """{GPU type: {samples per GPU: share of the time with kernels}} of a model of another collection."""
        table = self.tables[way["table"]]
        rows = table[np.logical_and.reduce([table[column] == cell for column, cell in way["row"].items()])]
        if rows.empty:
            raise ConfigurationError(f"calibration: {way['table']} has no row with {way['row']}")
        shares = zip(rows[way["by_batch"]], rows[way["column"]] * way["times"], strict=True)
        return {way["gpu_type"]: {batch: _six_digits(share, exact=True) for batch, share in shares}}

    def _cell(self, field: str, cell: str) -> str:
        """The text after "=", or what the model is called in that collection."""
        if cell.startswith("="):
            return cell[1:]
        if cell not in self.names:
            raise ConfigurationError(
                f"calibration: models.{self.name}.{field} needs names.{cell}; add what the table calls it"
            )
        return self.names[cell]

    def _sample_memory(self, field: str, way: Mapping[str, Any], values: Mapping[str, Any]) -> float:
        batch = way["batch"]
        samples = self._looked_up(field, batch) if isinstance(batch, Mapping) else batch
        return six_digits_down((way["filled_bytes"] - values["fixed_memory_bytes"]) / samples)

    def _curve(self) -> Mapping[str, float]:
        """The hyperbola of the validation run with the smallest batch."""
        folder = self.tables.data / "pollux/profiles" / self.names["pollux"]
        runs = {int(file.stem.partition("-")[2]): file for file in folder.glob("validation-*.csv")}
        if not runs:
            raise MissingDataError(f"no validation runs are in {folder}")
        run = pd.read_csv(runs[min(runs)])
        done = (run.progress / run.progress.iloc[-1]).to_numpy()
        measured, end = run.metric.to_numpy(), float(run.metric.iloc[-1])

        def residuals(found: Sequence[float]) -> Any:
            half, start = found
            return hyperbola(done, np.array(start), np.array(end), np.array(half)) - measured

        half, start = least_squares(residuals, [0.2, measured[0]]).x
        figures = {"final_metric": end, "metric_half": half, "metric_start": start}
        return {name: _six_digits(float(value)) for name, value in figures.items()}


def _six_digits(value: float, exact: bool = False) -> float:
    """The value with six significant digits; whole numbers stay, and so do exact ones up to ten digits."""
    return float(f"{value:.10g}" if exact else f"{value:.6g}")
