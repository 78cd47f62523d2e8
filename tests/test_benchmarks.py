"""Every benchmark can still be imported, and docs/benchmarks.md shows what they printed."""

import importlib
import re
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("name", sorted(file.stem for file in BENCHMARKS.glob("*.py")))
def test_a_benchmark_finds_what_it_takes(name, monkeypatch):
    before = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    try:
        assert importlib.import_module(name).__doc__
    finally:  # their names are common ones
        for module in set(sys.modules) - before:
            if Path(getattr(sys.modules[module], "__file__", None) or "/").parent == BENCHMARKS:
                del sys.modules[module]


def test_every_table_of_the_page_is_what_a_benchmark_printed():
    page = (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
    kept = [
        {line.rstrip() for line in file.read_text().splitlines()} for file in BENCHMARKS.glob("results/*.txt")
    ]
    tables = re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(tables) > 15
    for table in tables:
        lines = {line.rstrip() for line in table.splitlines()}
        assert any(lines - {""} <= one for one in kept), table
