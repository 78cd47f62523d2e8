"""`where`: which rows of a trace are read, so that nobody cuts files by hand."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.checks import require, shown
from ringyard.errors import ConfigurationError, WorkloadError
from ringyard.workloads import files

#: {"cluster", "vc", "user" or a column of the file: one value or several; "submit_s": [from, to]}
Where = Mapping[str, Any]

_Values = str | float | Annotated[Sequence[str | float], "not empty"]
_Window = tuple[str | float | None, str | float | None]

_SETTING = "workload.reader.where"
_MOST_SHOWN = 8  # values in an error
_MOST_COLUMNS = 50


class Times:
    """When the rows of a file were submitted.

    Args:
        frame: all rows.
        name: of the column.
        dated: it holds dates, not seconds.
    """

    def __init__(self, frame: pd.DataFrame, name: str, dated: bool) -> None:
        self.dated = dated
        if dated:
            self.seconds, self._first = files.dates(frame, name)
        else:
            self.seconds = files.numbers(frame, name)

    def end(self, value: str | float | None, otherwise: float) -> float:
        """An end of a window in seconds.

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


def selected(
    frame: pd.DataFrame, where: Where | None, columns: Mapping[str, str], times: Times
) -> tuple[pd.DataFrame, str]:
    """(the rows that meet every condition, what to tell the user about it).

    Args:
        frame: all rows.
        where: the conditions; those that are None are none.
        columns: {"cluster", "vc", "user": the column of this file that says it}.
        times: of all rows.

    Raises:
        ConfigurationError: a condition of the wrong kind.
        WorkloadError: no such column or value, or no row that meets all conditions.
    """
    conditions = {key: value for key, value in (where or {}).items() if value is not None}
    if not conditions:
        return frame, ""
    met, texts = {}, []
    for key, value in conditions.items():
        if key == "submit_s":
            met[key], text = _within(times, value)
        else:
            met[key], text = _among(frame, key, columns.get(key, key), value)
        texts.append(f"{key}={text}")
    keep = np.logical_and.reduce(list(met.values()))
    said = ", ".join(texts)
    if not keep.any():
        alone = ", ".join(f"{key} {mask.sum():,}" for key, mask in met.items())
        spans = ""
        if np.isfinite(times.seconds).any():
            spans = f"; submit_s goes from {np.nanmin(times.seconds):.0f} to {np.nanmax(times.seconds):.0f}"
        raise WorkloadError(
            f"no row meets where {said} (rows that meet each alone: {alone}{spans}); expected one or more"
        )
    return frame[keep], f"where {said} keeps {keep.sum():,} of {len(frame):,} rows"


def _within(times: Times, window: Any) -> tuple[NDArray[np.bool_], str]:
    """([rows] submitted in the window, its end not included; the window as it is written)."""
    require(f"{_SETTING}.submit_s", window, _Window)
    low, high = times.end(window[0], -np.inf), times.end(window[1], np.inf)
    if not low < high:
        raise ConfigurationError(
            f"{_SETTING}.submit_s is {shown(window)}; expected [from, to], from before to"
        )
    ends = ["null" if end is None else f"{end:.15g}" if not isinstance(end, str) else end for end in window]
    return (times.seconds >= low) & (times.seconds < high), f"[{','.join(ends)}]"


def _among(frame: pd.DataFrame, key: str, name: str, wanted: Any) -> tuple[NDArray[np.bool_], str]:
    """([rows] with one of the values, the values as the file has them); a number is every way to write it."""
    require(f"{_SETTING}.{key}", wanted, _Values)
    if name not in frame.columns:
        there = ", ".join(frame.columns[:_MOST_COLUMNS])
        raise WorkloadError(f"where.{key} is given, but there is no column {name!r}; expected one of {there}")
    written = files.texts(frame, name)
    amounts = pd.to_numeric(written, errors="coerce").to_numpy()
    keep = np.zeros(len(frame), dtype=np.bool_)
    for value in [wanted] if isinstance(wanted, str | float | int) else wanted:
        exact = isinstance(value, str) or (isinstance(value, int) and abs(value) > 2**53)
        same = (written == str(value)).to_numpy() if exact else amounts == float(value)
        if not same.any():
            raise WorkloadError(
                f"where.{key}: no row has {name} {shown(value)}; expected some of {_existing(written)}"
            )
        keep |= same
    found = written[keep].unique().tolist()
    return keep, found[0] if len(found) == 1 else f"[{','.join(found)}]"


def _existing(written: "pd.Series[str]") -> str:
    """The commonest values of a column."""
    counts = written[written != ""].value_counts()
    said = [f"{value!r} ({count:,})" for value, count in counts.head(_MOST_SHOWN).items()]
    if len(counts) > _MOST_SHOWN:
        said.append(f"{len(counts) - _MOST_SHOWN:,} more values")
    if unnamed := int((written == "").sum()):
        said.append(f"{unnamed:,} rows without one")
    return ", ".join(said)
