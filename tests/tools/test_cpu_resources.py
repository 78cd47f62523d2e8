"""The page of CPU-side resources."""

from conftest import ROOT
from tools.cpu_resources import page


def test_the_page_is_what_the_simulator_says():
    written = (ROOT / "docs" / "cpu_resources.md").read_text()
    assert page() == written, "write it again: python -m tools.cpu_resources"
