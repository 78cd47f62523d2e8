"""Every benchmark can still be imported."""

import importlib
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
