"""Plain words: no *who* for things and no private words in docstrings, comments, messages, configs and pages.

`python tests/test_words.py` prints every hit. With `--update` it lowers the ceilings in
`tests/word_ceilings.csv`.
"""

import ast
import csv
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from conftest import GENERATED, ROOT

CEILINGS = ROOT / "tests" / "word_ceilings.csv"

#: words for people that stand for schedulers, jobs, agents or callers
PEOPLE = r"who|whose|whom|whoever|nobody|everybody|somebody|anybody"
#: words of this project that its field has other words for
PRIVATE = (
    r"presets?|worlds?|rivals?|fifo_strict|mend(?:s|ed)?|crowd(?:s|ed)?|standstill|looks? ahead|looking ahead"
    r"|at (?:its|their) best|agents? that ships?|difference is shown|none is shown|held (?:against|beside)"
    r"|own(?:_folders| folders)|stops and moves|(?:is|are) judged|slow twin|put(?:s|ting)? back|let(?:s)? go"
)
WORDS = re.compile(rf"\b(?:{PEOPLE}|{PRIVATE})\b", re.IGNORECASE)
#: *who* after these is of people
ALLOWED = re.compile(
    r"\b(?:users?|tenants?|authors?|people|persons?|readers?|maintainers?|researchers?|students?|developers?"
    r"|engineers?|reviewers?|colleagues?)\b(?:[ ,]+[\w']+){0,2}[ ,]+(?:who|whose|whom)\b",
    re.IGNORECASE,
)


def hits(lines):
    """(line number, word, line) of every hit in numbered lines of prose."""
    found = []
    for number, line in lines:
        prose = ALLOWED.sub(lambda match: "." * len(match[0]), line)
        found += [(number, match[0], line.strip()) for match in WORDS.finditer(prose)]
    return found


def python_prose(text):
    """Docstrings, comments and texts of several words of a module, as numbered lines."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            lines += list(enumerate(node.value.splitlines(), node.lineno))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines.append((token.start[0], token.string))
    return lines


def yaml_comments(text):
    found = ((number, re.search(r"(?:^|\s)#.*", line)) for number, line in enumerate(text.splitlines(), 1))
    return [(number, match[0]) for number, match in found if match]


def page_prose(text):
    return list(enumerate(text.splitlines(), 1))


def files():
    """{file: its reader} of what users read."""
    found = {}
    for package in ("envs/ringyard", "baselines/ringyard_baselines", "agents/ringyard_agents"):
        found |= dict.fromkeys(sorted((ROOT / package).rglob("*.py")), python_prose)
    found |= dict.fromkeys(sorted((ROOT / "conf").rglob("*.yaml")), yaml_comments)
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    found |= {page: page_prose for page in pages if page.parent.name not in GENERATED}
    del found[ROOT / "conf" / "renamed.yaml"], found[ROOT / "docs" / "renamed.md"]  # they list old names
    return found


def all_hits():
    return {
        str(file.relative_to(ROOT)): found
        for file, reader in files().items()
        if (found := hits(reader(file.read_text())))
    }


def ceilings():
    """{file: most hits}: what was there when the test began, less what has gone since."""
    with CEILINGS.open(newline="") as stream:
        return {row["file"]: int(row["hits"]) for row in csv.DictReader(stream)}


def lowered(most, found):
    """Ceilings after an update: a file without a ceiling gets none, and no ceiling rises."""
    return {file: min(hits, most[file]) for file, hits in found.items() if file in most}


def test_an_update_only_lowers_ceilings():
    assert lowered({"a": 3, "b": 1, "gone": 2}, {"a": 2, "b": 4, "new": 5}) == {"a": 2, "b": 1}


def test_no_file_has_more_private_words_than_it_had():
    most = ceilings()
    wrong = [
        f"{file}:{number}: {word}: {line}"
        for file, found in all_hits().items()
        if len(found) > most.get(file, 0)
        for number, word, line in found
    ]
    assert not wrong, "\n".join(wrong)


def test_ceilings_fall_with_what_is_there():
    found = {file: len(one) for file, one in all_hits().items()}
    spare = {
        file: most - found.get(file, 0) for file, most in ceilings().items() if most > found.get(file, 0)
    }
    said = f"python {Path(__file__).relative_to(ROOT)} --update lowers them: {spare}"
    assert sum(spare.values()) <= 0.1 * sum(found.values()) + 10, said


@pytest.mark.parametrize(
    ("prose", "words"),
    [
        ("Schedulers who stop jobs, and nobody waits.", ["who", "nobody"]),
        ("Users who train an agent, tenants, whose jobs end: people.", []),
        (
            "The presets of every world are held against rivals.",
            ["presets", "world", "held against", "rivals"],
        ),
        ("A scheduler that preempts in each environment.", []),
    ],
)
def test_words_are_found(prose, words):
    assert [word for _, word, _ in hits([(1, prose)])] == words


def test_each_reader_finds_its_prose():
    module = '"""Who runs."""\n\n\ndef f(who):\n    # whose turn\n    raise ValueError("nobody at all")\n'
    assert Counter(word for _, word, _ in hits(python_prose(module))) == Counter(["Who", "whose", "nobody"])
    assert [one[:2] for one in hits(yaml_comments("who: 1  # of whom\n# nobody\n"))] == [
        (1, "whom"),
        (2, "nobody"),
    ]
    assert [one[:2] for one in hits(page_prose("# Title\n\nWho?"))] == [(3, "Who")]


if __name__ == "__main__":
    found = all_hits()
    if "--update" in sys.argv:
        rows = lowered(ceilings(), {file: len(one) for file, one in found.items()})
        with CEILINGS.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([("file", "hits"), *sorted(rows.items())])
    for file, one in found.items():
        for number, word, line in one:
            print(f"{file}:{number}: {word}: {line[:200]}")
    print(sum(map(len, found.values())), "hits in", len(found), "files")
