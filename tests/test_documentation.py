"""The examples of README and docstrings run as they stand."""

import doctest
import re

import pytest

from conftest import ROOT, composed

README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_readme_examples_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert float(capsys.readouterr().out) > 0


def test_docstring_examples_run():
    from ringyard.sim import simulator

    result = doctest.testmod(simulator)
    assert result.attempted > 0
    assert result.failed == 0


def test_overrides_in_the_readme_compose():
    commands = re.findall(
        r"^ringyard (simulate|train|compare) (.*?)(?:  +#.*)?$", README.replace("\\\n", ""), re.M
    )
    assert len(commands) >= 5
    for command, words in commands:
        overrides = [word for word in words.split() if "=" in word]
        if "-m" not in words.split():
            composed(command, *overrides)


def test_linked_files_exist():
    for page in [README, *(file.read_text() for file in (ROOT / "docs").glob("*.md"))]:
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page):
            assert (ROOT / link).exists() or (ROOT / "docs" / link).exists(), link
