"""Files of jobs as rows of texts: CSV and other separated text, JSON, JSON lines and Parquet, also gzip.

The first characters say which format a file has, not its name.
"""

import codecs
import csv
import gzip
import io
import json
import re
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import require_memory, shown
from ringyard.errors import WorkloadError
from ringyard.workloads.cells import numbers


def philly_jobs(jobs: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return a record for each of the `jobs` of a log, and notes on attempts that are not counted.

    A job has the GPUs of the last attempt that lists some, and the run times of all attempts with a start and
    an end together. The log says that some starts and ends were not recorded.
    """
    records: list[dict[str, Any]] = []
    attempts: list[tuple[int, Any, Any]] = []
    for place, job in enumerate(jobs):
        try:
            tried = job["attempts"]
            used = [sum(len(server["gpus"]) for server in one.get("detail") or ()) for one in tried]
            attempts += [(place, one.get("start_time"), one.get("end_time")) for one in tried]
            job["submitted_time"]
        except (LookupError, TypeError, AttributeError) as error:
            raise WorkloadError(
                f"is not Philly's cluster_job_log: job {place + 1} is {shown(job)}; expected"
                f" submitted_time and attempts with start_time, end_time and detail ({error!r})"
            ) from error
        records.append(
            {name: value for name, value in job.items() if name != "attempts"}
            | {"num_gpus": str(next((gpus for gpus in reversed(used) if gpus), 0))}
        )
    log = pd.DataFrame(attempts, columns=["job", "start", "end"])
    dates = pd.concat([log["start"], log["end"]], ignore_index=True).astype(str)
    known = pd.to_datetime(dates, errors="coerce", utc=True, format="ISO8601")
    ran = (known[len(log) :].reset_index(drop=True) - known[: len(log)]).dt.total_seconds().to_numpy()
    counted = ran >= 0
    owner = log["job"].to_numpy(dtype=np.int64)
    seconds = np.bincount(owner[counted], ran[counted], len(records))
    for record, sum_of_runs in zip(records, seconds.tolist(), strict=True):
        record["duration_s"] = repr(sum_of_runs)
    lost = np.flatnonzero(np.bincount(owner[~counted], minlength=len(records)) * (seconds > 0))
    note = f"{len(lost):,} of {len(records):,} jobs have attempts without a start or an end: not counted"
    return records, (note,) if len(lost) else ()


#: {first bytes: what the file is and what helps}
_OTHER_FILES = {
    b"\x1f\x8b": "gzip file inside of a gzip file; expected text or gzip: unpack it first (gunzip)",
    b"PK\x03\x04": "zip archive; expected text or gzip: unpack it first",
    b"BZh": "bzip2 archive; expected text or gzip: unpack it first",
    b"\xfd7zXZ": "xz archive; expected text or gzip: unpack it first",
    b"\x28\xb5\x2f\xfd": "zstandard archive; expected text or gzip: unpack it first",
    b"version https://git-lfs": "pointer of Git LFS; `git lfs pull` in its repository gets the file itself",
}

#: largest size of an unpacked file, in multiples of the file's. Files of jobs have 3 to 20
_MAX_RATIO = 100
_CELL_BYTES = 100  # memory for a cell, at least

#: texts that files use for missing values
MISSING = ("", "nan", "NaN", "NA", "<NA>", "N/A", "n/a", "#N/A", "NULL", "null", "None", "Unknown")


@dataclass(frozen=True)
class Rows:
    """Rows of a file."""

    #: [rows] texts as written, "" where a cell is blank. The index is the position in the file.
    frame: pd.DataFrame
    numbers: NDArray[np.int64]  #: [rows of the file] number of each row, as the file counts
    unit: str = "line"  #: what the numbers count, "line" or "job"
    notes: tuple[str, ...] = ()  #: what to tell about the file, for a WorkloadWarning

    def place(self, row: int) -> str:
        """Return where row `row` of the `frame` is in the file, such as "line 7"."""
        return f"{self.unit} {self.numbers[self.frame.index[row]]}"

    def column(self, name: str) -> "pd.Series[str]":
        """[rows] texts of column `name` without spaces around them, "" where a value is missing."""
        written = self.frame[name].str.strip()
        return written.mask(written.isin(MISSING), "")


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file, unpacked if it is gzip, whatever its name.

    Raises:
        WorkloadError: no such file, it cannot be read, or it is another archive.
    """
    try:
        data = Path(path).expanduser().read_bytes()
        if data[:2] == b"\x1f\x8b":
            most = max(_MAX_RATIO * len(data), 1 << 24)
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(most)
            if len(data) == most:
                raise ValueError(f"it unpacks to {most:,} bytes or more; if you trust it, unpack it first")
    except FileNotFoundError as error:
        raise WorkloadError(
            "there is no such trace file; `ringyard traces` says where to get public ones"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise WorkloadError(f"is cut short or no gzip file ({error}); get it anew") from error
    except (OSError, RuntimeError, ValueError) as error:  # a folder, no permission, no such user, odd names
        raise WorkloadError(f"cannot be read: {error}") from error
    for magic, what in _OTHER_FILES.items():
        if data.startswith(magic):
            raise WorkloadError(f"is a {what}")
    if data[257:262] == b"ustar":
        raise WorkloadError("is a tar archive; expected one file of it: unpack it first (tar -xf)")
    return data


def decoded(data: bytes) -> str:
    """Return the text of a file. WorkloadError: it is no UTF-8, and no UTF-16 that says so."""
    encoding = "utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8"
    try:
        text = data.decode(encoding).lstrip("\ufeff")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise WorkloadError(
            f"is no {encoding.upper()} text (line {line}: {error.reason}); save it as UTF-8"
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise WorkloadError(f"is no text: line {line} has a zero byte; expected text: save it as UTF-8")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_rows(
    path: str | Path,
    separator: str = ",",
    header: Sequence[str] | None = None,
    comment: str | None = None,
    known: Sequence[str] = (),
) -> Rows:
    r"""Return the rows of a file, at least one.

    Args:
        path: the file.
        separator: character between cells, `\t` for a tab or `\s+` for spaces.
        header: names of the columns, used unless the first line has no number, and one of them or of the
            `known` names.
        comment: lines that begin with this text are left out.
        known: names that only a header has.

    Raises:
        WorkloadError: no file of these formats, no rows, or two columns of one name.
    """
    data = read_bytes(path)
    if data.startswith(b"PAR1"):
        rows = _parquet_rows(data)
    else:
        text = decoded(data)
        if text.lstrip()[:1] in ("[", "{"):
            rows = _json_rows(text)
        else:
            rows = _separated_rows(text, separator, header, comment, known)
    if not len(rows.frame):
        raise WorkloadError("has no rows; expected some below the header")
    return rows


def _separated_rows(
    text: str, separator: str, header: Sequence[str] | None, comment: str | None, known: Iterable[str]
) -> Rows:
    separator = "\t" if separator == r"\t" else separator
    lines = text.split("\n")
    skipped = (lambda line: line.lstrip().startswith(comment)) if comment else (lambda _: False)
    kept = [number for number, line in enumerate(lines) if line.strip() and not skipped(line)]
    lines = [lines[number] for number in kept]
    try:
        names = [name.strip() for name in next(_records(lines, separator), [])]
        place = f"line {kept[0] + 1}" if kept else "line 1"
        known = {*known, *(header or ())}
        no_number = np.isnan(numbers(pd.Series(names, dtype=str))).all()
        if header is not None and not (no_number and known.intersection(names)):
            names, place = list(header), "workload.reader.header"
        else:
            kept, lines = kept[1:], lines[1:]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise WorkloadError(
                f"{place} has column {shown(twice[0])} twice; expected columns of different names"
                + f" ({header_hint(names)})" * bool(header_hint(names))
            )
        if not names:
            raise WorkloadError("is not a readable CSV file: it is empty")
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                io.StringIO("\n".join(lines)),
                sep=separator,
                header=None,
                names=names,
                index_col=False,
                dtype=str,
                na_filter=False,
                skipinitialspace=True,
                low_memory=False,
            )
    except pd.errors.EmptyDataError:
        frame = pd.DataFrame(columns=names)
    except (pd.errors.ParserError, pd.errors.ParserWarning, csv.Error) as error:
        if not isinstance(error, csv.Error):
            _reject_long_line(lines, kept, separator, names)
        raise WorkloadError(f"is not a readable CSV file: {error}") from error
    frame = frame.fillna("").astype(object)
    first = np.arange(len(frame))
    if len(frame) < len(lines):  # cells with line breaks
        breaks = np.sum([frame[name].str.count("\n") for name in names], axis=0)
        first[1:] += np.cumsum(breaks)[:-1].astype(np.int64)
    return Rows(frame, np.array(kept, dtype=np.int64)[first] + 1)


def header_hint(names: Sequence[str]) -> str:
    """Return what helps if names of columns are values of a job: the file has no header."""
    is_number = np.isfinite(numbers(pd.Series(names, dtype=str))).any()
    return "workload.reader.header=[NAME, ...] names the columns of a file without a header" * bool(is_number)


def _records(lines: Sequence[str], separator: str) -> Any:
    """Iterator over the cells of each record. Its `line_num` is the number of lines read."""
    if separator == r"\s+":
        return (line.split() for line in lines)
    return csv.reader(lines, delimiter=separator, skipinitialspace=True)


def _reject_long_line(lines: Sequence[str], kept: Sequence[int], separator: str, names: list[str]) -> None:
    """Raise a WorkloadError for the first record with more cells than there are names, if there is one."""
    records = _records(lines, separator)
    for number, cells in enumerate(records):
        if len(cells) > len(names):
            line = kept[getattr(records, "line_num", number + 1) - 1] + 1
            raise WorkloadError(
                f"is not a readable CSV file: line {line} has {len(cells)} cells; expected {len(names)},"
                f" one for each of {shown(names)} (quote cells that contain a separator,"
                " or name the separator of the file: workload.reader.separator=';')"
            )


def _text_frame(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    def text(value: Any) -> str:
        if isinstance(value, str):
            return value
        return "" if value is None or value != value else json.dumps(value, default=str)

    return pd.DataFrame.from_records(list(records)).map(text).astype(object)


#: key of a JSON object that has a name twice; its value is the name
_TWICE = "\0"


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        found[_TWICE] = Counter(name for name, _ in pairs).most_common(1)[0][0]
    return found


def _json_rows(text: str) -> Rows:
    """Rows of a list of objects, alone or in an object, or of an object per line. Numbers stay as written."""
    constants: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), str)
    decoder = json.JSONDecoder(object_pairs_hook=_members, **constants)
    found: list[Any] = []
    starts, text = [len(text) - len(text.lstrip())], text.rstrip()
    try:
        while starts[-1] < len(text):
            value, end = decoder.raw_decode(text, starts[-1])
            found.append(value)
            starts.append(re.compile(r"\s*").match(text, end).end())  # type: ignore[union-attr]
    except json.JSONDecodeError as error:
        raise WorkloadError(f"is no JSON and no JSON lines: line {error.lineno}: {error.msg}") from error
    except RecursionError as error:
        raise WorkloadError(f"is no JSON and no JSON lines: {error}") from error
    unit, whole = "line", found[0] if len(found) == 1 else None
    places = np.searchsorted([one.start() for one in re.finditer("\n", text)], starts[:-1]) + 1
    if isinstance(whole, dict) and "attempts" not in whole:
        lists = [one for one in whole.values() if isinstance(one, list) and one and isinstance(one[0], dict)]
        whole = lists[0] if len(lists) == 1 else whole
    if isinstance(whole, list):
        unit, found, places = "job", whole, np.arange(1, len(whole) + 1)
    for place, job in zip(places.tolist(), found, strict=True):
        if not isinstance(job, dict):
            raise WorkloadError(f"{unit} {place} is {shown(job)}; expected a JSON object with a job's values")
        if _TWICE in job:
            raise WorkloadError(f"{unit} {place} has {job[_TWICE]!r} twice; expected one value for each name")
    if found and "attempts" in found[0]:
        records, notes = philly_jobs(found)
        return Rows(_text_frame(records), places, unit, notes)
    return Rows(_text_frame(found), places, unit)


def _parquet_rows(data: bytes) -> Rows:
    try:
        from pyarrow.parquet import read_metadata

        size = read_metadata(io.BytesIO(data))
        require_memory({"its number of cells": (size.num_rows * size.num_columns, _CELL_BYTES)})
        frame = pd.read_parquet(io.BytesIO(data))
    except ImportError as error:
        raise WorkloadError("is a Parquet file; pandas reads it with pyarrow: pip install pyarrow") from error
    except (OSError, ValueError) as error:
        raise WorkloadError(f"is not a readable Parquet file: {error}") from error
    texts = frame.astype(object).where(frame.notna(), "").astype(str).astype(object)
    return Rows(texts.reset_index(drop=True), np.arange(1, len(frame) + 1), "row")
