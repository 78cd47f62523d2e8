"""Conditions that select rows of a file (`where`)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import require, shown
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.renamed import explain_renamed
from ringyard.workloads.cells import Times
from ringyard.workloads.files import Rows

#: {"cluster", "tenant", "user" ... or a column of the file: one value or several; "submit_s": [from, to]}
Where = Mapping[str, Any]

_Values = str | float | Annotated[Sequence[str | float], "not empty"]
_Window = tuple[str | float | None, str | float | None]

_SETTING = "workload.reader.where"
_MOST_SHOWN = 8  # values in an error
_MOST_COLUMNS = 50


def select_rows(
    rows: Rows, where: Where | None, columns: Mapping[str, str | None], times: Times
) -> tuple[NDArray[np.bool_], str]:
    """Select the rows that meet every condition.

    Args:
        rows: all rows.
        where: conditions. Those that are None are ignored.
        columns: {"cluster", "tenant", "user" ...: column of this file, or None}.
        times: submission times of all rows.

    Returns:
        [rows] whether a row is kept, and a text that says how many are, "" without conditions.

    Raises:
        ConfigurationError: a condition of the wrong kind.
        WorkloadError: no such column or value, or no row meets all conditions.
    """
    conditions = {key: value for key, value in (where or {}).items() if value is not None}
    if not conditions:
        return np.ones(len(rows.frame), np.bool_), ""
    met, texts = {}, []
    for key, value in conditions.items():
        if key == "submit_s":
            met[key], text = _in_window(times, value)
        else:
            met[key], text = _has_value(rows, key, columns.get(key) or key, value)
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
    return keep, f"where {summary} keeps {keep.sum():,} of {len(rows.frame):,} rows"


def _in_window(times: Times, window: Any) -> tuple[NDArray[np.bool_], str]:
    """([rows] whether submitted in the `window`, its end not included, and the window as text)."""
    require(f"{_SETTING}.submit_s", window, _Window)
    low, high = _window_end(times, window[0], -np.inf), _window_end(times, window[1], np.inf)
    if not low < high:
        raise ConfigurationError(
            f"{_SETTING}.submit_s is {shown(window)}; expected [from, to], from before to"
        )
    ends = ["null" if end is None else f"{end:.15g}" if not isinstance(end, str) else end for end in window]
    return (times.seconds >= low) & (times.seconds < high), f"[{','.join(ends)}]"


def _window_end(times: Times, value: str | float | None, otherwise: float) -> float:
    """Return an end of a window in seconds, or raise a ConfigurationError for a text that is no date."""
    if not isinstance(value, str):
        return otherwise if value is None else float(value)
    if times.origin is None:
        raise ConfigurationError(
            f"{_SETTING}.submit_s is {value!r}; expected seconds: this file has no dates"
        )
    seconds = times.parse(pd.Series([value]))[0]
    if not np.isfinite(seconds):
        raise ConfigurationError(
            f"{_SETTING}.submit_s is {value!r}; expected seconds, or a date such as 2020-04-01"
        )
    return float(seconds)


def _has_value(rows: Rows, key: str, name: str, wanted: Any) -> tuple[NDArray[np.bool_], str]:
    """([rows] whether column `name` has one of the `wanted` values, and these values as written)."""
    require(f"{_SETTING}.{key}", wanted, _Values)
    if name not in rows.frame.columns:
        there = ", ".join(rows.frame.columns[:_MOST_COLUMNS])
        raise WorkloadError(
            explain_renamed("settings", f"{_SETTING}.{key}")
            or f"{_SETTING}.{key} is given, but there is no column {name!r}; expected one of {there}"
        )
    written = rows.column(name)
    amounts = pd.to_numeric(written, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    keep = np.zeros(len(written), dtype=np.bool_)
    for value in [wanted] if isinstance(wanted, str | float | int) else wanted:
        exact = isinstance(value, str) or (isinstance(value, int) and abs(value) > 2**53)
        same = (written == str(value)).to_numpy() if exact else amounts == float(value)
        if not same.any():
            problem = f"{_SETTING}.{key}: no row has {name} {shown(value)}"
            raise WorkloadError(f"{problem}; expected some of {_common_values(written)}")
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
