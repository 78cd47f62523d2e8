"""Measured sets: tables of seconds per iteration, one row a measurement, from published files or users."""

from ringyard_agents.measured.readers import MissingDataError, published
from ringyard_agents.measured.rows import (
    COLUMNS,
    columns_of,
    is_tidy,
    parts_of,
    read_rows,
    servers_of,
    tidy,
    twins,
)
from ringyard_agents.measured.sets import MeasuredRows, MeasuredSet, find_sets, measured_sets, rows_of

__all__ = [
    "COLUMNS",
    "MeasuredRows",
    "MeasuredSet",
    "MissingDataError",
    "columns_of",
    "find_sets",
    "is_tidy",
    "measured_sets",
    "parts_of",
    "published",
    "read_rows",
    "rows_of",
    "servers_of",
    "tidy",
    "twins",
]
