"""Cells of a file as numbers, seconds, dates and ends of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ringyard.state.records import JobOutcome

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
#: {name of a unit: factor to seconds, GPUs or cores}
UNITS = _SECONDS | {"percent": 0.01, "milli": 1e-3}

#: ends of jobs by states of Slurm (sacct), Philly, PAI and Kubernetes. Assumption: a preempted job was
#: withdrawn
STATES = {
    **dict.fromkeys(("COMPLETED", "PASS", "TERMINATED", "SUCCEEDED"), "completed"),
    **dict.fromkeys(("CANCELLED", "CANCELED", "KILLED", "PREEMPTED"), "cancelled"),
    **dict.fromkeys(("FAILED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"), "failed"),
    **dict.fromkeys(("OUT_OF_MEMORY", "OUT_OF_ME"), "failed"),  # the second is cut short, as sacct does
    **dict.fromkeys(("RUNNING", "PENDING", "WAITING", "SUSPENDED", "REQUEUED"), "unfinished"),
}
ENDS = {outcome.name.lower(): int(outcome) for outcome in JobOutcome} | {"unfinished": -1}

_GROUPED = r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?"  # 3,600
_CLOCK = (
    r"(?:(\d+)(?:-| days?,? ))?(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)"  # 01:00:00, 1-00:00:00, 1 day, 0:00:00
)

#: digits of a date without separators, also with hours, minutes and seconds, that could be seconds as well
_DAY = r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
_TIME_OF_DAY = r"(?:[01]\d|2[0-3])(?:[0-5]\d){1,2}"
COMPACT_DATE = f"{_DAY}(?:{_TIME_OF_DAY})?"
_YEARS = (1900, 2199)  # other years stand for missing dates: 0001, 1601, 9999


def numbers(texts: "pd.Series[str]") -> NDArray[np.float64]:
    """[rows] numbers, NaN where a text is none. Commas may group digits by three."""
    found = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    odd = texts[np.isnan(found) & (texts != "").to_numpy()]
    if len(odd):
        grouped = odd.where(odd.str.fullmatch(_GROUPED), "").str.replace(",", "")
        found[texts.index.get_indexer(odd.index)] = pd.to_numeric(grouped, errors="coerce")
    return found


def lengths_of_time(texts: "pd.Series[str]", unit: float = 1.0) -> NDArray[np.float64]:
    """[rows] lengths of time in seconds, of numbers in a `unit` or texts such as 01:00:00 and 1-00:00:00."""
    found = numbers(texts) * unit
    odd = np.isnan(found) & (texts != "").to_numpy()
    if odd.any():
        parts = texts[odd].str.extract(rf"^{_CLOCK}$").fillna({0: "0"}).astype(np.float64)
        found[odd] = parts.to_numpy() @ np.array([86400.0, 3600.0, 60.0, 1.0])
    return found


@dataclass(frozen=True)
class Times:
    """How a file writes points in time."""

    #: [rows] submission times in seconds, NaN where there is none. Dates count from the `origin`.
    seconds: NDArray[np.float64]
    origin: pd.Timestamp | None  #: first date of the file, UTC. None: times are numbers.
    unit: float  #: seconds of 1 where times are numbers
    formats: Sequence[str]  #: formats of dates (strptime), tried in turn. Empty: ISO 8601.
    zone: str  #: time zone of dates without one

    @classmethod
    def read(cls, texts: "pd.Series[str]", unit: float | None, formats: Sequence[str], zone: str) -> "Times":
        """Read submission times: dates if more texts are dates than numbers.

        Numbers such as 20200101 are dates if all are such ones, and no `unit` is given.
        """
        found = numbers(texts) * (unit or 1.0)
        times = cls(found, None, unit or 1.0, formats, zone)
        written = texts != ""
        if unit is None and texts[np.isfinite(found)].str.fullmatch(COMPACT_DATE).all():
            found = np.full(len(texts), np.nan)
        if np.isfinite(found).sum() * 2 >= written.sum() and not formats:
            return times
        dates = times._dates(texts)
        if formats or dates.notna().sum() > np.isfinite(found).sum():
            origin = dates.min() if dates.notna().any() else pd.Timestamp(0, tz="UTC")
            times = replace(times, origin=origin)
            return replace(times, seconds=times._since(dates))
        return times

    def parse(self, texts: "pd.Series[str]") -> NDArray[np.float64]:
        """[rows] seconds of other columns, such as ends, as the submission times count them."""
        return numbers(texts) * self.unit if self.origin is None else self._since(self._dates(texts))

    def _since(self, dates: "pd.Series[pd.Timestamp]") -> NDArray[np.float64]:
        since = dates - (self.origin or pd.Timestamp(0, tz="UTC"))
        return np.asarray(since.dt.total_seconds(), dtype=np.float64)

    def _dates(self, texts: "pd.Series[str]") -> "pd.Series[pd.Timestamp]":
        """[rows] dates in UTC, NaT where a text is none."""
        found: pd.Series[pd.Timestamp] = pd.Series(pd.NaT, index=texts.index, dtype="datetime64[us, UTC]")
        for form in (*self.formats, "ISO8601"):
            left = texts[found.isna() & (texts != "")]
            if form == "ISO8601":  # pandas wants a T in 202001311200
                left = left.str.replace(f"^({_DAY})({_TIME_OF_DAY})$", r"\1T\2", regex=True)
            read = pd.to_datetime(left, errors="coerce", utc=True, format=form).dt.as_unit("us")
            read = read.where(read.dt.year.between(*_YEARS))
            if self.zone != "UTC":
                offset = r"(?:[T ]\d{2,6}|:\d\d)(?:\.\d+)?\s*(?:Z|[+-]\d\d(?::?\d\d)?)$"
                named = left.str.contains(".*" if "%z" in form else offset).to_numpy(dtype=np.bool_)
                naive = read[~named].dt.tz_localize(None)
                summer = np.ones(len(naive), np.bool_)  # the first of two equal hours in autumn
                local = naive.dt.tz_localize(self.zone, ambiguous=summer, nonexistent="shift_forward")
                read[~named] = local.dt.tz_convert("UTC")
            found[left.index] = read
        return found
