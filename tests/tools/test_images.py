"""Images of README and docs are made by commands, from what is there now."""

import re
from itertools import pairwise

import pytest
from matplotlib.text import Text

from conftest import ROOT
from tools import images

LISTED = images.listed()
OF_RUNS = {name: how for name, how in LISTED.items() if "ringyard" in how}
OF_FILES = {name: how for name, how in LISTED.items() if name not in OF_RUNS}


def test_every_image_is_listed_and_shown():
    docs = ROOT / "docs"
    files = {file for folder in ("images", "unseen/images") for file in (docs / folder).iterdir()}
    assert {str(file.relative_to(docs)) for file in files if file.suffix != ".json"} == LISTED.keys()
    shown = set()
    for page in [ROOT / "README.md", *docs.rglob("*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        shown |= {(page.parent / one).resolve() for one in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text)}
    assert shown <= files
    # pages of environments are made by the site's build
    made = {name for name in LISTED if re.search(r"/(schedule|learning)_", name)}
    assert {str(file.relative_to(docs)) for file in files - shown} <= made | {"images/drawn.json"}


def test_commands_are_those_that_drew():
    assert {name: one["command"] for name, one in images.noted().items()} == {
        name: images.command_of(name, how) for name, how in LISTED.items()
    }


@pytest.mark.parametrize("name", OF_FILES)
def test_an_image_shows_its_file_as_it_is_now(name):
    how = OF_FILES[name]
    run = how.get("tool", images.COMMAND)
    assert images.noted()[name]["from"] == images.evidence(how), f"docs/{name} is stale: run `{run}`"


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_RUNS)
def test_an_image_shows_the_run_of_this_version(name, tmp_path):
    images.run(OF_RUNS[name], tmp_path, draw=False)
    found = images.evidence(OF_RUNS[name], tmp_path)
    assert images.noted()[name]["from"] == found, f"docs/{name} is stale: run `{images.COMMAND} {name}`"


def test_labels_at_the_ends_of_curves_do_not_overlap():
    figure, axes = images.plt.subplots(figsize=(9, 4.5), layout="constrained")
    axes.set_ylim(0, 100)
    images._label_ends(axes, [(y, 1.0, f"curve {y}", "black") for y in (50, 51, 50.5, 20)])
    figure.canvas.draw()
    boxes = sorted(Text.get_window_extent(one).intervaly.tolist() for one in axes.texts)  # without arrows
    assert all(above[0] > below[1] for below, above in pairwise(boxes))
    images.plt.close(figure)


def test_changed_results_are_drawn_anew(tmp_path, monkeypatch, capsys):
    name, how = "images/scale.png", LISTED["images/scale.png"]
    (tmp_path / "docs" / "images").mkdir(parents=True)
    file = tmp_path / how["from"]
    file.parent.mkdir(parents=True)
    text = (ROOT / how["from"]).read_text()
    file.write_text(text)
    monkeypatch.setattr(images, "ROOT", tmp_path)
    monkeypatch.setattr(images, "IMAGES", tmp_path / "docs" / "images")
    monkeypatch.setattr(images, "listed", lambda: {name: how})
    assert images.main([]) == 0
    first = (tmp_path / "docs" / name).read_bytes()
    assert images.is_current(name, how)
    capsys.readouterr()
    assert images.main([]) == 0
    assert capsys.readouterr().out == ""
    file.write_text(re.sub(r"(queue by submit +)[\d.]+", r"\g<1>99.00", text))
    assert not images.is_current(name, how)
    assert images.main([]) == 0
    assert (tmp_path / "docs" / name).read_bytes() != first


def test_a_page_that_was_written_without_its_images_is_stale(tmp_path, monkeypatch, capsys):
    name, how = "images/shipped_x.png", {"tool": "make it", "from": "page.md"}
    (tmp_path / "docs" / "images").mkdir(parents=True)
    image, page = tmp_path / "docs" / name, tmp_path / "page.md"
    image.write_bytes(b"1")
    page.write_text("| 1 |\n")
    monkeypatch.setattr(images, "ROOT", tmp_path)
    monkeypatch.setattr(images, "IMAGES", tmp_path / "docs" / "images")
    monkeypatch.setattr(images, "listed", lambda: {name: how})
    assert images.main([]) == 0
    page.write_text("Other words.\n\n| 1 |\n")
    assert images.main([]) == 0
    page.write_text("| 2 |\n")
    assert images.main([]) == 1
    assert capsys.readouterr().out == f"docs/{name}: stale; run `make it`\n"
    image.write_bytes(b"2")
    assert images.main([]) == 0
