"""`benchmarks/physics_ablation.py` writes a page for each environment; physics that is off costs nothing."""

import re

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from conftest import CONF, ROOT, composed
from ringyard_agents.config.compose import (
    ENVIRONMENT_GROUPS,
    SchedulerEntry,
    scheduler_config,
    scheduler_names,
    to_plain,
)
from ringyard_agents.evaluation.evaluate import EvaluationTask, run_task
from ringyard_agents.evaluation.selection import benchmark_experiments

LOST_TO = {
    "contention": "contention",
    "sharing": "interference",
    "cpu_gpu": "input",
    "elastic": "size",
    "full": "gpu_types",
}


@pytest.fixture
def pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import physics_ablation

    return physics_ablation


@pytest.fixture
def physics(pages):
    return pages.PHYSICS


def test_pages_name_benchmarks_and_schedulers(physics):
    assert set(physics) <= set(benchmark_experiments())
    for one in physics.values():
        assert {one.ignores.partition("@")[0], one.heeds, *one.left_out} <= set(scheduler_names())
        assert one.heeds not in one.left_out


def test_a_page_says_what_ignoring_the_question_costs(pages, monkeypatch):
    """Parts of a row add up to its mean JCT; who ignores the question loses by it, with the physics on."""
    monkeypatch.setattr(pages, "scheduler_names", lambda: ["fifo_backfill", "smallest_work", "para_max"])
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        text = pages.page("contention", 1, 1)
    assert re.search(
        r"`fifo_backfill@spread` ignores .* is \d+ % above .*; with this physics off, equal to it", text
    )
    on, off = (part.split("\n\n")[1 + first] for first, part in enumerate(text.split("## ")[1:]))
    for table in (on, off):
        head, _, *rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        assert len(rows) == 3  # para_max cannot serve these jobs
        parts = [i for i, name in enumerate(head) if name in ("queueing", "work") or "lost to" in name]
        for row in rows:
            values = [float(cell.replace(",", "")) for cell in row[1:-1]]
            assert values[0] == pytest.approx(sum(values[i - 1] for i in parts), abs=2.0)  # whole seconds
        assert "mean rho" in head


@pytest.mark.parametrize(("environment", "part"), LOST_TO.items())
def test_what_is_switched_off_costs_nothing(physics, environment, part):
    entry = {
        "contention": "fifo_backfill@spread",
        "sharing": "fifo_backfill@share_any",
        "elastic": "elastic_dp",
    }.get(environment, "fifo_backfill")
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        scheduler = to_plain(scheduler_config(SchedulerEntry.read(entry)))
    lost = []
    for overrides in ((), physics[environment].overrides):
        config = composed("compare", f"experiment={environment}", *overrides)
        world = {group: to_plain(config[group]) for group in ENVIRONMENT_GROUPS}
        lost.append(
            getattr(run_task(EvaluationTask(entry, scheduler, world, 0, 0)).metrics, f"lost_to_{part}")
        )
    assert abs(lost[0]) > 5.0
    assert abs(lost[1]) < 1e-6
