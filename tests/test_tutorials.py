"""Every block of the tutorials runs as it stands, in order, and prints what the page says.

Trainings run with small sizes, so of tutorials with a training only the words that are printed are compared.
"""

import re

import pytest

from tools import tutorials

#: a block without a language
PLAIN = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: settings behind those of the pages: less to do
SMALL = [
    *("train:total_decisions=300", "train:num_workloads=4", "train:evaluate.every=300"),
    *("train:evaluate.workloads=2", "compare:workers=1", "compare:plots=false", "compare:seeds=2"),
]


def words(printed):
    """The words of what is printed, without numbers, order and rules of tables."""
    return sorted(re.sub(r"[+-]?\d[\d,.]*|─+", "#", printed).replace("#", " ").split())


def test_there_is_something_to_run():
    assert len(tutorials.pages()) >= 4


@pytest.mark.parametrize("page", tutorials.pages(), ids=lambda page: page.stem)
def test_outputs_are_written_by_the_tool(page):
    """None is empty, and blocks that nothing runs hold commands alone."""
    text = page.read_text()
    outputs = [body for _, given, body in tutorials.BLOCK.findall(text) if given.startswith("output")]
    assert outputs
    assert all(outputs), f"type `{tutorials.COMMAND} {page.stem}`"
    lines = [line for body in PLAIN.findall(tutorials.BLOCK.sub("", text)) for line in body.splitlines()]
    assert not [line for line in lines if not line.startswith(("ringyard ", "tensorboard "))]


@pytest.mark.parametrize("page", tutorials.pages(), ids=lambda page: page.stem)
@pytest.mark.slow
def test_tutorials_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = page.read_text()
    trains = "ringyard train" in text
    for stored, printed in tutorials.played(text, tmp_path, SMALL if trains else ()):
        if trains:
            assert words(printed) == words(stored)
        else:
            assert printed == stored


def test_a_change_of_what_is_printed_is_noticed(tmp_path):
    page = "```python\nprint('a 1')\nprint('b 2')\n```\n\n```text output from=b lines=1\nb 3\n```\n"
    ((stored, printed),) = tutorials.played(page, tmp_path)
    assert (stored, printed) == ("b 3\n", "b 2\n")
    assert words(stored) == words(printed) == ["b"]
    with pytest.raises(ValueError, match="no line begins with 'c'"):
        list(tutorials.played(page.replace("from=b", "from=c"), tmp_path))
