"""A page for each program in examples/: how to install what it needs, all of it, and what it printed."""

import re

from .sources import ROOT, rendered

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """{name: page}: the written one, and one for each row of its table of programs."""
    folder = ROOT / "examples"
    written = (folder / "README.md").read_text()
    # | [file](file) | what it shows | `words of pip install` | versions |
    rows = re.findall(r"^\| \[(\S+)\]\(\1\) \| .*? \| (.*?) \|", written, re.MULTILINE)
    found = {}
    for file, installed in rows:
        name, _, language = file.partition(".")
        program = (folder / file).read_text()
        title, _, about = re.sub(r'^(?:"""|# )|"""$', "", program.splitlines()[0]).partition(": ")
        found[name] = rendered(
            "example",
            title=title,
            about=about,
            commands=[f"pip install {words}" for words in re.findall(r"`(.*?)`", installed)],
            file=file,
            language={"py": "python", "yml": "yaml"}[language],
            program=program,
            printed=(folder / "printed" / f"{name}.txt").read_text(),
        )
    links = re.sub(r"\]\((\w+)\.(?:py|yml)\)", r"](\1.md)", written).replace("](../docs/", "](../")
    return {"index": rendered("examples", written=links, names=list(found)), **found}
