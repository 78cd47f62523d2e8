"""Claims beside measurements, and what a comparison runs."""

import json
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra

from conftest import CONF, composed
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.cli import main
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, scheduler_config, to_plain
from ringyard_agents.evaluation.evaluate import make_simulator
from ringyard_agents.evaluation.selection import (
    ComparisonRequest,
    benchmark_experiments,
    read_entries,
    supported_schedulers,
)
from ringyard_agents.reproduction import run
from ringyard_agents.reproduction.run import (
    Claim,
    _trained,
    claim_rows,
    measure_claim,
    read_claims,
    read_paper,
    scheduler_tasks,
)
from tools import reproduction, stored_reproductions
from tools.reproduction import pages, read_ablations, read_tables
from tools.stored_reproductions import (
    STORED,
    Reproduction,
    command,
    paper_content,
    stale_rows,
    stored_papers,
    stored_reproduction,
)

PAGE = Path(__file__).parents[2] / "docs" / "reproduction.md"


def measured(form, claimed, own, other=None):
    claim = Claim(
        text="text",
        case="case",
        scheduler="a",
        reference=None if other is None else "b",
        metric="mean_jct",
        form=form,
        claimed=claimed,
    )
    runs = {"a": own} | ({} if other is None else {"b": other})
    figures = {"case": {label: {"mean_jct": np.array(one, dtype=float)} for label, one in runs.items()}}
    return measure_claim(claim, figures)


def test_forms_of_claims():
    assert measured("change", -0.5, [5, 5], [10, 10]).interval.value == pytest.approx(-0.5)
    assert measured("ratio", 2.0, [5, 5], [10, 10]).interval.value == pytest.approx(2.0)
    assert measured("growth", 2.0, [20, 20], [10, 10]).interval.value == pytest.approx(2.0)
    assert measured("value", 5.0, [5, 5]).interval.value == 5.0


def test_verdicts():
    assert measured("change", -0.5, [5, 5], [10, 10]).verdict.startswith("yes")
    assert measured("change", -0.2, [5, 5], [10, 10]).verdict == "direction only: stronger"
    assert measured("change", -0.8, [5, 5], [10, 10]).verdict == "direction only: weaker"
    assert measured("change", 0.5, [5, 5], [10, 10]).verdict == "no: not even the direction"
    assert measured("change", -0.1, [5, 12], [10, 10]).verdict == "inconclusive: so is no effect"
    assert measured("value", 4.0, [5, 5]).verdict == "no: +25%"
    assert measured("at_most", 1.0, [5, 5], [10, 10]).verdict.startswith("yes")
    assert measured("at_most", 1.0, [15, 15], [10, 10]).verdict == "no"
    assert measured("at_least", 3.0, [5, 5]).verdict == "yes: not less"
    assert measured("at_least", 6.0, [5, 5]).verdict == "no"
    assert measured("ratio", None, [5, 5], [10, 10]).verdict == "no public figure"
    assert claim_rows([measured("ratio", None, [5, 5], [10, 10])])[0][1:3] == (
        "not public",
        "2.00x [2.00x, 2.00x]",
    )
    assert measured("change", -0.5, [5, 5], [0, 0]).verdict == "no: the reference is 0"


def test_claims_are_checked():
    row = {
        "text": "x",
        "scheduler": "a",
        "reference": "b",
        "metric": "mean_jct",
        "form": "change",
        "claimed": 1,
    }
    assert read_claims([row], ["only"])[0].case == "only"
    for wrong, what in (
        ({"case": "none"}, "case"),
        ({"form": "odd"}, "form"),
        ({"reference": None}, "reference"),
    ):
        with pytest.raises(ConfigurationError, match=what):
            read_claims([row | wrong], ["only"])


@pytest.mark.parametrize("paper", config_files("reproduction"))
def test_every_reproduction_composes_and_says_what_differs(paper):
    content = read_paper(paper)
    assert content["seeds"] >= 20
    assert len(content["deviations"]) >= 1
    for shown in (content, paper_content(paper)):
        claims = read_claims(shown["claims"], list(shown["cases"]))
        assert set(shown["headlines"]) <= {claim.text for claim in claims}
        read_tables(shown.get("tables", []), shown["cases"])
        for claim in [*claims, *read_ablations(shown)]:
            entries = shown["cases"][claim.case]["schedulers"]
            assert {claim.scheduler, claim.reference or claim.scheduler} <= set(entries)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for case in content["cases"].values():
            for entry in case["schedulers"].values():
                if "train" in entry:
                    assert compose("train", [*case["overrides"], *entry["train"]]).total_decisions >= 0
            ready = {k: v for k, v in case["schedulers"].items() if "train" not in v}
            task = scheduler_tasks({**case, "schedulers": ready}, 1, content["rule"])[0]
            assert len(make_simulator(task.environment, 0, 0, None).jobs) > 0


@pytest.mark.parametrize("paper", ["gadget", "sjf_bco"])
def test_a_drawn_cluster_is_drawn_anew_for_each_seed(paper):
    content = read_paper(paper)
    case = next(iter(content["cases"].values()))
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        tasks = scheduler_tasks(case, 3, content["rule"])
    assert [(one.seed, one.environment["cluster"]["seed"]) for one in tasks] == [
        (seed, seed) for seed in range(3) for _ in case["schedulers"]
    ]


def test_a_scheduler_can_have_an_environment_of_its_own():
    fast = ["performance=composite", "performance.batch_split=by_speed"]
    rows = {"equal": {"scheduler": "fifo"}, "by speed": {"scheduler": "fifo", "environment": fast}}
    case = {"overrides": ["experiment=sharing"], "schedulers": rows}
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        tasks = scheduler_tasks(case, 2, "pack")
    splits = [task.environment["performance"].get("batch_split") for task in tasks]
    assert splits == [None, "by_speed"] * 2
    assert [task.seed for task in tasks] == [0, 0, 1, 1]


def test_the_printed_training_is_the_one_that_runs(tmp_path, monkeypatch):
    ran, lines = [], []
    monkeypatch.setattr(
        "subprocess.run", lambda words, **_: ran.append(words) or SimpleNamespace(returncode=0)
    )
    case = {"overrides": ["workload.num_jobs=9"], "schedulers": {"A": {"train": ["environments=[a b]"]}}}
    _trained(case, tmp_path, lines.append)
    assert shlex.split(lines[0].removeprefix("training A: "))[1:] == ran[0][3:-1]


def test_options_of_an_entry_say_only_what_differs():
    case = read_paper("ones")["cases"]["delta counts from a job's own last change"]
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        ones, _ = scheduler_tasks(case, 1, "pack")
    told = {name: ones.scheduler[name] for name in ("redeploy_clock", "generations", "epoch_unit", "deploy")}
    assert told == {"redeploy_clock": "own", "generations": 1, "epoch_unit": "data_set", "deploy": "whole"}


def test_a_sweep_has_a_row_for_each_case():
    cases = {
        "small": {"schedulers": {"a": {}, "b": {}}},
        "large": {"schedulers": {"b": {}}},
    }
    row = {"title": "Sizes", "metric": "mean_jct", "cases": ["small", "large"], "schedulers": ["a", "b"]}
    figures = {
        "small": {"a": {"mean_jct": np.array([5.0, 5.0])}, "b": {"mean_jct": np.array([10.0, 10.0])}},
        "large": {"b": {"mean_jct": np.array([20.0, 20.0])}},
    }
    content = {"title": "Title", "setup": "Setting.", "rule": "pack", "deviations": ["x"]}
    content |= {"headlines": ["text"], "ablations": [], "tables": [{**row, "against": "b"}], "cases": cases}
    found = pages([Reproduction("p", content, 2, [measured("value", 5.0, [5, 5])], figures)])
    text = found["p"]
    assert "| small | 5.00: -50.0% [-50.0%, -50.0%] | 10.00 [10.00, 10.00] |" in text
    assert "| large |  | 20.00 [20.00, 20.00] |" in text
    assert "| case | scheduler | mean JCT (s) |" in text.partition("<details>")[2]  # folded
    assert "**Title: warning: 2 workloads" in found[""]
    assert (
        "| [Title](reproduction/p.md) | text | 5.00 | 5.00 [5.00, 5.00] | yes: within the interval |"
        in found[""]
    )
    for wrong, what in (({"cases": ["none"]}, "case 'none'"), ({"schedulers": ["z"]}, "scheduler 'z'")):
        with pytest.raises(ConfigurationError, match=what):
            read_tables([row | wrong], cases)


def shorten(monkeypatch, num_jobs):
    def short(paper):
        content = read_paper(paper)
        if paper != "deeppool":
            return content
        for case in content["cases"].values():
            case["overrides"].append(f"workload.num_jobs={num_jobs}")
        content["seeds"] = 2
        content["ablations"][0] |= {"metric": "p95_jct", "form": "change"}  # of no claim and no table
        return content

    monkeypatch.setattr(run, "read_paper", short)
    monkeypatch.setattr(stored_reproductions, "read_paper", short)
    GlobalHydra.instance().clear()


def test_results_are_stored_rendered_and_found_stale(tmp_path, capsys, monkeypatch):
    shorten(monkeypatch, 30)
    file = tmp_path / "page.md"
    words = ["deeppool", "--workers", "1", "--stored", str(tmp_path), "--out", str(file)]
    assert reproduction.main(words) == 0
    text = file.read_text()
    assert "1.20x" in text
    assert "What differs" in (tmp_path / "page" / "deeppool.md").read_text()
    stored = json.loads((tmp_path / "deeppool.json").read_text())
    assert stored["command"] == "python -m tools.reproduction deeppool --seeds 2"
    case = stored["cases"]["sharing"]
    assert case["environment"]["workload"]["num_jobs"] == 30
    row = case["schedulers"]["fifo_backfill, own GPUs"]
    assert row["config"]["_target_"].endswith("fifo_backfill")
    assert len(row["values"]["mean_jct"]) == 2

    file.unlink()
    assert reproduction.main([*words, "--page"]) == 0  # from the file alone
    assert file.read_text() == text
    assert reproduction.main([*words, "--check"]) == 0
    assert file.read_text() == text

    row["values"]["mean_jct"][0] *= 1 + 1e-6  # another first workload
    (tmp_path / "deeppool.json").write_text(json.dumps(stored))
    capsys.readouterr()
    assert reproduction.main([*words, "--check"]) == 1
    said = f"{file}: sharing: fifo_backfill, own GPUs is stale; run `python -m tools.reproduction deeppool`"
    assert [line for line in capsys.readouterr().out.splitlines() if "stale" in line] == [said]
    assert file.read_text().count("Stale") == 1

    del stored["cases"]["sharing"]["schedulers"]["fifo_backfill@share_together"]
    (tmp_path / "deeppool.json").write_text(json.dumps(stored))
    capsys.readouterr()
    assert reproduction.main([*words, "--stale"]) == 0  # runs these two rows alone
    assert capsys.readouterr().out.splitlines()[-2] == "deeppool: sharing, 2 schedulers, 2 seeds"
    assert file.read_text() == text


def test_a_row_without_results_is_named(tmp_path, monkeypatch):
    with pytest.raises(
        ConfigurationError, match=r"no results of deeppool.*python -m tools.reproduction deep"
    ):
        stored_reproduction("deeppool", tmp_path)
    (tmp_path / "deeppool.json").write_text('{"seeds": 2, "stale": [], "cases": {}}')
    with pytest.raises(ConfigurationError, match="lack 'plan and background'"):
        stored_reproduction("deeppool", tmp_path)


def test_the_pages_show_the_stored_results():
    found = pages(*stored_papers())
    folder = PAGE.with_suffix("")
    assert found.keys() - {""} == {file.stem for file in folder.glob("*.md")}
    for name, text in found.items():
        assert text == (folder / f"{name}.md" if name else PAGE).read_text(), f"run `{command(name)} --page`"


@pytest.mark.release
@pytest.mark.slow
@pytest.mark.parametrize("paper", config_files("reproduction"))
def test_stored_results_hold(paper, tmp_path):
    copy = tmp_path / f"{paper}.json"
    copy.write_text((STORED / copy.name).read_text())
    rows = stale_rows(paper, 1, 1, lambda line: None, tmp_path)
    assert not rows, f"docs/reproduction.md is stale: {rows}; run `{command(paper)}`"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no paper; expected one of"),
        (["nobody"], "unknown paper"),
        (["ones", "--all"], "unrecognized arguments: --all"),
    ],
)
def test_reproduce_refuses_nonsense(capsys, words, said):
    assert main(["reproduce", *words]) == 2
    assert said in capsys.readouterr().err


def selected(*overrides):
    config = composed("compare", *overrides)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return read_entries(config.schedulers), ComparisonRequest.read(config).environments()


def test_all_schedulers_on_every_benchmark():
    GlobalHydra.instance().clear()
    entries, worlds = selected("schedulers=all")
    assert {"aiturbo", "ones", "coda", "pollux", "para_max"} <= set(entries)
    assert not any(entry.is_agent for entry in entries.values())  # agents are named, or absent
    with_agent, worlds_too = selected("schedulers=[all,mine:runs/a]")
    assert with_agent == entries | {"mine": SchedulerEntry("mine", "mine:runs/a")}
    assert worlds_too == worlds
    assert list(worlds) == benchmark_experiments()
    assert {"contention", "cpu_gpu", "elastic", "full", "sharing"} <= set(worlds)
    assert "partitioning" not in worlds
    own = composed("compare", "experiment=sharing")
    assert worlds["sharing"] == {part: to_plain(own[part]) for part in ENVIRONMENT_GROUPS}  # its jobs as well
    for chosen in (["experiments=[]"], ["experiment=full"], ["workload.num_jobs=50"]):
        assert list(selected("schedulers=all", *chosen)[1]) == [""]
    with pytest.raises(ConfigurationError, match="nothing_like_it"):
        selected("experiments=[nothing_like_it]")
    with pytest.raises(ConfigurationError, match=r"workload was chosen.*experiments=\[\]"):
        selected("experiments=[sharing]", "workload=sjf_bco")


def test_who_cannot_serve_the_jobs_is_left_out():
    GlobalHydra.instance().clear()
    _, worlds = selected("experiments=[full]")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        configs = {
            name: to_plain(scheduler_config(SchedulerEntry.read(name)))
            for name in ("fifo_backfill", "para_max")
        }
    fit, refused = supported_schedulers(configs, worlds["full"], 0)
    assert fit == ["fifo_backfill"]
    assert "acceptable" in refused["para_max"]


def test_a_placement_that_would_not_be_used_is_refused():
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert (
            scheduler_config(SchedulerEntry.read("fifo_backfill@spread")).placement._target_
            == "ringyard.placement.spread"
        )
        for entry in ("sjf_bco@pack", "ada_srsf@pack"):
            with pytest.raises(ConfigurationError, match="has its own placement"):
                scheduler_config(SchedulerEntry.read(entry))
