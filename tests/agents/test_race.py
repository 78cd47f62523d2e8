"""What a comparison says of its rows: who may do what, with which options, on which clusters."""

import csv
import shlex
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from conftest import CONF, composed, leaf
from ringyard.errors import ConfigurationError
from ringyard_agents.cli import main
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, scheduler_config, to_plain
from ringyard_agents.evaluation.compare import _mean_of_first, plan_comparisons
from ringyard_agents.evaluation.evaluate import EvaluationTask, build_object, make_simulator, run_tasks
from ringyard_agents.evaluation.results_frame import Results
from ringyard_agents.evaluation.selection import (
    COMPARISON_SEED_OFFSET,
    ComparisonRequest,
    benchmark_experiments,
    pretrained_agents_for,
    read_entries,
    workload_environment,
)
from ringyard_agents.evaluation.tune import TUNING_SEED_OFFSET
from ringyard_agents.evaluation.tuned_configs import (
    AlternativeConfig,
    TunedScheduler,
    format_options,
    read_tuned,
    tuned_name_for,
    with_tuned_options,
    write_tuned,
)
from ringyard_agents.learning.agent import agent_capabilities
from ringyard_agents.report.comparison_table import equal_schedule_notes
from ringyard_baselines.scheduler import Capabilities

SLOW = "{slow:{scheduler:optimus@consolidate,options:{round_seconds:60}}}"
SLOW_WRONG = "schedulers=[{slow:{scheduler:las,options:{round_seconds:-5}}}]"


@contextmanager
def configs():
    """Hydra as the commands have it."""
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


def entries(schedulers):
    return read_entries(composed("compare", f"schedulers={schedulers}").schedulers)


@pytest.mark.parametrize(
    ("action", "capabilities"),
    [
        ("start", Capabilities.START),
        ("start_oldest", Capabilities.START),
        ("start_stop", Capabilities.PREEMPT),
        ("sharing", Capabilities.PREEMPT),
        ("partitioning", Capabilities.RESIZE),
        ("cores", Capabilities.PREEMPT | Capabilities.CORES),
        ("link_shares", Capabilities.CORES),
        ("elastic", Capabilities.PREEMPT | Capabilities.RESIZE),
        ("full", Capabilities.PREEMPT | Capabilities.RESIZE | Capabilities.CORES),
    ],
)
def test_what_an_agent_may_do_follows_from_its_actions(action, capabilities):
    assert agent_capabilities(leaf("action", action)) == capabilities


def test_entries_have_labels_rules_and_options():
    found = entries(f"[fifo_backfill,{SLOW},mine:runs/a]")
    assert found["fifo_backfill"] == SchedulerEntry("fifo_backfill", "fifo_backfill")
    assert found["slow"] == SchedulerEntry("slow", "optimus@consolidate", {"round_seconds": 60})
    assert found["mine"].is_agent
    thresholds = SchedulerEntry("mine", "tiresias", {"thresholds_gpu_seconds": [100.0]})
    with configs():
        config = scheduler_config(found["slow"])
        assert scheduler_config(thresholds).thresholds_gpu_seconds == [100.0]  # replaced as a whole
    assert config.round_seconds == 60
    assert config.samples == 8  # what is not named stays
    assert config.placement._target_ == "ringyard.placement.consolidate"


@pytest.mark.parametrize(
    ("schedulers", "said"),
    [
        ("[{a:{scheduler:fifo_backfill},b:{scheduler:sjf}}]", "expected a name such as"),
        ("[{a:fifo_backfill}]", "expected a name such as"),
        ("[{a:{scheduler:fifo_backfill,option:{}}}]", "expected a name such as"),
        ("[{a:{options:{}}}]", "expected a name such as"),
        (
            "[{fifo_backfill:{scheduler:sjf}}]",
            "with the label 'fifo_backfill', the name of another scheduler",
        ),
        (
            "[{fifo_backfill@pack:{scheduler:fifo_backfill@consolidate}}]",
            "with the label 'fifo_backfill@pack'",
        ),
        ("[fifo_backfill:runs/a]", "with the label 'fifo_backfill'"),
        ("[{a/b:{scheduler:fifo_backfill}}]", "without /"),
        ("[fifo_backfill,fifo_backfill]", "with different labels"),
        ("[]", "expected one or more with different labels"),
    ],
)
def test_entries_that_make_no_sense_are_refused(schedulers, said):
    with pytest.raises(ConfigurationError, match=said):
        entries(schedulers)


@pytest.mark.parametrize(
    "options",
    [
        {"_target_": "os.system"},
        {"placement": {"_target_": "os.system"}},
        {"round_seconds": {"_target_": "os.system"}},
        {"round_seconds": [{"_partial_": True}]},
    ],
)
def test_options_name_nothing_that_is_called(options):
    with configs(), pytest.raises(ConfigurationError, match="expected some of round_seconds, each a number"):
        scheduler_config(SchedulerEntry("mine", "las", options))


FIFO = "scheduler: fifo_backfill@pack, options: {}, workloads: 1, mean: 1"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "it is None; expected a valid dictionary"),
        ("[1]", r"it is \[1\]; expected a valid dictionary"),
        ("fifo_backfill:", "fifo_backfill is None; expected a valid dictionary"),
        ("fifo_backfill: {}", "fifo_backfill.scheduler is {}; Field required"),
        ("sjf: {" + FIFO + "}", "sjf.scheduler is 'fifo_backfill@pack'; expected sjf or sjf@rule"),
        (
            "fifo_backfill: {" + FIFO.replace("mean: 1", "mean: much") + "}",
            "fifo_backfill.mean is 'much'; expected a valid number",
        ),
        ("fifo_backfill: {" + FIFO.replace("@pack", "@nosuch") + "}", "rule 'nosuch'; expected one of"),
        (
            "fifo_backfill: {" + FIFO + ", others: [{" + FIFO + "}]}",
            "fifo_backfill.others.0.change is .*; Field required",
        ),
        ("a: [", "while parsing"),
        ("a: &a [*a]", "nested deeper than 50 levels"),
        ("fifo: {" + FIFO + ', options: {a: "${oc.env:HOME}"}}', "without interpolations"),
    ],
)
def test_best_that_tune_did_not_write_is_told_apart(content, said, tmp_path):
    file = tmp_path / "tuned.yaml"
    file.write_text(content)
    with pytest.raises(ConfigurationError, match=rf"not a file of `ringyard tune`: .*{said}(.|\n)*output="):
        read_tuned(str(file))
    with pytest.raises(ConfigurationError, match=r"expected a file that `ringyard tune` wrote, or one of"):
        read_tuned(str(tmp_path / "nothing.yaml"))


def test_what_is_written_of_the_best_reads_the_same(tmp_path):
    options = {"thresholds_gpu_seconds": [3600.0]}
    lwf, pack = (SchedulerEntry(name, name, options) for name in ("tiresias@lwf", "tiresias@pack"))
    beside = AlternativeConfig.of(lwf, 4, change=float("inf"))  # the best blocks no job
    found = {"tiresias": TunedScheduler.of(pack, 12, mean=0.0, others=[beside])}
    file = tmp_path / "tuned.yaml"
    write_tuned(file, found, {"cluster": {}}, "ringyard tune", "blocking_rate")
    assert read_tuned(str(file)) == found
    assert "&" not in file.read_text()  # no aliases: people read it


LAS = ("tune", "schedulers=[las]", "workload.num_jobs=5")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("compare", "schedulers={slow:{scheduler:las}}"),
            "expected a list such as [fifo@consolidate,",
        ),
        (("compare", "schedulers=[las@nosuch]"), "las@nosuch has the placement rule 'nosuch'; expected one"),
        (("compare", SLOW_WRONG, "seeds=1", "workload.num_jobs=5"), "las.round_seconds is -5; expected"),
        (("tune", "rules=[nosuch]"), "rules has the placement rule 'nosuch'; expected one of by_tier"),
        (("tune", "fast_schedulers=[nosuch]"), "fast_schedulers has 'nosuch'; expected some of"),
        (
            ("tune", "options={fifo_backfill:{reserve_unplaced:[true]}}"),
            "options has fifo_backfill, which conf/tune.yaml lacks",
        ),
        (("tune", "output=/dev/null/tuned.yaml"), "cannot be written (Not a directory); expected a file"),
        (("tune", "output=."), "cannot be written (Is a directory)"),
        ((*LAS, "rules=[pack]", "~options.las"), "nothing to tune: las: has one placement rule"),
        ((*LAS, "options.las.round_seconds=[60.0,-5]"), "las.round_seconds is -5; expected"),
        ((*LAS, "+options.las.nosuch=[1]"), "options is {'nosuch': 1}; expected some of round_seconds"),
        (
            ("tune", "schedulers=[fifo_backfill]", "+options.fifo_backfill.reserve_unplaced=[3]"),
            "fifo_backfill.reserve_unplaced is 3; expected true or",
        ),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_runs(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    GlobalHydra.instance().clear()
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "RINGYARD_DEBUG" not in error  # it is an error of ours
    assert not list(tmp_path.iterdir())


def test_options_that_a_scheduler_does_not_have_are_refused():
    with configs():
        with pytest.raises(ConfigurationError, match=r"slow: options .* expected some of .*round_seconds"):
            scheduler_config(SchedulerEntry("slow", "optimus", {"rounds": 60}))
        with pytest.raises(ConfigurationError, match=r"mine: options .* expected some of .*preemption_price"):
            scheduler_config(SchedulerEntry("mine", "mine:runs/a", {"rounds": 60}))
        for name in ("trust", "checkpoint", "name", "placement"):
            with pytest.raises(ConfigurationError, match="mine: options"):
                scheduler_config(SchedulerEntry("mine", "mine:runs/a", {name: "x"}))


def test_a_drawn_cluster_is_drawn_anew_for_each_workload():
    world = {"cluster": to_plain(composed("compare", "experiment=sjf_bco").cluster)}
    clusters = [build_object(workload_environment(world, 2_000_000, k)["cluster"]) for k in (0, 1, 1)]
    assert clusters[0] != clusters[1] == clusters[2]
    assert clusters[1] != build_object(
        workload_environment(world, 2_000_001, 0)["cluster"]
    )  # seeds share no clusters
    usual = {"cluster": to_plain(composed("compare").cluster)}
    assert workload_environment(usual, 2_000_000, 1) == usual


def test_failures_are_those_of_seed_and_workload():
    world = {
        part: to_plain(composed("compare", "failures=frequent", "workload.num_jobs=40")[part])
        for part in ENVIRONMENT_GROUPS
    }

    def first_failure(seed, workload):
        sim = make_simulator(world, workload, seed, None)
        return float(sim.state.clusters["next_change_seconds"][0])

    one = first_failure(2_000_000, 1)
    assert one == first_failure(2_000_000, 1)
    assert one not in (first_failure(3_000_000, 1), first_failure(2_000_000, 2), first_failure(2_000_001, 0))


def test_rows_that_do_the_same_are_named():
    config = composed("compare", "cluster.num_servers=1", "workload.num_jobs=20", "workload.load=10")
    world = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    with configs():
        schedulers = {
            name: to_plain(scheduler_config(SchedulerEntry.read(name)))
            for name in ("fifo_backfill@pack", "fifo_backfill@spread", "sjf")
        }
    tasks = [EvaluationTask(name, one, world, k, 0) for k in range(2) for name, one in schedulers.items()]
    (note,) = equal_schedule_notes(Results.of(run_tasks(tasks, 1, lambda result: None)).jobs)
    assert "fifo_backfill@pack and fifo_backfill@spread" in note  # one server: no rule places otherwise
    assert "sjf" not in note


TUNE = (
    *(
        "tune",
        "name=tuned",
        "workload.num_jobs=30",
        "workload.load=20",
        "screening_seeds=1",
        "seeds=2",
        "finalists=2",
    ),
    *(
        "schedulers=[fifo_backfill,srtf,las,sjf_bco]",
        "rules=[consolidate,pack]",
        "fast_schedulers=[fifo_backfill]",
        "fast_seeds=3",
    ),
    "options={las:{round_seconds:[50.0]}}",
)


def test_what_tuning_finds_is_what_comparisons_run(tmp_path, monkeypatch, capsys):
    def command(*words):
        GlobalHydra.instance().clear()
        assert main([*words, "workers=1"]) == 0
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    assert "runs were stored by an earlier command" not in command(*TUNE)
    best = read_tuned(str(tmp_path / "runs/tuned/tuned.yaml"))
    assert list(best) == [
        "fifo_backfill",
        "srtf",
        "las",
    ]  # SJF-BCO defines its placement and has no options here
    for one in best.values():
        assert one.entry.label == one.entry.scheduler
        assert one.workloads == (3 if one.entry.name == "fifo_backfill" else 2)
    rows = list(csv.DictReader((tmp_path / "runs/tuned/table.csv").read_text().splitlines()))
    las = [(row["tried"], row["options"]) for row in rows if row["scheduler"] == "las"]
    assert ("las@consolidate", "") in las
    assert any(options for _, options in las)
    table, apart = (tmp_path / "runs/tuned/table.md").read_text().split("\n\nDropped after fewer workloads")
    most = {name: one.workloads for name, one in best.items()}
    for row in rows:
        dropped = int(row["workloads"]) < most[row["scheduler"]]
        assert row["dropped"] == str(dropped)
        line = " | ".join(row[name] for name in ("scheduler", "tried", "options", "workloads"))
        assert line in (apart if dropped else table)
    assert {row["dropped"] for row in rows} == {"True", "False"}
    assert all(float(row["change"]) >= -1e-9 for row in rows if row["workloads"] == "2")
    assert [row["tried"] for row in rows if row["best"] == "True"] == [
        one.entry.scheduler for one in best.values()
    ]
    recorded = (tmp_path / "runs/tuned/tuned.yaml").read_text().splitlines()[0]
    printed = shlex.split(recorded.partition("# ")[2].partition(": mean_jct on")[0])
    assert printed == ["ringyard", *TUNE, "workers=1"]
    again = command(*printed[1:-1])
    assert "runs were stored by an earlier command" in again
    assert "means over the same 2 workloads" in again  # the fast scheduler ran on 3
    said = command(
        *("compare", "name=compared", "workload.num_jobs=30", "seeds=2", "plots=false"),
        *(
            "tensorboard=false",
            "schedulers=[fifo_backfill,srtf,las,sjf@pack]",
            "tuning=runs/tuned/tuned.yaml",
        ),
        *("reference=srtf",),
    )
    table = list(csv.DictReader((tmp_path / "runs/compared/table.csv").read_text().splitlines()))
    entries = {row["scheduler"]: row["options"] for row in table}
    assert entries == {one.entry.label: format_options(one.entry) for one in best.values()} | {"sjf@pack": ""}
    said = " ".join(said.split())
    assert f"vs {best['srtf'].entry.label}" in said
    assert "tuned.yaml was tuned in another environment (ringyard tune name=tuned" in said  # of another load
    assert "not tuned for this environment: sjf@pack; their placement rules" in said


def test_options_that_were_chosen_are_printed():
    found = with_tuned_options(
        {"las": SchedulerEntry("las", "las"), "las@pack": SchedulerEntry("las@pack", "las@pack")},
        {
            "las": TunedScheduler.of(
                SchedulerEntry("las@lwf", "las@lwf", {"round_seconds": 60.0}), 2, mean=1.0
            )
        },
    )
    assert list(found) == ["las@lwf", "las@pack"]  # who names a rule keeps it
    assert format_options(found["las@lwf"]) == "round_seconds=60.0"


def test_who_runs_twice_is_told():
    best = {"las": TunedScheduler.of(SchedulerEntry("las@pack", "las@pack"), 2, mean=1.0)}
    with pytest.raises(
        ConfigurationError, match=r"las@pack twice: once by name, and once as the tuned configuration of las"
    ):
        with_tuned_options({name: SchedulerEntry(name, name) for name in ("las", "las@pack")}, best)


@pytest.mark.parametrize(
    "environment", [name for name in benchmark_experiments() if (CONF / "tuned" / f"{name}.yaml").exists()]
)
def test_a_changed_environment_asks_to_be_tuned_anew(environment):
    config = composed("tune", f"experiment={environment}")
    assert tuned_name_for({part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}) == environment


def test_what_ships_is_taken_where_it_was_found():
    sharing, smaller = (
        {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
        for config in (
            composed("compare", "experiment=sharing"),
            composed("compare", "experiment=sharing", "workload.num_jobs=5"),
        )
    )
    with configs():
        assert tuned_name_for(sharing) == "sharing"
        assert tuned_name_for(smaller) is None
        for words, name in (
            (("schedulers=[fifo_backfill]", "experiments=[sharing]"), "sharing"),
            (("schedulers=all",), "sharing"),
            (("schedulers=[fifo_backfill]",), None),
            (("schedulers=all", "tuning=full"), "full"),
        ):
            assert ComparisonRequest.read(compose("compare", list(words))).tuned_name(sharing) == name


def test_agents_that_were_judged_in_a_world_run_beside_all_schedulers_there(monkeypatch):
    worlds = {
        name: {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
        for name, config in (
            ("sharing", composed("compare", "experiment=sharing")),
            ("cpu_gpu", composed("compare", "experiment=cpu_gpu")),
            ("contention", composed("compare", "experiment=contention")),
            ("smaller", composed("compare", "experiment=sharing", "workload.num_jobs=5")),
        )
    }
    assert list(pretrained_agents_for(worlds["sharing"])[0]) == ["zoo:joint", "zoo:sharing", "zoo:unknown"]
    assert list(pretrained_agents_for(worlds["cpu_gpu"])[0]) == ["zoo:joint", "zoo:unknown"]
    assert list(pretrained_agents_for(worlds["contention"])[0]) == ["zoo:joint", "zoo:unknown"]
    assert pretrained_agents_for(worlds["smaller"]) == ({}, {})
    # two are enough for "all"
    monkeypatch.setattr(
        "ringyard_agents.config.compose.scheduler_names", lambda: ["allocator", "fifo_backfill"]
    )
    with configs():
        config = compose("compare", ["experiment=sharing", "schedulers=[all,zoo:joint]", "seeds=1"])
        [race] = plan_comparisons(ComparisonRequest.read(config)).values()
        assert {"zoo:joint", "zoo:sharing", "allocator"} <= set(race.entries)
        assert any("zoo:joint, zoo:sharing, zoo:unknown" in note for note in race.notes)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        [race] = plan_comparisons(
            ComparisonRequest.read(compose("compare", ["experiment=sharing", "schedulers=all", "seeds=1"]))
        ).values()
        assert not any(label.startswith("zoo:") for label in race.entries)
        assert "ringyard[agents]" in race.refused["zoo:sharing"]


def test_training_tuning_and_comparing_never_meet_a_workload():
    """Each starts at a seed of its own, a million apart, to which a command's `seed` is added."""
    evaluated = composed("train").evaluate.workload_seed
    assert min(np.diff(sorted([0, evaluated, COMPARISON_SEED_OFFSET, TUNING_SEED_OFFSET]))) >= 1_000_000
    config = composed("compare")
    world = {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}
    drawn = [
        make_simulator(world, 0, seed, None).jobs.submit_seconds[1]
        for seed in (0, COMPARISON_SEED_OFFSET, TUNING_SEED_OFFSET)
    ]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize("file", sorted((CONF / "tuned").glob("*.yaml")), ids=lambda file: file.stem)
@pytest.mark.slow
def test_what_ships_as_best_builds(file):
    with configs():
        for best in read_tuned(file.stem).values():
            build_object(to_plain(scheduler_config(best.entry)))


def test_the_objective_is_the_agents_unless_it_failed():
    kinds = {"fifo_backfill": False, "agent": True}
    entries = {name: SimpleNamespace(is_agent=kind) for name, kind in kinds.items()}
    runs = pd.DataFrame({"scheduler": ["fifo_backfill", "agent", "agent"], "mean_jct": [9.0, 2.0, 4.0]})
    assert _mean_of_first(entries, runs) == [3.0]
    assert _mean_of_first(entries, runs[:1]) == []
