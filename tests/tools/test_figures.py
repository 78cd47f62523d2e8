"""Measured tables are what stored results say, and no other measured figure stands in README and docs.

`python tests/tools/test_figures.py` prints the figures that are not in `tests/typed_figures.csv`.
"""

import csv
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import trim_mean

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for `python tests/tools/test_figures.py`

from conftest import GENERATED, TRACES, shared  # noqa: E402
from tools import figures  # noqa: E402

TYPED = ROOT / "tests" / "typed_figures.csv"
#: pages that other tools write whole
OTHERS = {
    "agents",
    "cpu_resources",
    "interference",
    "observations",
    "renamed",
    "reproduction",
    "validation",
    "mutants",
}
#: folders that tools and the build of the site write, and the research log, which is history
FOLDERS = {"reproduction", "research", *GENERATED}

UNITS = (
    r"%|x|ms|s|min|minutes?|hours?|seconds?|[kMGT]i?B|times|points|(?:steps|jobs|samples|decisions|images)/s"
)
#: a number with a unit of time, size, rate or share; one with two decimals; an interval
FIGURE = re.compile(
    rf"(?<![\w.,/-])[+-]?(?:\d[\d,]*(?:\.\d+)?\s?(?:{UNITS})(?!\w)|\d+\.\d\d(?![\d.]))"
    r"|\[[+-]?[\d.,]+, [+-]?[\d.,]+\]"
)


def pages():
    """README and the pages that people write."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [file for file in files if file.stem not in OTHERS and file.parent.name not in FOLDERS]


def prose(text):
    """A page without blocks of results, code and addresses of links, on one line."""
    for pattern in (figures.BLOCK, re.compile(r"```.*?```", re.DOTALL), re.compile(r"`[^`]*`")):
        text = pattern.sub(" ", text)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())


def typed():
    """{page: phrases with figures that are no measured ones}."""
    found = {}
    with TYPED.open(newline="") as stream:
        for row in csv.DictReader(stream):
            assert row["why"], row
            found.setdefault(row["page"], []).append(row["phrase"])
    return found


def measured(page, allowed=None):
    """Figures of a page's prose outside the phrases that are allowed there, each with words around it."""
    text = prose(page)
    for phrase in allowed or ():
        text = text.replace(phrase, " " * len(phrase))
    return [text[max(match.start() - 60, 0) : match.end() + 20] for match in FIGURE.finditer(text)]


@pytest.mark.parametrize("page", figures.pages(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_page_is_what_its_results_say(page):
    text = page.read_text()
    assert figures.rendered(text) == text, f"{page.relative_to(ROOT)} is stale: type `{figures.COMMAND}`"


@pytest.mark.parametrize("page", pages(), ids=lambda file: str(file.relative_to(ROOT)))
def test_no_measured_figure_is_typed_into_a_page(page):
    name = str(page.relative_to(ROOT))
    found = measured(page.read_text(), typed().get(name))
    assert not found, (
        f"{name}: take the sentence's figure out, or show a block of results (tools/figures.py); a setting or"
        f" a source's figure belongs into {TYPED.relative_to(ROOT)}: {found}"
    )


def texts_of_paper(file):
    """What people write of a reproduced paper: its set-up and what differs."""
    content = yaml.safe_load(file.read_text())
    return "\n".join([content["setup"], *content["deviations"]])


@pytest.mark.parametrize(
    "paper",
    sorted([*ROOT.glob("conf/reproduction/*.yaml"), *ROOT.glob("tools/conf/transfers/*.yaml")]),
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_no_measured_figure_is_typed_of_a_paper(paper):
    name = str(paper.relative_to(ROOT))
    found = measured(texts_of_paper(paper), typed().get(name))
    assert not found, (
        f"{name}: name the row that has it; a setting or a source's figure belongs into {TYPED}: {found}"
    )


def test_allowed_phrases_are_there_and_have_figures():
    for page, phrases in typed().items():
        file = ROOT / page
        text = prose(texts_of_paper(file) if file.suffix == ".yaml" else file.read_text())
        assert not [one for one in phrases if one not in text or not FIGURE.search(one)], page
        assert max(Counter(phrases).values()) == 1


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("It is 12 % faster and takes 3.4 s.", 2),
        ("Below by -26.5 % [-28.2, -24.8].", 2),
        ("`restart.seconds=300` takes `3 s`, of 64 GPUs and 10GbE.", 0),
        ("```\n3 % of a block of code\n```\n", 0),
        ("<!-- results: agents -->\n3 % of a block\n<!-- end of results -->\n300,000 steps/s", 1),
    ],
)
def test_figures_are_found(page, count):
    assert len(measured(page)) == count
    allowed = ["It is 12 % faster and takes 3.4 s", "Below by -26.5 % [-28.2, -24.8]", "300,000 steps/s"]
    assert not measured(page, allowed)


def test_every_result_has_commands_and_pages_show_it():
    assert {file.stem for file in figures.STORED.glob("*.json")} <= figures.commands().keys()
    shown = {
        word
        for page in figures.pages()
        for block in figures.BLOCK.finditer(page.read_text())
        for word in block[1].split()[1:]
    }
    shown |= {other for name in shown & figures.commands().keys() for other in figures.same_environment(name)}
    assert figures.commands().keys() <= shown


@pytest.mark.parametrize("name", [name for name in figures.commands() if figures.read(name)])
def test_a_result_has_its_commands_its_configuration_and_every_workload(name):
    content = figures.read(name)
    assert content["command"] == figures.shown_commands(name)
    seeds = content["config"]["seeds"]
    assert len(content["bound_mean_jct"]) == seeds
    for label, one in content["schedulers"].items():
        for metric, values in one["values"].items():
            assert len(values) == seeds, (name, label, metric)
        assert np.min(one["values"]["mean_jct"]) > 0
    table, (_, notes) = figures.comparison(name), figures.rows_and_notes(content)
    for note in re.findall(r"^(vs \S+): relative difference", table, re.MULTILINE):
        assert f"| {note} |" in table
    assert [[*note] for note in figures.noted(notes)] == content[
        "notes"
    ]  # as `store` reads them from table.md


def test_aggregates_are_of_the_stored_results():
    learners = [f"learners_{one}" for one in ("contention", "cpu_gpu", "elastic", "full", "sharing")]
    scores = {}
    for _, _, runs, best in figures._learners(learners):
        mean = runs.groupby("scheduler")["mean_jct"].mean()
        for label in mean.index[mean.index.str.fullmatch(r"\w+_[0-2]")]:
            scores.setdefault(label[:-2], {}).setdefault(label[-1], []).append(mean[best] / mean[label])
    stored = json.loads((figures.STORED / "aggregates" / "learners.json").read_text())["learners"]
    complete = {one for one, seeds in scores.items() if len(seeds["0"]) == len(learners)}
    assert stored.keys() == complete, "run `python tools/aggregates.py`"
    for learner in stored:
        wanted = np.array([scores[learner][seed] for seed in "012"])
        assert stored[learner]["scores"] == pytest.approx(wanted, abs=1e-5), (
            "run `python tools/aggregates.py`"
        )
        assert stored[learner]["iqm"][0] == pytest.approx(trim_mean(wanted.ravel(), 0.25), abs=1e-5)


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ringyard.errors.WorkloadWarning")
@pytest.mark.parametrize("name", [name for name in figures.commands() if figures.read(name)])
def test_stored_results_hold(name, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "STORED", copied(name, tmp_path))
    monkeypatch.chdir(tmp_path)
    for file, folder in TRACES.items():
        if f"workload.path={file}" in figures.commands()[name]["words"]:
            (tmp_path / file).symlink_to(shared("data", "traces", folder, file))
    stale = figures.stale_rows(name)
    assert not stale, f"pages with {name} are stale: {stale}; run `{figures.COMMAND} {name}`"


OF_LEARNERS = [name for name in figures.commands() if name.startswith("learners_") and figures.read(name)]


@pytest.mark.parametrize("name", OF_LEARNERS)
def test_learning_curves_have_lines_of_the_allocator_and_of_the_best_published(name):
    [(_, _, runs, best)] = figures._learners([name])
    assert figures.read(name)["references"].keys() == {best, "allocator"}
    assert set(runs["scheduler"]) >= {best, "allocator"}


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_LEARNERS)
def test_lines_of_learning_curves_hold(name):
    content = figures.read(name)
    found = figures.learning_references(name, content)
    assert found == pytest.approx(content["references"], rel=1e-5), (
        f"run `{figures.COMMAND} --references {name}`"
    )


def copied(name, folder):
    """A folder with the file of a result."""
    (folder / f"{name}.json").write_text((figures.STORED / f"{name}.json").read_text())
    return folder


def test_pages_name_rows_that_are_stale(tmp_path, monkeypatch):
    """A row that differs, one that is gone, and with them the agents that were trained."""
    name = "first_agent"
    monkeypatch.setattr(figures, "STORED", copied(name, tmp_path))
    content = figures.read(name)
    content["schedulers"]["srsf@consolidate"]["values"]["mean_jct"][0] += 1.0
    content["schedulers"]["gone"] = content["schedulers"].pop("fifo_backfill@consolidate")
    figures.write_json(content, tmp_path / f"{name}.json")
    assert set(figures.stale_rows(name)) == {"srsf@consolidate", "fifo_backfill@consolidate", "gone", "first"}
    block = figures.rendered(f"<!-- results: brief {name} -->\n<!-- end of results -->")
    assert f"**Stale: {', '.join(figures.read(name)['stale'])}: run `{figures.COMMAND} {name}`**" in block


def test_a_result_that_was_not_run_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "STORED", tmp_path)
    line = "**Missing: run `python -m tools.figures venus`**"
    assert {figures.comparison("venus"), figures.groups("venus"), figures.overview("venus")} == {line}


def test_a_page_that_differs_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "docs").mkdir()
    block = "<!-- results: printed startup -->\n{}<!-- end of results -->\n"
    (tmp_path / "docs" / "page.md").write_text(block.format("20 s\n"))
    (tmp_path / "README.md").write_text("No figures.\n")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "startup.txt").write_text("python benchmarks/startup.py\n21 s\n")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    assert figures.main(["--check"]) == 1
    assert capsys.readouterr().out == f"docs/page.md: stale; run {figures.COMMAND}\n"
    assert figures.main([]) == 0
    assert "21 s" in (tmp_path / "docs" / "page.md").read_text()
    assert figures.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("no startup", "results: 'no'; expected one of comparison, "),
        ("comparison nothing", "unknown result 'nothing'; expected some of environment_contention, "),
    ],
)
def test_a_block_of_nothing_is_refused(words, said):
    with pytest.raises(figures.ConfigurationError) as refused:
        figures.rendered(f"<!-- results: {words} -->\n<!-- end of results -->")
    assert said in str(refused.value)


if __name__ == "__main__":
    for file in pages():
        name = str(file.relative_to(ROOT))
        for one in measured(file.read_text(), typed().get(name)):
            print(f"{name}: {one}")
