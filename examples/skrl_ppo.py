"""skrl: PPO on priority weights with networks of skrl's own instantiators, compared with two schedulers."""

import argparse

import gymnasium
import torch
from gymnasium.wrappers.vector import ClipAction
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.trainers.torch import SequentialTrainer
from skrl.utils import set_seed
from skrl.utils.model_instantiators.torch import deterministic_model, gaussian_model

import ringyard_agents

LAYERS = [{"name": "net", "input": "OBSERVATIONS", "layers": [64, 64], "activations": "tanh"}]


def main(total_steps=50_000, num_envs=16, rollouts=128, seeds=20):
    """Train, compare on test workloads; the agent's mean JCT in seconds."""
    set_seed(0)
    envs = gymnasium.make_vec("ringyard:ringyard/CpuGpu-Weights-v0", num_envs)
    envs = wrap_env(ClipAction(envs), verbose=False)  # samples of a Gaussian may lie outside of the space
    spaces = {
        "observation_space": envs.observation_space,
        "action_space": envs.action_space,
        "device": envs.device,
    }
    models = {
        "policy": gaussian_model(**spaces, network=LAYERS, output="ACTIONS"),
        "value": deterministic_model(**spaces, network=LAYERS, output="ONE"),
    }
    agent = PPO(
        models=models,
        memory=RandomMemory(memory_size=rollouts, num_envs=num_envs, device=envs.device),
        cfg={
            "rollouts": rollouts,
            "learning_epochs": 10,
            "mini_batches": 32,
            "learning_rate": 3e-4,
            "value_loss_scale": 0.5,
            "value_preprocessor": RunningStandardScaler,
            "value_preprocessor_kwargs": {"size": 1, "device": envs.device},
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
        **spaces,
    )
    steps = max(total_steps // num_envs, rollouts)
    settings = {"timesteps": steps, "headless": True, "disable_progressbar": True}
    SequentialTrainer(cfg=settings, env=envs, agents=agent).train()
    agent.enable_training_mode(False)

    def act(observation, mask):
        row = torch.as_tensor(observation, device=envs.device)[None]
        with torch.no_grad():
            _, outputs = agent.act(row, None, timestep=0, timesteps=0)
        return outputs["mean_actions"][0].clip(-1, 1).cpu().numpy()

    schedulers = [{"skrl": act}, "fifo_backfill", "allocator"]
    table = ringyard_agents.compare(schedulers, "cpu_gpu", seeds=seeds, overrides=["form=weights"])
    print(table[["scheduler", "mean_jct", "mean_jct_low", "mean_jct_high"]].to_string(index=False))
    return float(table.set_index("scheduler")["mean_jct"]["skrl"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=50_000)
    main(parser.parse_args().total_steps)
