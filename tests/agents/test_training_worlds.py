"""Several worlds in one training run, and when it stops."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from omegaconf import OmegaConf

from ringyard import Cluster, JobTable
from ringyard.mdp.costs import slowdown_violations
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents import cli
from ringyard_agents.learning.episodes import Constraint, EpisodeRunner
from ringyard_agents.learning.evaluation import Evaluation, agent_sort_key
from ringyard_agents.learning.learner import adapt_env_config
from toy_learner import ToyLearner

SMALL = "{small: ['workload.num_jobs=6', 'cluster.num_servers=2', 'workload.load=8']}"
TOY = [
    "train", "~agent", "+agent={_target_:toy_learner.ToyLearner}", "trust=[toy_learner.ToyLearner]",
    "name=two",
    "cluster.num_servers=4", "workload.num_jobs=12", "evaluate.every=1000", "evaluate.workloads=2",
    "evaluate.schedulers=[sjf]", "evaluate.patience=3", "total_decisions=100000",
]  # fmt: skip


@pytest.fixture(autouse=True)
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_in_several_worlds_is_judged_in_all_and_stops_when_it_gets_no_better(inside, capsys):
    assert cli.main([*TOY, f"environments=[{SMALL}]"]) == 0
    found = json.loads((inside / "runs/two/training.json").read_text())
    assert found["decisions"] == 3000  # the first evaluation is at 0; three more are no better
    rows = list(csv.DictReader((inside / "runs/two/tensorboard/progress.csv").read_text().splitlines()))
    both = [float(rows[0][f"eval/{world}/mean_jct"]) for world in ("own", "small")]
    assert both[0] != both[1]
    assert found["best"] == pytest.approx(np.sqrt(np.prod(both)))
    ratio = float(rows[0]["eval/mean_jct_ratio_to_sjf"])
    assert ratio == pytest.approx(found["best"] / found["baselines"]["sjf"])
    # a run folder from another person cannot name classes by overrides of an environment
    file = inside / "runs/two/config.yaml"
    config = OmegaConf.load(file)
    config.environments = [{"theirs": ["restart._target_=pathlib.Path"]}]
    OmegaConf.save(config, file)
    assert cli.main(["train", "resume=runs/two", "trust=[toy_learner.ToyLearner]"]) == 2
    assert "trust=[pathlib.Path]" in capsys.readouterr().err


def test_an_agent_is_compared_with_schedulers_that_meet_the_same_failures(inside):
    words = ["experiment=full", "action=scores", "observation=live_jobs", "agent=evolution"]
    small = ["agent.workloads_per_round=1", "agent.group_size=2", "num_workloads=2", "evaluate.workloads=2"]
    assert cli.main(["train", *words, *small, "evaluate.schedulers=[allocator]", "total_decisions=1"]) == 0
    [file] = inside.glob("runs/*/tensorboard/progress.csv")
    first = next(csv.DictReader(file.read_text().splitlines()))
    assert float(first["eval/mean_jct_ratio_to_allocator"]) == 1.0  # every score is 0 before it learns


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (f"[{SMALL},{SMALL}]", "has 'small' twice"),
        ("[nowhere]", "experiment/nowhere"),
        ("[{small: cluster}]", "expected the name of an experiment"),
        ("[{small: ['cluster.gpus=3']}]", "environments: small: Could not override 'cluster.gpus'"),
        (
            "[{small: ['reward=fairness']}]",
            "small: reward=fairness does not change what is simulated",
        ),
        ("[{small: [experiment=elastic]}]", "expected words in quotes"),
    ],
)
def test_worlds_that_are_none_are_refused(inside, capsys, given, said):
    assert cli.main([*TOY, f"environments={given}"]) == 2
    assert said in capsys.readouterr().err
    assert not (inside / "runs/two/agent.safetensors").exists()


def test_who_learns_in_one_world_says_so(capsys):
    assert cli.main(["train", "debug=tiny_training", f"environments=[{SMALL}]", "name=one"]) == 2
    assert "learns in one environment; got own, small" in capsys.readouterr().err


KEEPING = [
    "train", "action=scores", "observation=live_jobs", "agent=evolution", "name=kept",
    "agent.workloads_per_round=1", "agent.group_size=2",
    "cluster.num_servers=1", "workload.num_jobs=8", "workload.load=6", "evaluate.every=50",
    "evaluate.workloads=2", "evaluate.schedulers=[sjf]", "constraint.metric=worst_fairness",
]  # fmt: skip


def test_who_keeps_a_constraint_comes_before_who_is_better():
    assert agent_sort_key(0.9, 5.0) < agent_sort_key(1.2, 3.0) < agent_sort_key(1.3, 2.0)
    assert (
        agent_sort_key(0.2, 5.0)
        == agent_sort_key(1.0, 5.0)
        == agent_sort_key(None, 5.0)
        == agent_sort_key(float("nan"), 5.0)
    )


def test_who_keeps_a_constraint_is_best_and_a_broken_one_costs_more_and_more(inside, capsys):
    assert (
        cli.main(
            [
                *KEEPING,
                "constraint.bound=0.01",
                "constraint.multiplier_learning_rate=0.5",
                "total_decisions=200",
            ]
        )
        == 0
    )
    assert "VIOLATED" in capsys.readouterr().out
    rows = list(csv.DictReader((inside / "runs/kept/tensorboard/progress.csv").read_text().splitlines()))
    seen = [row for row in rows if row["eval/lagrange_multiplier"]]
    used = [float(row["eval/worst_fairness_ratio_to_bound"]) for row in seen]
    multipliers = [float(row["eval/lagrange_multiplier"]) for row in seen]
    assert len(used) > 2
    assert multipliers == pytest.approx(np.cumsum([0.5 * (one - 1) for one in used]))
    found = json.loads((inside / "runs/kept/training.json").read_text())
    assert found["constraint"] == {
        "metric": "worst_fairness", "bounds": {"own": 0.01}, "best_ratio_to_bound": pytest.approx(min(used))
    }  # fmt: skip
    # goes on with the multiplier that it had; a scheduler's own bound is measured on the evaluation workloads
    assert cli.main(["train", "resume=runs/kept", "total_decisions=300"]) == 0
    rows = list(csv.DictReader((inside / "runs/kept/tensorboard/progress.csv").read_text().splitlines()))
    assert (
        float([row for row in rows if row["eval/lagrange_multiplier"]][-1]["eval/lagrange_multiplier"])
        > multipliers[-1]
    )
    assert cli.main([*KEEPING, "constraint.bound=fifo_backfill", "total_decisions=1", "overwrite=true"]) == 0
    most = json.loads((inside / "runs/kept/training.json").read_text())["constraint"]["bounds"]["own"]
    assert most > 0.01
    assert "x the bound on the evaluation workloads: constraint satisfied" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_constraint_on_costs_uses_their_sum_over_an_episode(inside):
    words = [*KEEPING[:-1], "constraint.metric=cost", "constraint.bound=0.05", "cost=slowdown_violations"]
    assert cli.main([*words, "constraint.multiplier_learning_rate=0.5", "total_decisions=200"]) == 0
    rows = list(csv.DictReader((inside / "runs/kept/tensorboard/progress.csv").read_text().splitlines()))
    seen = [row for row in rows if row["eval/lagrange_multiplier"]]
    used = np.array([float(row["eval/cost_ratio_to_bound"]) for row in seen])
    assert used == pytest.approx(np.rint(used * 0.05 * 16) / 16 / 0.05)  # of 2 x 8 jobs
    assert used.min() > 1
    multipliers = [float(row["eval/lagrange_multiplier"]) for row in seen]
    assert multipliers == pytest.approx(np.cumsum([0.5 * (one - 1) for one in used]))
    found = json.loads((inside / "runs/kept/training.json").read_text())["constraint"]
    assert found["metric"] == "cost"
    assert found["best_ratio_to_bound"] == pytest.approx(used.min())


def test_penalties_of_costs_are_their_sums():
    """One of two jobs waits for the other, so that its completion time is twice its run time."""
    world = EnvConfig(Cluster((1,)), workload=Late(np.inf), num_workloads=2, cost=slowdown_violations(1.5))
    runner = EpisodeRunner(world, 2)
    played = runner.run_episodes(np.arange(2), lambda seen, masks, clusters: masks.argmax(axis=1))
    assert runner.batch.episode_costs() == pytest.approx([0.5, 0.5])
    constraint = Constraint("cost", {"own": 0.25}, 1.0, multiplier=3.0)
    less = played.returns - constraint.penalize("own", played, runner.batch, 2.0).returns
    assert less == pytest.approx([3.0 * 2.0 * 0.5 / 0.25] * 2)


@pytest.mark.parametrize("reward", ["fairness", "jct"])
def test_an_agent_is_judged_by_whole_episodes_as_its_baselines_are(inside, reward):
    found = []
    for name, limit in (("whole", "null"), ("short", 500)):
        words = [f"reward={reward}", f"name={name}", f"limit_seconds={limit}", "total_decisions=1"]
        assert cli.main([*TOY, *words]) == 0
        found.append(json.loads((inside / f"runs/{name}/training.json").read_text()))
    assert found[0] == found[1]


class Late:
    """Two jobs of 100 s that cannot end in time, so that they are blocked when they start."""

    num_jobs = 2

    def __init__(self, acceptable=50.0):
        self.acceptable = acceptable

    def sample(self, cluster, rng):
        jobs = JobTable.from_columns([0.0, 0.0], [1, 1], [100.0, 100.0])
        return replace(jobs, acceptable_jct=np.full(2, self.acceptable))


def test_who_serves_no_job_keeps_no_constraint():
    learner = ToyLearner()
    world = adapt_env_config(learner, EnvConfig(Cluster((1,)), workload=Late(), num_workloads=2))
    evaluation = Evaluation(learner, {"own": world}, 1, Constraint("worst_fairness", {"own": 4.0}, 0.5))
    evaluation.evaluate()
    assert np.isnan(evaluation.latest)
    assert evaluation.bound_ratio > 1.0
    assert 0.0 < evaluation.constraint.multiplier < np.inf


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*KEEPING], "constraint.bound is None; expected both"),
        ([*KEEPING, "constraint.metric=null", "constraint.bound=2"], "constraint.metric is None"),
        ([*KEEPING, "constraint.metric=stops", "constraint.bound=2"], "constraint.metric is 'stops'"),
        ([*KEEPING, "constraint.bound=-1"], "constraint.bound is -1"),
        ([*KEEPING, "constraint.bound=9", "constraint.multiplier_learning_rate=1e300"], "rate is 1e+300"),
        ([*KEEPING, "constraint.bound=themiss"], "constraint.bound has 'themiss'"),
        ([*KEEPING, "constraint.bound=zoo:nobody"], "train: there is no agent 'zoo:nobody'"),
        ([*TOY, "evaluate.schedulers=[sjff]"], "evaluate.schedulers has 'sjff'"),
        ([*KEEPING, "constraint.metric=blocking_rate", "constraint.bound=sjf"], "its blocking_rate is 0"),
        ([*KEEPING[:-1], "constraint.metric=cost", "constraint.bound=1"], "and a cost such as"),
        (
            [*KEEPING[:-1], "constraint.metric=cost", "constraint.bound=sjf", "cost=slowdown_violations"],
            "expected a number as constraint.bound",
        ),
        ([*TOY, "constraint.metric=p99_jct", "constraint.bound=9"], "expected one that scores jobs"),
        ([*KEEPING, "constraint.bound=9", "limit_seconds=60"], "limit_seconds is 60 (environment own)"),
    ],
)  # fmt: skip
def test_constraints_that_cannot_be_kept_are_refused(inside, capsys, words, said):
    assert cli.main(words) == 2
    assert said in capsys.readouterr().err
    assert not (inside / "runs/kept/last.safetensors").exists()
