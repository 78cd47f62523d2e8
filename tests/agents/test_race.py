"""What a comparison says of its rows: who may do what, with which options, on which clusters."""

from contextlib import contextmanager

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from conftest import CONF, composed, leaf
from ringyard.errors import ConfigurationError
from ringyard_agents.configuration import WORLD, Entry, plain, scheduler_config
from ringyard_agents.learning.agent import powers_of
from ringyard_agents.measuring.compare import alike
from ringyard_agents.measuring.evaluate import Task, build, run_all
from ringyard_agents.measuring.selection import drawn_for, entries_of
from ringyard_baselines.scheduler import Powers

SLOW = "{slow:{scheduler:optimus@consolidate,options:{round_seconds:60}}}"


@contextmanager
def configs():
    """Hydra as the commands have it."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def entries(schedulers):
    return entries_of(composed("compare", f"schedulers={schedulers}"))


@pytest.mark.parametrize(
    ("action", "may"),
    [
        ("start", Powers.STARTS),
        ("start_oldest", Powers.STARTS),
        ("start_stop", Powers.STOPS),
        ("sharing", Powers.STOPS),
        ("partitioning", Powers.RESIZES),
        ("cores", Powers.STOPS | Powers.CORES),
        ("elastic", Powers.STOPS | Powers.RESIZES),
        ("full", Powers.STOPS | Powers.RESIZES | Powers.CORES),
    ],
)
def test_what_an_agent_may_do_follows_from_its_actions(action, may):
    assert powers_of(leaf("action", action)) == may


def test_entries_have_labels_rules_and_options():
    found = entries(f"[fifo,{SLOW},mine:runs/a]")
    assert found["fifo"] == Entry("fifo", "fifo")
    assert found["slow"] == Entry("slow", "optimus@consolidate", {"round_seconds": 60})
    assert found["mine"].is_agent
    thresholds = Entry("mine", "tiresias", {"thresholds_gpu_seconds": [100.0]})
    with configs():
        config = scheduler_config(found["slow"])
        assert scheduler_config(thresholds).thresholds_gpu_seconds == [100.0]  # replaced as a whole
    assert config.round_seconds == 60
    assert config.samples == 8  # what is not named stays
    assert config.placement._target_ == "ringyard.placement.consolidate"


@pytest.mark.parametrize(
    ("schedulers", "said"),
    [
        ("[{a:{scheduler:fifo},b:{scheduler:sjf}}]", "expected a name such as"),
        ("[{a:fifo}]", "expected a name such as"),
        ("[{a:{scheduler:fifo,option:{}}}]", "expected a name such as"),
        ("[{a:{options:{}}}]", "expected a name such as"),
        ("[{fifo:{scheduler:sjf}}]", "under the name 'fifo'; expected a name of its own"),
        ("[{fifo@pack:{scheduler:fifo@consolidate}}]", "under the name 'fifo@pack'"),
        ("[fifo:runs/a]", "under the name 'fifo'"),
        ("[{a/b:{scheduler:fifo}}]", "without /"),
        ("[fifo,fifo]", "of different names"),
        ("[]", "one or more entries"),
    ],
)
def test_entries_that_make_no_sense_are_refused(schedulers, said):
    with pytest.raises(ConfigurationError, match=said):
        entries(schedulers)


def test_options_that_a_scheduler_does_not_have_are_refused():
    with configs():
        with pytest.raises(ConfigurationError, match=r"slow: options .* expected some of .*round_seconds"):
            scheduler_config(Entry("slow", "optimus", {"rounds": 60}))
        with pytest.raises(ConfigurationError, match="is an agent and has no options"):
            scheduler_config(Entry("mine", "mine:runs/a", {"rounds": 60}))


def test_a_drawn_cluster_is_drawn_anew_for_each_workload():
    world = {"cluster": plain(composed("compare", "experiment=sjf_bco").cluster)}
    clusters = [build(drawn_for(world, 2_000_000, k)["cluster"]) for k in (0, 1, 1)]
    assert clusters[0] != clusters[1] == clusters[2]
    usual = {"cluster": plain(composed("compare").cluster)}
    assert drawn_for(usual, 2_000_000, 1) == usual


def test_rows_that_do_the_same_are_named():
    config = composed("compare", "cluster.num_servers=1", "workload.num_jobs=20", "workload.load=10")
    world = {part: plain(config[part]) for part in WORLD}
    with configs():
        schedulers = {
            name: plain(scheduler_config(Entry.read(name))) for name in ("fifo@pack", "fifo@spread", "sjf")
        }
    tasks = [Task(name, one, world, k, 0) for k in range(2) for name, one in schedulers.items()]
    (note,) = alike(run_all(tasks, 1, lambda result: None))
    assert "fifo@pack and fifo@spread" in note  # one server: no rule places otherwise
    assert "sjf" not in note
