"""Job data on disk as a table of rows, and conditions that select rows (`where`).

Errors name the file, the row and the column.
"""

import csv
import gzip
import io
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import require, shown
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.jobs import MAX_TEXT_LENGTH

_ARCHIVES = {b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstandard"}

#: texts that files use for missing values
_MISSING = ("", "nan", "NaN", "NA", "<NA>", "N/A", "n/a", "#N/A", "NULL", "null", "None")


@contextmanager
def name_file_in_errors(path: str | Path) -> Iterator[None]:
    """Context in which errors about job data begin with the `path` of the file."""
    try:
        yield
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from error


def read_text(path: str | Path) -> str:
    """Return the text of a file, unpacked if it is gzip, whatever its name.

    Raises:
        WorkloadError: no such file, it cannot be read, or it is another archive or no UTF-8 text.
    """
    try:
        data = Path(path).expanduser().read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except FileNotFoundError as error:
        raise WorkloadError(
            "there is no such trace file; see `ringyard traces` for where to get one"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"is cut short or no gzip file ({error}); get it anew") from error
    except (OSError, RuntimeError, ValueError) as error:  # a folder, no permission, no such user, odd names
        raise WorkloadError(f"cannot be read: {error}") from error
    for magic, name in _ARCHIVES.items():
        if data.startswith(magic):
            raise WorkloadError(f"is a {name} archive; expected text or gzip: unpack it first")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        raise WorkloadError(f"is no UTF-8 text (line {row}: {error.reason}); save it as UTF-8") from error
    if "\0" in text:
        row = text[: text.index("\0")].count("\n") + 1
        raise WorkloadError(f"is no text: line {row} has a zero byte; expected a text file")
    return text


def read_rows(path: str | Path, as_text: Sequence[str | None] = ()) -> pd.DataFrame:
    """Return the rows of a CSV file, at least one.

    Args:
        path: the file.
        as_text: columns that may be there and are kept as written ("0007", "7f04ca", "6214e9").

    Raises:
        WorkloadError: no readable CSV file, no rows, or two columns of one name.
    """
    text = read_text(path)
    try:
        lines = csv.reader(io.StringIO(text), skipinitialspace=True)
        header = next((line for line in lines if any(map(str.strip, line))), [])
        names = [name.strip() for name in header]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise WorkloadError(f"has column {shown(twice[0])} twice; expected columns of different names")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                io.StringIO(text),
                low_memory=False,
                index_col=False,
                skipinitialspace=True,
                dtype={name: str for name in header if name.strip() in as_text},
                keep_default_na=False,
                na_values={name: _MISSING for name in header if name.strip() not in as_text},
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning, pd.errors.EmptyDataError, csv.Error) as error:
        raise WorkloadError(f"is not a readable CSV file: {error}") from error
    if len(frame) == 0:
        raise WorkloadError("has no rows; expected a job a row below the header")
    return frame.rename(columns=lambda name: str(name).strip())


def numeric_column(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """[rows] numbers of column `name` of the `frame`, NaN where there is none. The column must exist."""
    if name not in frame.columns:
        raise WorkloadError(
            f"has no column {name!r}; it has {shown(list(frame.columns))}"
            " (workload.reader.* names other columns)"
        )
    values = frame[name]
    if values.dtype == bool:
        return np.full(len(frame), np.nan)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def finite_column(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """[rows] finite numbers of column `name` of the `frame`. A WorkloadError names the first row without."""
    values = numeric_column(frame, name)
    reject_rows(frame, name, ~np.isfinite(values), "a finite number")
    return values


def reject_rows(frame: pd.DataFrame, name: str, bad: NDArray[np.bool_], expected: str) -> None:
    """Raise a WorkloadError for the first bad row of a column, if there is one.

    Args:
        frame: rows. Its index is that of the file.
        name: column.
        bad: [rows] whether the value is bad.
        expected: what the message says was expected.
    """
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        value = shown(frame[name].iloc[row])
        raise WorkloadError(f"row {frame.index[row] + 1}: {name} is {value}; expected {expected}")


def date_column(frame: pd.DataFrame, name: str) -> tuple[NDArray[np.float64], pd.Timestamp]:
    """Read dates (ISO 8601) of column `name` of the `frame`.

    Returns:
        [rows] seconds since the first date, NaN where there is no date, and that date.
    """
    if pd.api.types.is_numeric_dtype(frame[name]):
        reject_rows(frame, name, np.ones(len(frame), np.bool_), "a date such as 2020-04-01 00:00:00")
    found = pd.to_datetime(frame[name].astype(str), errors="coerce", utc=True, format="ISO8601")
    micros = found.dt.as_unit("us").astype(np.int64).to_numpy()
    there = found.notna().to_numpy()
    first = int(micros[there].min()) if there.any() else 0
    seconds = np.where(there, (micros - np.where(there, first, micros)) / 1e6, np.nan)
    return seconds, pd.Timestamp(first, unit="us", tz="UTC")


def text_column(frame: pd.DataFrame, name: str) -> "pd.Series[str]":
    """[rows] texts of column `name` of the `frame` as written. "" where there is none, or no such column."""
    if name not in frame.columns:
        return pd.Series("", index=frame.index)
    written = _as_text(frame, name).str.strip()
    return written.mask(written.isin(_MISSING), "")


def name_column(frame: pd.DataFrame, name: str) -> NDArray[np.str_]:
    """[rows] `text_column` (`frame`, `name`) as an array. A WorkloadError if a text is too long."""
    return _text_array(frame, name, text_column(frame, name))


def id_column(frame: pd.DataFrame, name: str | None) -> NDArray[np.int64] | NDArray[np.str_]:
    """[rows] ids of column `name` of the `frame`: integers if all are, else texts as written.

    Without a name or such a column, they are row numbers.

    Raises:
        WorkloadError: a row without an id.
    """
    if name is None or name not in frame.columns:
        return frame.index.to_numpy(dtype=np.int64)
    written = _as_text(frame, name)
    reject_rows(frame, name, (written.str.strip() == "").to_numpy(), "an id for each job")
    found = _text_array(frame, name, written)
    try:
        whole = found.astype(np.int64)
    except (ValueError, OverflowError):
        return found
    return whole if (whole.astype(np.str_) == found).all() else found


def _as_text(frame: pd.DataFrame, name: str) -> "pd.Series[str]":
    """[rows] a column as written, "" where a row is too short for it."""
    values = frame[name].astype(object)
    return values.where(values.notna(), "").astype(str)


def _text_array(frame: pd.DataFrame, name: str, written: "pd.Series[str]") -> NDArray[np.str_]:
    reject_rows(
        frame, name, (written.str.len() > MAX_TEXT_LENGTH).to_numpy(), f"at most {MAX_TEXT_LENGTH} characters"
    )
    return written.to_numpy().astype(np.str_)


#: {"cluster", "vc", "user" or a column of the file: one value or several; "submit_s": [from, to]}
Where = Mapping[str, Any]

_Values = str | float | Annotated[Sequence[str | float], "not empty"]
_Window = tuple[str | float | None, str | float | None]

_SETTING = "workload.reader.where"
_MOST_SHOWN = 8  # values in an error
_MOST_COLUMNS = 50


class SubmissionTimes:
    """Submission times of the rows of a file.

    Args:
        frame: all rows.
        name: column of the times.
        dated: the column holds dates, not seconds.
    """

    def __init__(self, frame: pd.DataFrame, name: str, dated: bool) -> None:
        self.dated = dated
        if dated:
            self.seconds, self._first = date_column(frame, name)
        else:
            self.seconds = numeric_column(frame, name)

    def end(self, value: str | float | None, otherwise: float) -> float:
        """Return an end of a window in seconds.

        Args:
            value: seconds, a date, or None for an open end.
            otherwise: seconds of an open end.

        Raises:
            ConfigurationError: a text that is no date, or a date where the file has seconds.
        """
        if not isinstance(value, str):
            return otherwise if value is None else float(value)
        if not self.dated:
            raise ConfigurationError(
                f"{_SETTING}.submit_s is {value!r}; expected seconds: this file has no dates"
            )
        date = pd.to_datetime(value, format="ISO8601", utc=True, errors="coerce")
        if not isinstance(date, pd.Timestamp):
            raise ConfigurationError(
                f"{_SETTING}.submit_s is {value!r}; expected seconds, or a date such as 2020-04-01"
            )
        return float((date - self._first).total_seconds())


def select_rows(
    frame: pd.DataFrame, where: Where | None, columns: Mapping[str, str], times: SubmissionTimes
) -> tuple[pd.DataFrame, str]:
    """Select the rows that meet every condition.

    Args:
        frame: all rows.
        where: {column: condition}. Conditions that are None are ignored.
        columns: {"cluster", "vc", "user": column of this file}.
        times: submission times of all rows.

    Returns:
        The rows, and a text that says how many were kept, "" without conditions.

    Raises:
        ConfigurationError: a condition of the wrong kind.
        WorkloadError: no such column or value, or no row meets all conditions.
    """
    conditions = {key: value for key, value in (where or {}).items() if value is not None}
    if not conditions:
        return frame, ""
    met, texts = {}, []
    for key, value in conditions.items():
        if key == "submit_s":
            met[key], text = _in_window(times, value)
        else:
            met[key], text = _has_value(frame, key, columns.get(key, key), value)
        texts.append(f"{key}={text}")
    keep = np.logical_and.reduce(list(met.values()))
    summary = ", ".join(texts)
    if not keep.any():
        alone = ", ".join(f"{key} {mask.sum():,}" for key, mask in met.items())
        spans = ""
        if np.isfinite(times.seconds).any():
            spans = f"; submit_s goes from {np.nanmin(times.seconds):.0f} to {np.nanmax(times.seconds):.0f}"
        raise WorkloadError(
            f"no row meets where {summary} (rows that meet each alone: {alone}{spans}); expected one or more"
        )
    return frame[keep], f"where {summary} keeps {keep.sum():,} of {len(frame):,} rows"


def _in_window(times: SubmissionTimes, window: Any) -> tuple[NDArray[np.bool_], str]:
    """([rows] whether submitted in the `window`, its end not included, and the window as text)."""
    require(f"{_SETTING}.submit_s", window, _Window)
    low, high = times.end(window[0], -np.inf), times.end(window[1], np.inf)
    if not low < high:
        raise ConfigurationError(
            f"{_SETTING}.submit_s is {shown(window)}; expected [from, to], from before to"
        )
    ends = ["null" if end is None else f"{end:.15g}" if not isinstance(end, str) else end for end in window]
    return (times.seconds >= low) & (times.seconds < high), f"[{','.join(ends)}]"


def _has_value(frame: pd.DataFrame, key: str, name: str, wanted: Any) -> tuple[NDArray[np.bool_], str]:
    """([rows] whether column `name` has one of the `wanted` values, and these values as written).

    A number matches however it is written.
    """
    require(f"{_SETTING}.{key}", wanted, _Values)
    if name not in frame.columns:
        there = ", ".join(frame.columns[:_MOST_COLUMNS])
        raise WorkloadError(f"where.{key} is given, but there is no column {name!r}; expected one of {there}")
    written = text_column(frame, name)
    amounts = pd.to_numeric(written, errors="coerce").to_numpy()
    keep = np.zeros(len(frame), dtype=np.bool_)
    for value in [wanted] if isinstance(wanted, str | float | int) else wanted:
        exact = isinstance(value, str) or (isinstance(value, int) and abs(value) > 2**53)
        same = (written == str(value)).to_numpy() if exact else amounts == float(value)
        if not same.any():
            raise WorkloadError(
                f"where.{key}: no row has {name} {shown(value)}; expected some of {_common_values(written)}"
            )
        keep |= same
    found = written[keep].unique().tolist()
    return keep, found[0] if len(found) == 1 else f"[{','.join(found)}]"


def _common_values(written: "pd.Series[str]") -> str:
    """Text that lists the most common values of a column."""
    counts = written[written != ""].value_counts()
    summary = [f"{value!r} ({count:,})" for value, count in counts.head(_MOST_SHOWN).items()]
    if len(counts) > _MOST_SHOWN:
        summary.append(f"{len(counts) - _MOST_SHOWN:,} more values")
    if unnamed := int((written == "").sum()):
        summary.append(f"{unnamed:,} rows without one")
    return ", ".join(summary)
