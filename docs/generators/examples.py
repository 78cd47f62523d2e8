"""A page of the programs in examples/: what each is, and all of it."""

import re

from .sources import ROOT, rendered

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """{name: page}: one for all."""
    folder = ROOT / "examples"
    programs = {file.name: file.read_text() for file in sorted(folder.glob("*.py"))}
    # programs stand below, other pages beside this one
    written = re.sub(r"\]\((\w+)\.py\)", r"](#\1py)", (folder / "README.md").read_text())
    written = written.replace("](../docs/", "](../")
    return {"index": rendered("examples", written=written, programs=programs)}
