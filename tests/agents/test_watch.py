"""`ringyard watch` and what `ringyard simulate` draws: files that say what happened."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from conftest import composed
from ringyard.placement import consolidate
from ringyard_agents.cli import main
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, to_plain
from ringyard_agents.evaluation.evaluate import make_simulator, run_to_end
from ringyard_agents.evaluation.selection import COMPARISON_SEED_OFFSET
from ringyard_agents.watching.watch import PARTS, render_page
from ringyard_baselines.classic.preemptive import srtf

SMALL = ("experiment=full",)
COUNT = 190  # its jobs


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert (
            main(
                ["watch", *SMALL, "schedulers=[fifo_backfill,srtf]", "seed=1", "out=new/page.html", "name=w"]
            )
            == 0
        )
    return folder / "new" / "page.html"


def test_the_page_has_every_job_of_every_schedule(page):
    data = data_of(page.read_text())
    assert [one["label"] for one in data["schedules"]] == ["fifo_backfill", "srtf"]
    jobs = data["jobs"]
    for schedule in data["schedules"]:
        assert len(schedule["jobs"]["jct"]) == len(jobs["id"]) == COUNT
        parts = np.array(schedule["jobs"]["parts"], float)
        assert parts.shape == (len(PARTS), COUNT)
        assert parts.sum(axis=0) == pytest.approx(schedule["jobs"]["jct"], abs=0.2)
        assert np.mean(schedule["jobs"]["jct"]) == pytest.approx(schedule["metrics"]["mean_jct"], abs=0.1)
        runs = schedule["runs"]
        ran = np.bincount(runs["job"], np.subtract(runs["stop"], runs["start"]), COUNT)
        waited = np.array(schedule["jobs"]["jct"]) - ran
        assert waited == pytest.approx(schedule["jobs"]["parts"][0], abs=0.5)
        bars = schedule["bars"]
        held = np.bincount(bars["job"], np.subtract(bars["stop"], bars["start"]), COUNT)
        service = np.bincount(
            runs["job"], np.subtract(runs["stop"], runs["start"]) * np.array(runs["gpus"]), COUNT
        )
        assert held == pytest.approx(service, abs=1.0)


def test_its_workload_is_that_of_a_comparison(page):
    config = composed("compare", *SMALL)
    world = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    sim = make_simulator(world, 0, 1 + COMPARISON_SEED_OFFSET, None)
    assert data_of(page.read_text())["jobs"]["submit"] == pytest.approx(sim.jobs.submit_seconds, abs=0.01)


def test_the_page_fetches_nothing(page):
    text = page.read_text()
    assert not re.search(r"https?://|@import|src=|href=|fetch\(|XMLHttpRequest", text)
    assert "default-src 'none'" in text
    assert not re.search(r"/\*(STYLE|DATA|MODEL|GANTT|PANELS|MAIN)\*/", text)


def test_users_texts_cannot_leave_the_data():
    bad = {"jobs": {"user": ["</script><script>alert(1)</script>", "<!--", "\u2028", "/*MAIN*/"]}}
    page = render_page(bad)
    assert "<script>alert(1)" not in page
    assert data_of(page) == bad


def test_a_schedule_with_more_rows_than_were_kept_is_played_again():
    config = composed("compare", *SMALL)
    world = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    few, enough = (run_to_end(srtf(consolidate()), world, 0, 1, segment_rows=rows) for rows in (3, 10_000))
    written = int(enough.state.clusters["num_segments"][0])
    assert few.state.segments.shape == (1, written)
    assert few.state.segments[0].tolist() == enough.state.segments[0, :written].tolist()
    assert run_to_end(srtf(consolidate()), world, 0, 1, segment_rows=0).state.segments.shape == (1, 0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["watch", "out=a.txt"], "out is 'a.txt'; expected FILE.html"),
        (["watch", "schedulers=[none]"], "schedulers has 'none'"),
        (["watch", "workload_number=-1"], "workload_number is -1"),
        (
            ["simulate", "output.gantt=a.txt"],
            "output.gantt is 'a.txt'; expected a file ending in .png, .pdf, .svg",
        ),
        (["simulate", "output.video=a.avi"], "output.video is 'a.avi'; expected a file ending in .gif"),
        (["simulate", "output.frames=0", "output.video=a.gif"], "output.frames is 0"),
    ],
)
def test_bad_words_are_one_line(words, said, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main([*words, "name=x"]) == 2
    error = capfd.readouterr().err.strip().splitlines()
    assert len(error) == 1
    assert said in error[0]
    assert not (tmp_path / "runs" / "x").exists()


def test_another_page_of_a_name_is_refused_or_replaces_it(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    few = ["workload.num_jobs=6", "cluster.num_servers=2", "schedulers=[fifo_backfill]"]
    assert main(["watch", *few, "name=w"]) == 0
    page = (tmp_path / "runs/w/watch.html").read_bytes()
    capfd.readouterr()
    assert main(["watch", *few, "name=w", "seed=1"]) == 2
    assert "runs/w has a run with seed=0, but this command has 1" in capfd.readouterr().err
    assert main(["simulate", *few[:2], "name=w", "overwrite=true"]) == 2
    assert "runs/w has a run of `ringyard watch`" in capfd.readouterr().err
    assert (tmp_path / "runs/w/watch.html").read_bytes() == page
    assert main(["watch", *few, "name=w", "seed=1", "overwrite=true"]) == 0
    assert (tmp_path / "runs/w/watch.html").read_bytes() != page


def test_simulate_draws_files(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = ["output.gantt=new/g.png", "output.video=v.gif", "output.frames=2"]
    assert main(["simulate", *SMALL, *words, "name=x"]) == 0
    assert "schedule: v.gif" in capfd.readouterr().out
    assert (tmp_path / "new" / "g.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "v.gif").read_bytes().startswith(b"GIF89a")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_runs_the_page(page):
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000"]
    done = subprocess.run(
        [*command, "--dump-dom", f"file://{page}#t=900&colour=loses"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert 'data-ready="true"' in done.stdout
    assert "0:15:00 of " in done.stdout
    assert len(re.findall(r'<tr data-job="\d+"|<tr class="" data-job', done.stdout)) == COUNT
