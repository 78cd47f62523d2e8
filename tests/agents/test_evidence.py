"""Physics that the results `physics_off_...` switch off costs nothing there."""

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from conftest import CONF, composed
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import EvaluationTask, run_task
from tools.figures import commands

#: {experiment: (what its jobs lose time to, a scheduler that pays no heed to it)}
LOST_TO = {
    "contention": ("contention", "fifo_backfill@spread"),
    "sharing": ("interference", "fifo_backfill@share_any"),
    "cpu_gpu": ("input", "fifo_backfill"),
    "elastic": ("size", "elastic_dp"),
    "full": ("gpu_types", "fifo_backfill"),
}


@pytest.mark.parametrize(("environment", "part", "label"), [(name, *one) for name, one in LOST_TO.items()])
def test_what_is_switched_off_costs_nothing(environment, part, label):
    words = commands()[f"physics_off_{environment}"]["words"]
    choices = (f"experiment={environment}", f"tuning={environment}", "schedulers=all", "seeds=10")
    assert tuple(words[:4]) == choices
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        scheduler = to_plain(scheduler_config(SchedulerEntry.read(label)))
    lost = []
    for overrides in ((), words[4:]):
        config = composed("compare", choices[0], *overrides)
        world = {group: to_plain(config[group]) for group in ENVIRONMENT_GROUPS}
        metrics = run_task(EvaluationTask(label, scheduler, world, 0, 0)).metrics
        lost.append(getattr(metrics, f"lost_to_{part}"))
    assert abs(lost[0]) > 5.0
    assert abs(lost[1]) < 1e-6
