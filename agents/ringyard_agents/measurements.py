"""Measurements of iteration times as a tidy table: a CSV file with a row for each measurement."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import yaml

from ringyard.checks import NumberRange, shown
from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.gpu_types import GPU_MEMORY_BYTES
from ringyard.workloads.cells import numbers
from ringyard.workloads.files import decoded, read_bytes, read_rows

_PLACEMENT = re.compile(r"\d{1,5}(\+\d{1,5})*")


@dataclass(frozen=True)
class Column:
    """One column of the table."""

    meaning: str  #: meaning and unit
    numbers: NumberRange | None = None  #: range of its numbers. None: text.
    required: bool = False  #: whether a file must have the column


_MOST_GPUS = 100_000

#: {column: description} of conf/measurements.yaml. A missing text is "", a missing number NaN
COLUMNS: Mapping[str, Column] = {
    name: Column(
        one["meaning"].format(gpu_types=", ".join(GPU_MEMORY_BYTES)),
        NumberRange(one["range"], one.get("whole", False)) if "range" in one else None,
        one.get("required", False),
    )
    for name, one in yaml.safe_load((config_folder() / "measurements.yaml").read_text()).items()
}

REQUIRED = tuple(name for name, column in COLUMNS.items() if column.required)

#: {other spelling: column}
_ALIASES = {"seconds_per_iteration": "seconds", "iteration_seconds": "seconds", "neighbor": "neighbour"}


def _normalised(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


_GPU_TYPES = {_normalised(name): name for name in GPU_MEMORY_BYTES}


def _column_name(name: object) -> str:
    stripped = str(name).strip()
    return _ALIASES.get(stripped, stripped)


@dataclass(frozen=True)
class Source:
    """Where rows come from, for errors."""

    where: str  #: name of the table
    names: Mapping[str, str]  #: {column: as the file writes it}
    lines: Sequence[int] | None  #: [rows] lines of the file. None: it is no file

    def refuse(self, name: str, values: "pd.Series[Any]", wrong: Any, expected: str) -> None:
        """Raise ConfigurationError for the first row of a column with `wrong` true."""
        for row in np.flatnonzero(wrong)[:1]:
            got = values.iloc[row]
            said = "empty" if got == "" or got != got else shown(got)
            place = f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"
            raise ConfigurationError(
                f"{self.where}: {place}: {self.names.get(name, name)} is {said}; expected {expected}"
            )


def _check_columns(names: Sequence[str], where: str) -> None:
    for name in REQUIRED:
        if name not in names:
            raise ConfigurationError(
                f"{where}: there is no column {name} ({COLUMNS[name].meaning})"
                f"; it has {', '.join(names) or 'nothing'}"
            )
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigurationError(f"{where}: column {doubled[0]} is there twice; expected it once")
    for name in set(names) - set(COLUMNS):
        for near in difflib.get_close_matches(name, COLUMNS, 1, 0.8):
            raise ConfigurationError(f"{where}: there is a column {name}; did you mean {near}?")


def _filled(frame: pd.DataFrame, source: Source) -> pd.DataFrame:
    """Return every column of the table, converted to text or numbers."""
    columns: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        given = frame[name] if name in frame else pd.Series("", frame.index, name=name)
        text = columns[name] = given.astype(object).fillna("").astype(str).str.strip()
        if column.numbers is not None:
            there = ~text.isin(("", "nan"))
            found = pd.Series(numbers(text.where(there, "")), frame.index)
            wrong = there & ~column.numbers.holds(found.fillna(-1.0))
            source.refuse(name, given, wrong, str(column.numbers))
            columns[name] = found
    return pd.DataFrame(columns)


def _check_rows(table: pd.DataFrame, source: Source) -> None:
    """Raise ConfigurationError for the first row that contradicts itself."""
    transfer, beside = table.transfer_bytes.notna(), table.neighbour != ""
    placed = table.neighbour_placement != ""
    form = table.placement.str.fullmatch(_PLACEMENT)
    neighbour_form = table.neighbour_placement.str.fullmatch(_PLACEMENT)
    gpus = {text: sum(map(int, text.split("+"))) for text in table.placement[form].unique()}
    workers = table.placement.map(gpus).fillna(0)
    zero = table.placement.str.split("+").map(lambda counts: any(not count.strip("0") for count in counts))
    lengths = table.placement.str.count(r"\+") != table.neighbour_placement.str.count(r"\+")
    none = table.neighbour_placement.str.fullmatch(r"0+(\+0+)*")
    joined = 'GPUs on each server joined by "+", such as 1, 8 or 4+4'
    rules: Sequence[tuple[str, Any, str]] = (
        ("model", (table.model == "") & ~transfer, "the name of a model"),
        ("model", (table.model != "") & transfer, "nothing in a row with transfer_bytes"),
        ("gpu_type", table.gpu_type == "", f"one of {', '.join(GPU_MEMORY_BYTES)}, or another type"),
        ("placement", ~form | zero, joined),
        ("placement", workers > _MOST_GPUS, f"at most {_MOST_GPUS:,} GPUs"),
        ("placement", transfer & (workers < 2), "two GPUs or more in a row with transfer_bytes"),
        ("batch", table.batch.isna() & ~transfer, "samples per GPU"),
        ("seconds", table.seconds.isna() & table.restart_seconds.isna(), "seconds per iteration"),
        ("neighbour_batch", beside & table.neighbour_batch.isna(), "the neighbour's samples per GPU"),
        ("neighbour", ~beside & (table.neighbour_batch.notna() | placed), "the neighbour's model"),
        ("neighbour_placement", placed & (~neighbour_form | lengths), "as many servers as placement has"),
        ("neighbour_placement", placed & none, "one GPU or more"),
    )
    for name, wrong, expected in rules:
        source.refuse(name, table[name], wrong, expected)


def tidy(frame: pd.DataFrame, where: str, lines: Sequence[int] | None = None) -> pd.DataFrame:
    """Check a table, add missing columns of `COLUMNS` and name GPU types as the simulator does.

    A row with seconds and restart_seconds becomes two, the restart after all rows of the file.
    """
    source = Source(where, {_column_name(name): str(name) for name in frame.columns}, lines)
    frame = frame.rename(columns=_column_name)
    _check_columns(list(frame.columns), where)
    if frame.empty:
        raise ConfigurationError(f"{where} holds no rows; expected one for each measurement")
    table = _filled(frame.reset_index(drop=True), source)
    table["gpu_type"] = table.gpu_type.map(lambda name: _GPU_TYPES.get(_normalised(name), name.lower()))
    _check_rows(table, source)
    both = table.seconds.notna() & table.restart_seconds.notna()
    alone = table.assign(restart_seconds=table.restart_seconds.mask(both))
    return pd.concat([alone, table[both].assign(seconds=np.nan)], ignore_index=True)


def read_measured_rows(file: Path) -> pd.DataFrame:
    """Read a tidy table in a format of `ringyard.workloads.files`.

    Raises:
        ConfigurationError: the file cannot be read, or `tidy` refuses it.
    """
    if not file.exists():
        raise ConfigurationError(f"there is no file {file}; give a CSV of measurements")
    try:
        rows = read_rows(file)
    except WorkloadError as error:  # without settings of traces
        said = re.sub(r" \([^()]*workload\.reader[^()]*\)$", "", str(error))
        raise ConfigurationError(f"{file}: {said}") from error
    return tidy(rows.frame, str(file), rows.numbers.tolist())


def _is_tidy(file: Path) -> bool:
    """Return whether the first line of a CSV names the columns of a tidy table."""
    try:
        first = decoded(read_bytes(file)).lstrip().partition("\n")[0]
    except WorkloadError:
        return False
    names = {_column_name(name.strip('"')) for name in first.split(",")}
    return names.issuperset(REQUIRED) and "predicted" not in names  # not a result of `ringyard validate`


def gpus_per_server(placement: str) -> tuple[int, ...]:
    """Return the GPUs on each server [servers] of a placement such as "4+4"."""
    return tuple(map(int, placement.split("+"))) if placement else ()


def measurement_kinds(table: pd.DataFrame) -> "pd.Series[Any]":
    """Return what each row measures, as text [rows].

    The kinds are "one GPU", "inside a server", "between servers", "sharing a GPU", "sharing links", "cores",
    "cores and memory", "restart", "all-reduce" and "parameter servers".
    """
    between = table.placement.str.contains("+", regex=False)
    several = table.placement != "1"
    choices = {
        "restart": table.seconds.isna(),
        "all-reduce": table.transfer_bytes.notna(),
        "parameter servers": table.parameter_servers.notna(),
        "sharing links": table.neighbour_placement != "",
        "sharing a GPU": table.neighbour != "",
        "cores and memory": table.ram_bytes.notna() | table.storage_bytes_per_second.notna(),
        "cores": table.cores.notna(),
        "between servers": between,
        "inside a server": several,
    }
    return pd.Series(np.select(list(choices.values()), list(choices), "one GPU"), index=table.index)


def situations(table: pd.DataFrame) -> "pd.Series[Any]":
    """Return the situation that each row measures, as text [rows].

    It is the same for placements that differ in order only (1+1+2+3, 1+1+3+2), for both jobs of a pair,
    and for all batches of an isolated job. Splits into fitted and held-out rows keep a situation together.
    """
    own = table.model + " " + table.batch.map("{:g}".format)
    other = table.neighbour + " " + table.neighbour_batch.map("{:g}".format)
    pairs = [" beside ".join(sorted(pair)) for pair in zip(own, other, strict=True)]
    jobs = table.model.mask(table.neighbour != "", pd.Series(pairs, index=table.index))
    own, other = (
        column.map(lambda place: "+".join(sorted(place.split("+"))))
        for column in (table.placement, table.neighbour_placement)
    )
    return table.gpu_type + " | " + jobs + " | " + own + " | " + other


def filled_columns(table: pd.DataFrame) -> list[str]:
    """Return the columns, in order, in which some row has a value."""
    return [name for name in COLUMNS if (table[name].notna() & (table[name].astype(str) != "")).any()]


@dataclass(frozen=True, kw_only=True)
class MeasuredSet:
    """Description of a measured set."""

    title: Annotated[str, "not empty"]  #: title of the set
    source: str  #: authors, machines and assumptions
    fitted: str = ""  #: shipped constants that were fitted to these rows. "": none.
    weak: str = ""  #: limits of the set
    overrides: Sequence[str] = ()  #: further Hydra overrides of the performance model


@dataclass(frozen=True)
class MeasuredRows:
    """A measured set with its rows."""

    name: str  #: name of the CSV, or of the published set
    about: MeasuredSet  #: description of the set
    rows: pd.DataFrame  #: [rows] its tidy table


def read_measured_sets(place: Path) -> list[MeasuredRows]:
    """Read one tidy CSV, or every tidy CSV of a folder: a set for each."""
    if place.is_file():
        files = {place.name: place}
    elif place.is_dir():
        found = sorted([*place.rglob("*.csv"), *place.rglob("*.csv.gz")])
        files = {str(file.relative_to(place)): file for file in found if _is_tidy(file)}
    else:
        raise ConfigurationError(f"there is no folder or file {place}; give the one that holds measurements")
    sets = []
    for path, file in files.items():
        name = path.partition(".csv")[0]
        about = MeasuredSet(title=name, source=f"{file.name}, a tidy table", fitted="unknown")
        sets.append(MeasuredRows(name, about, read_measured_rows(file)))
    return sets
