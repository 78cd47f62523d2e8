"""A page of evidence for each preset, and what `benchmarks/presets.py` switches off costs nothing."""

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from conftest import CONF, ROOT, composed
from ringyard_agents.configuration import WORLD, Entry, plain, scheduler_config
from ringyard_agents.measuring.evaluate import Task, evaluate
from ringyard_agents.measuring.selection import benchmarks

LOST_TO = {
    "contention": "contention",
    "sharing": "interference",
    "cpu_gpu": "input",
    "elastic": "size",
    "full": "gpu_types",
}


@pytest.fixture
def physics(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from presets import PHYSICS

    return PHYSICS


def test_every_benchmark_has_its_page(physics):
    assert set(physics) == set(benchmarks())


@pytest.mark.parametrize(("preset", "part"), LOST_TO.items())
def test_what_is_switched_off_costs_nothing(physics, preset, part):
    entry = {"contention": "fifo@spread", "sharing": "fifo@share_any", "elastic": "elastic_dp"}.get(
        preset, "fifo"
    )
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        scheduler = plain(scheduler_config(Entry.read(entry)))
    lost = []
    for overrides in ((), physics[preset].overrides):
        config = composed("compare", f"experiment={preset}", *overrides)
        world = {group: plain(config[group]) for group in WORLD}
        lost.append(getattr(evaluate(Task(entry, scheduler, world, 0, 0)).metrics, f"lost_to_{part}"))
    assert abs(lost[0]) > 5.0
    assert abs(lost[1]) < 1e-6
