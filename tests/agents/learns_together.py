"""Learners that `test_several_processes` runs alone and under torchrun; not a test by itself."""

import sys
from functools import partial

import numpy as np
import torch.distributed as dist
from stable_baselines3.common.policies import ActorCriticPolicy

from ringyard import Cluster
from ringyard.allocator import Allocator
from ringyard.mdp.actions import Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.observations import live_jobs
from ringyard.workloads import Arrivals, LogNormalDurations, ModelMix, Sizes, Synthetic
from ringyard_agents.learning.episodes import Constraint
from ringyard_agents.learning.evolution import EvolutionStrategies
from ringyard_agents.learning.group_relative import GroupRelative
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.policies import PointerPolicy
from ringyard_agents.learning.ppo import PPO
from ringyard_agents.learning.process_group import Hardware, join_process_group
from ringyard_agents.learning.score_networks import ScoreNetwork


def workload():
    arrivals, sizes = Arrivals(), Sizes({1: 3, 2: 2, 4: 1})
    return Synthetic(12, sizes, LogNormalDurations(5.0, 1.5), arrivals, ModelMix(), load=4.0)


def learners():
    network = partial(ScoreNetwork, width=8, context="mean")
    pairs = {"network": network, "workloads_per_round": 4, "group_size": 4}
    constrained = EvolutionStrategies(**pairs)
    constrained.constraint = Constraint("mean_slowdown", {"one": 3.0, "two": 3.0}, 1.0, multiplier=0.5)
    return {
        "evolution": EvolutionStrategies(**pairs),
        "constrained": constrained,
        "ppo": PPO(
            partial(ActorCriticPolicy, net_arch=[8]),
            num_envs=4,
            n_steps=16,
            batch_size=24,
            normalize_observations=True,
            normalize_rewards=True,
        ),
        "group_relative": GroupRelative(
            partial(PointerPolicy, width=16), num_envs=8, group_size=2, batch_size=64, target_kl=0.05
        ),
    }


def environments_for(learner, name):
    """Two of different sizes for learners of scores, one for the others."""
    if name in ("group_relative", "ppo"):
        setting = EnvConfig(Cluster.homogeneous(2, 4), workload(), num_workloads=8)
        return {"one": adapt_env_config(learner, setting)}
    actions = Scores(num_jobs=12, allocator=Allocator(gamma=0.0))
    options = {"observation": live_jobs(), "actions": actions, "num_workloads": 8}
    sizes = {"one": Cluster.homogeneous(2, 4), "two": Cluster.homogeneous(1, 4)}
    return {label: EnvConfig(cluster, workload(), **options) for label, cluster in sizes.items()}


def learn(name, hardware, rounds=3):
    """({array: values} of what was learnt, {curve: value} of the last round)."""
    learner, measured = learners()[name], []
    learner.hardware = hardware
    learner.setup(environments_for(learner, name), 0)
    while len(measured) < rounds:
        learner.learn(learner.decisions + 1, lambda found: measured.append(dict(found)) if found else None)
    found = {f"curve.{curve}": np.array(value) for curve, value in measured[-1].items()}
    return {**learner.state().arrays, **found, "decisions": np.array(learner.decisions)}


def main():
    process_group = join_process_group()
    for name in learners():
        found = learn(name, Hardware(process_group=process_group))
        np.savez(f"{sys.argv[1]}/{name}_{process_group.rank}.npz", **found)
    if process_group.size > 1:
        functions = vars(sys.modules["torch.distributed.nn.functional"]).values()
        assert not [
            one for one in functions if dist.group.WORLD in (getattr(one, "__defaults__", None) or ())
        ]


if __name__ == "__main__":
    main()
