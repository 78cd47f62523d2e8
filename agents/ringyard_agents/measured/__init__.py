"""Measured sets: tables of seconds per iteration, one row a measurement, from published files or users."""

from ringyard_agents.measured.rows import COLUMNS, columns_of, parts_of, read_rows, tidy

__all__ = ["COLUMNS", "columns_of", "parts_of", "read_rows", "tidy"]
