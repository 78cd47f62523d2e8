"""The versions that pyproject.toml allows and those that are tried."""

import re
import tomllib

import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from conftest import ROOT

#: what is not tried at its oldest, and why
_ELSE = {"torch": "builds of the oldest bring gigabytes for GPUs"}


def pins(name):
    lines = (re.sub(r"\s*#.*", "", line) for line in (ROOT / name).read_text().splitlines())
    found = [Requirement(line) for line in lines if line]
    return {re.sub("[-_.]+", "-", one.name).lower(): str(one.specifier).removeprefix("==") for one in found}


def needed(*extras):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    given = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return [Requirement(one) for part in given for one in part if not one.startswith("ringyard[")]


def lowest(requirement):
    return next(Version(one.version) for one in requirement.specifier if one.operator == ">=")


def test_the_oldest_versions_are_those_that_are_allowed():
    oldest = pins("constraints-oldest.txt")
    for one in needed("agents"):
        pinned = Version(oldest[one.name.lower()])
        assert pinned == lowest(one) or (one.name in _ELSE and pinned > lowest(one)), one


def test_what_is_pinned_is_allowed():
    pinned = pins("constraints.txt")
    for one in needed("agents", "hub", "onnx", "sweeps", "docs", "dev"):
        assert one.specifier.contains(pinned[one.name.lower()], prereleases=True), one


def test_the_citation_and_the_changelog_have_the_version_of_pyproject():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == version
    assert re.findall(r"version = \{(.*)\}", (ROOT / "README.md").read_text()) == [version]
    released = re.findall(r"^## (\d\S*) \((.*)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == (version, str(citation["date-released"]))


def test_the_entry_for_gymnasiums_list_names_the_oldest_version():
    entry = (ROOT / ".github" / "third_party_entry.md").read_text().partition("-->\n")[2]
    assert re.match(
        r"- \[Ringyard: .*\]\(LINK\)\n\n  !\[Gymnasium version dependency\]\(", entry
    )  # as its template says
    assert 2 <= len(re.findall(r"\.(?= |$)", entry.strip().splitlines()[-1])) <= 5  # sentences
    assert f"badge/Gymnasium-v{pins('constraints-oldest.txt')['gymnasium']}-blue" in entry
