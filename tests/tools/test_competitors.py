"""An agent is held against every published scheduler that knows and may no more than its rule."""

import pytest
from hydra import compose, initialize_config_dir

from conftest import names
from ringyard.config_folder import config_folder
from ringyard_agents.config.compose import SchedulerEntry
from ringyard_agents.evaluation.selection import ComparisonRequest
from ringyard_agents.evaluation.tuned_configs import alternatives, read_tuned
from tools.zoo.competitors import competitors
from tools.zoo.evaluation import race_of
from tools.zoo.recipes import World

BLIND_STARTS = {"fifo_backfill", "fifo", "random", "burst_sharing", "interference_aware"}
BLIND = BLIND_STARTS | {
    "las", "tiresias", "e_tiresias", "gittins", "gandiva", "gavel", "drf", "coda", "smallest_first",
    "elastic_dp", "pollux", "optimus", "ones", "morphling", "sia",
    "evict_youngest", "fixed_quota", "gfs",
}  # fmt: skip
STARTS = BLIND_STARTS | {"sjf", "smallest_work", "easy", "sjf_bco", "sjf_bsbf", "ada_srsf"}


@pytest.fixture(autouse=True)
def composing():
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        yield


def found(rule, *words):
    return {
        one.name
        for one in competitors(
            SchedulerEntry.read(rule), ComparisonRequest.read(compose("compare", list(words)))
        )
    }


def test_who_does_not_know_durations_is_held_against_all_who_do_not():
    assert found("allocator_attained", "experiment=helios_like") == BLIND


def test_who_only_starts_jobs_is_held_against_all_who_only_start():
    fewest = {"fewest": {"scheduler": "smallest_first@pack", "options": {"preemptive": False}}}
    config = ComparisonRequest.read(compose("compare", ["experiment=helios_like"]))
    assert {one.name for one in competitors(SchedulerEntry.read("smallest_work"), config)} == STARTS
    assert {one.name for one in competitors(SchedulerEntry.read(fewest), config)} == BLIND_STARTS


def test_who_knows_and_may_everything_is_held_against_all_published():
    every = found("allocator", "experiment=helios_like")
    assert every > BLIND | STARTS
    assert {"srsf", "srtf", "synergy_tune", "aiturbo", "themis"} <= every
    assert not every & {"allocator", "allocator_attained", "hazard"}


def test_who_cannot_serve_the_jobs_is_none():
    assert "para_max" not in found("allocator", "experiment=helios_like")
    assert "sjf_bco_ff" in found("allocator", "experiment=contention")
    assert "sjf_bco_ff" not in found("allocator", "experiment=helios_like")


def test_options_of_a_best_may_put_it_into_another_class(tmp_path):
    file = tmp_path / "tuned.yaml"
    file.write_text(
        "smallest_first: {scheduler: smallest_first@pack, options: {preemptive: false}, workloads: 1,"
        " mean: 1.0}"
    )
    words = ["experiment=helios_like", f"tuning={file}"]
    assert found("smallest_work", *words) == STARTS | {"smallest_first"}


def test_a_recipe_names_more_beside_all():
    fewest = {"fewest": {"scheduler": "smallest_first@pack", "options": {"preemptive": False}}}
    world = World("x", "x", ["experiment=helios_like"], "helios_like", ["all", fewest], [fewest], 2)
    labels = list(race_of(world, {}, 2).entries)
    assert labels[-1] == "fewest"
    assert {label.partition("@")[0] for label in labels} == BLIND_STARTS | {"fewest"}
    named = World(
        "x",
        "x",
        ["experiment=helios_like"],
        "helios_like",
        ["fifo_backfill", "all"],
        ["allocator_attained"],
        2,
    )
    labels = [label.partition("@")[0] for label in race_of(named, {}, 2).entries]
    by_attained_service = "synergy_tune"  # with order=las, which was tried beside its own order
    assert sorted(labels) == sorted([*BLIND, by_attained_service, "allocator_attained"])


def test_who_is_of_another_class_at_its_best_takes_the_best_with_which_it_is_not(tmp_path):
    file = tmp_path / "tuned.yaml"
    file.write_text(
        "drf: {scheduler: drf@lwf, options: {}, workloads: 2, mean: 1.0, others: ["
        "{scheduler: drf@lwf, options: {round_seconds: 60.0}, workloads: 1, change: 0.1},"
        "{scheduler: drf@pack, options: {round_seconds: 30.0}, workloads: 1, change: 0.2},"
        "{scheduler: drf@pack, options: {}, workloads: 1, change: 0.3}]}"
    )
    world = World("x", "x", ["experiment=helios_like"], str(file), ["all"], ["allocator_attained"], 2)
    drf = race_of(world, {}, 2).entries["drf@pack"]
    assert drf.options == {"round_seconds": 30.0}
    told = World("x", "x", ["experiment=helios_like"], str(file), ["all"], ["allocator"], 2)
    assert "drf@lwf" in race_of(told, {}, 2).entries


@pytest.mark.parametrize("name", names("tuned"))
def test_what_is_kept_beside_the_best_is_what_may_compete(name):
    for best in read_tuned(name).values():
        assert alternatives(best) == best.others
