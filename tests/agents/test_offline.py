"""Learning from recorded decisions."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from test_agents import setting

from ringyard import Cluster, consolidate, experiment
from ringyard.mdp.actions import Actions
from ringyard.mdp.batch import ClusterBatch
from ringyard_agents.cli import main
from ringyard_agents.learning.cloning import QueueTeacher
from ringyard_agents.learning.evaluation import episode_metrics
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.offline import EnsemblePolicy, OfflineEnsemble

TEACHER = partial(QueueTeacher, templates=["consolidate"])


def begun(config=None, saved=None, members=2, teacher=TEACHER, **options):
    options = {"num_envs": 12, "batch_size": 64} | options
    learner = OfflineEnsemble(partial(EnsemblePolicy, width=16, members=members), teacher, **options)
    learner.setup({"one": adapt_env_config(learner, config or setting())}, 3, saved)
    return learner


def test_recorded_decisions_are_those_of_the_scheduler_one_after_the_other():
    learner = begun(random_actions=0.0)
    observations, masks, actions, rewards, returns, later = learner.record()
    assert (actions == TEACHER(learner._config.actions).act(observations, masks)).all()
    firsts = np.setdiff1d(np.arange(len(actions)), later[later >= 0])
    assert len(firsts) == (later < 0).sum() == 12
    batch = ClusterBatch(learner._config, 12)
    episode_metrics(TEACHER(learner._config.actions), batch)
    for b, first in enumerate(firsts):
        chain = [first]
        while later[chain[-1]] >= 0:
            chain.append(later[chain[-1]])
        assert len(chain) == batch.lengths[b]
        assert rewards[chain].sum() == pytest.approx(batch.returns[b], rel=1e-5)
        assert returns[chain] == pytest.approx(np.cumsum(rewards[chain][::-1])[::-1], rel=1e-4)


def test_random_actions_are_valid_and_have_their_share():
    learner = begun(random_actions=0.5, num_envs=48)
    observations, masks, actions, *_ = learner.record()
    assert masks[np.arange(len(actions)), actions].all()
    same = TEACHER(learner._config.actions).act(observations, masks) == actions
    chance = 0.5 + 0.5 * (1.0 / masks.sum(1)).mean()
    assert same.mean() == pytest.approx(chance, abs=0.04)


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_target_is_the_least_value_of_the_best_valid_action(share):
    """A gradient step moves values by the error against targets that are computed here one by one."""
    learner = begun(members=3, return_share=share)
    data = learner.record()
    observations, masks, actions, rewards, returns, later = data
    rows = np.concatenate((np.flatnonzero(later < 0)[:4], np.flatnonzero(later >= 0)[:60]))
    network = learner._network.mlp_extractor
    learner._networks[1].load_state_dict(learner._network.state_dict())
    errors = []
    with torch.no_grad():
        everything = {name: torch.as_tensor(block) for name, block in observations.items()}
        values = network.values(everything).numpy()
    for row in rows:
        valid = masks[later[row]]
        best = values[:, later[row]][:, valid].min(0).max() if later[row] >= 0 else 0.0
        target = (1 - share) * (rewards[row] + best) + share * returns[row]
        errors.append(values[:, row, actions[row]] - target)
    before = [one.clone() for one in learner._networks[1].parameters()]
    loss, value, spread = learner._step(data, rows)
    assert loss == pytest.approx((np.array(errors) ** 2).mean(0).sum(), rel=1e-4)
    own = values[:, rows, actions[rows]]
    assert (value, spread) == pytest.approx((own.mean(), own.std(0).mean()), rel=1e-4)
    pairs = zip(before, learner._networks[1].parameters(), learner._network.parameters(), strict=True)
    for old, slow, fast in pairs:
        assert torch.allclose(slow, old.lerp(fast, learner.target_rate), atol=1e-7)


def test_the_learning_rate_grows_by_the_square_root_of_the_batch():
    rates = [begun(batch_size=n)._network.optimizer.param_groups[0]["lr"] for n in (256, 1024)]
    assert rates == pytest.approx([3e-4, 6e-4])


def test_an_agent_chooses_the_action_whose_least_value_is_largest():
    learner = begun(members=3)
    observations, masks, *_ = learner.record()
    chosen = learner.policy.act(observations, masks)
    with torch.no_grad():
        blocks = {name: torch.as_tensor(block) for name, block in observations.items()}
        values = learner._network.mlp_extractor.values(blocks).numpy().min(0)
    assert (chosen == np.where(masks, values, -np.inf).argmax(1)).all()


def test_a_resumed_run_continues_bit_for_bit():
    whole, first = begun(), begun()
    whole.learn(1280, lambda scalars: None)
    first.learn(640, lambda scalars: None)
    second = begun(saved=first.state())
    assert second.decisions == 640
    second.learn(1280, lambda scalars: None)
    one, other = whole.state(), second.state()
    assert one.metadata == other.metadata
    assert {name: array.tobytes() for name, array in one.arrays.items()} == {
        name: array.tobytes() for name, array in other.arrays.items()
    }
    loaded = begun().load(whole.weights())
    observations, masks, *_ = whole.record()
    assert (loaded.act(observations, masks) == whole.policy.act(observations, masks)).all()


def test_it_learns_on_the_cpu_of_a_machine_with_a_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, answer in {"is_available": True, "device_count": 1}.items():
        monkeypatch.setattr(f"torch.cuda.{name}", lambda answer=answer: answer)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    small = ["agent.num_envs=8", "agent.batch_size=64", "num_workloads=8", "evaluate.workloads=2"]
    words = ["train", "agent=offline", "workload.num_jobs=8", *small, "total_decisions=64", "plots=false"]
    assert main([*words, "name=auto"]) == 0
    GlobalHydra.instance().clear()
    assert main([*words, "device=cuda", "name=cuda"]) == 2


def test_it_learns_to_schedule_from_records_alone():
    """From random actions alone it learns more than to start the oldest job that fits."""
    base = experiment("helios_like")
    workload = replace(base.workload, num_jobs=20, load=10.0)
    actions = Actions(templates=(consolidate(),), queue_order="submit", on_invalid="raise")
    config = replace(base, cluster=Cluster.homogeneous(2, 4), workload=workload, actions=actions)
    learner, measured = begun(config, num_envs=64, batch_size=256, random_actions=1.0), {}

    def mean_jct(policy):
        return np.mean([one.mean_jct for one in episode_metrics(policy, ClusterBatch(learner._config, 48))])

    fifo, jcts = mean_jct(TEACHER(learner._config.actions)), []
    for steps in (0, 100, 150, 200):
        learner.learn(256 * steps, measured.update)
        jcts.append(mean_jct(learner.policy))
    assert min(jcts[1:]) < 0.9 * min(fifo, jcts[0])  # one agent is not always better than the one before
    assert measured["train/disagreement"] > 0
