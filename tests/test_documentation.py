"""The examples of README and docstrings run as they stand."""

import ast
import doctest
import re
from importlib import import_module

import pytest

from conftest import GENERATED, ROOT, composed
from tools import figures

PAGES = ("README.md", "docs/installation.md", "docs/python.md", "docs/commands.md", "docs/forms.md")
TEXT = "\n".join((ROOT / page).read_text() for page in PAGES)
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
PACKAGES = {
    "ringyard": ROOT / "envs",
    "ringyard_baselines": ROOT / "baselines",
    "ringyard_agents": ROOT / "agents",
}


@pytest.mark.parametrize("code", EXAMPLES)
def test_examples_of_readme_and_pages_run(code, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    short = re.sub(r"learn\([56]0_000", "learn(1", code).replace("seeds=20", "seeds=2")
    exec(compile("from stable_baselines3 import PPO\n" + short, "README.md", "exec"), {})
    if "print(" in code:
        assert re.search(r"[1-9]\d*\.\d", capsys.readouterr().out.splitlines()[-1])


def test_docstring_examples_run():
    result = doctest.testmod(import_module("ringyard.sim.simulator"))
    assert result.attempted > 0
    assert result.failed == 0


def test_overrides_in_readme_and_pages_compose():
    commands = re.findall(
        r"^ringyard (simulate|train|compare) (.*?)(?:  +#.*)?$", TEXT.replace("\\\n", ""), re.M
    )
    assert len(commands) >= 5
    for command, words in commands:
        overrides = [word for word in words.split() if "=" in word]
        if "-m" not in words.split():
            composed(command, *overrides)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_work_in_a_checkout(name):
    """Where no page of the site is made: the file is there, and a heading for what follows `#`."""
    links = re.findall(r"\]\((?!http)([^)]+)\)", (ROOT / name).read_text())
    assert links
    for link in links:
        path, _, anchor = link.partition("#")
        headings = re.findall(r"^#+ (.*)", (ROOT / path).read_text(errors="ignore"), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not anchor or anchor in anchors, link


def test_linked_files_exist():
    pages = [file for file in (ROOT / "docs").rglob("*.md") if file.parent.name not in GENERATED]
    assert len(pages) > 20
    for page in pages:
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            made = set(link.split("/")[:-1]) & GENERATED
            assert made or (page.parent / link).exists(), f"{page.name}: {link}"


def test_every_page_is_in_a_table_of_contents():
    pages = [file for file in (ROOT / "docs").rglob("*.md") if file.parent.name not in GENERATED]
    names = {file.with_suffix("") for file in pages}
    listed = {
        page.parent / line.rpartition("<")[2].rstrip(">")
        for page in pages
        for toctree in re.findall(r"```{toctree}\n(.*?)```", page.read_text(), re.DOTALL)
        for line in toctree.splitlines()
    }
    # these are listed by pages that are made
    assert {file.name for file in names - listed} == {"index", "schedulers", "observations", "versions"}


def test_the_site_has_four_parts_and_a_log():
    captions = re.findall(r":caption: (.*)", (ROOT / "docs" / "index.md").read_text())
    assert captions == ["Get started", "Environments", "Baselines and agents", "Reference", "Research log"]


#: pages that tools write: of these the text around tables counts
WRITTEN = {"agents", "cpu_resources", "interference", "observations", "reproduction", "validation", "mutants"}


def prose_words(file):
    """Words of a page outside code and measured tables; of pages that tools write, outside all tables."""
    text = figures.BLOCK.sub(" ", file.read_text())
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    if WRITTEN & {file.stem, file.parent.name}:
        text = re.sub(r"^\|.*", "", text, flags=re.MULTILINE)
    return len(re.findall(r"[^\s|]*\w[^\s|]*", re.sub(r"\]\([^)]*\)", "]", text)))


def test_pages_outside_the_research_log_are_short():
    pages = [file for file in (ROOT / "docs").rglob("*.md") if file.parent.name not in GENERATED]
    counts = {
        str(file.relative_to(ROOT)): prose_words(file) for file in pages if file.parent.name != "research"
    }
    assert sum(counts.values()) < 25_000, sorted(counts.items(), key=lambda item: -item[1])


REFERENCE = r"(?<!\S)([\w.<>/-]+(?:/|\.(?:py|yaml|json|md|toml)))(?::(\S+))?"


def defined(body, inside=""):
    """Names of functions, classes and assignments, and those inside classes as Class.name."""
    for node in body:
        for target in getattr(node, "targets", [getattr(node, "target", node)]):
            yield inside + str(getattr(target, "name", getattr(target, "id", "")))
        if isinstance(node, ast.ClassDef):
            yield from defined(node.body, f"{inside}{node.name}.")


def stale(page):
    """References `folder/`, `folder/<name>.yaml`, `file.py` or `file.py:name,name` to what is not there."""
    for code in re.findall(r"`([^`\n]+)`", page):
        for path, names in re.findall(REFERENCE, code):
            pattern = re.sub(r"<\w+>", "*", path)
            files = [file for home in (ROOT, *PACKAGES.values()) for file in home.glob(pattern)]
            if not files:
                yield path
            elif names:
                there = set(defined(ast.parse(files[0].read_text()).body))
                yield from (f"{path}:{name}" for name in names.split(",") if name not in there)


def test_what_the_architecture_and_the_table_of_additions_name_exists():
    additions = (ROOT / "CONTRIBUTING.md").read_text().partition("## What to write, and where")[2]
    assert list(stale(ARCHITECTURE)) == list(stale(additions)) == []


def test_stale_references_are_noticed():
    page = "`ringyard/jobs.py:JobTable.check,JobTable.no,no`, `pytest tests/no.py`, `conf/no/<name>.yaml`"
    missing = ["ringyard/jobs.py:JobTable.no", "ringyard/jobs.py:no", "tests/no.py", "conf/no/<name>.yaml"]
    assert list(stale(page)) == missing


def test_every_room_is_in_the_architecture():
    for package, home in PACKAGES.items():
        for room in (home / package).glob("*/__init__.py"):
            assert f"| `{package}/{room.parent.name}/` |" in ARCHITECTURE


def drawn():
    """{module: line} of the architecture's drawing: package │ modules, then remarks."""
    lines, package = {}, ""
    for number, line in enumerate(re.search(r"```\n(.*?)```", ARCHITECTURE, re.DOTALL)[1].splitlines()):
        head, _, modules = line.partition("│ ")
        package = head.strip(" ▼") or package
        lines |= {f"{package}.{module}": number for module in modules.split("   ")[0].split()}
    return lines


def test_imports_go_down_the_drawing_of_the_architecture():
    lines = drawn()

    def room_of(module):
        """What is drawn of the module or of what it is part of; an empty name if nothing is."""
        while module and module not in lines:
            module = module.rpartition(".")[0]
        return module

    for home in PACKAGES.values():
        for file in home.rglob("*.py"):
            here = room_of(".".join(file.relative_to(home).with_suffix("").parts))
            assert here or file.name in ("__init__.py", "__main__.py"), f"{file} is not drawn"
            for node in ast.walk(ast.parse(file.read_text())):
                there = room_of(node.module) if here and isinstance(node, ast.ImportFrom) else ""
                if there not in ("", here):
                    assert lines[here] < lines[there], f"{file} imports {there}, which is not below"
