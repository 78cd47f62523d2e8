"""TorchRL: PPO with masked actions; the mask comes out of `info` by a reader."""

import argparse

import gymnasium
import torch
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import Binary
from torchrl.envs import ActionMask, GymWrapper, TransformedEnv
from torchrl.envs.gym_like import default_info_dict_reader
from torchrl.modules import MaskedCategorical, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE


class MaskReader(default_info_dict_reader):
    """Puts `info["action_mask"]` into tensordicts, boolean as TorchRL's masks are."""

    def __call__(self, info, tensordict):
        """The tensordict with the mask."""
        return super().__call__({"action_mask": info["action_mask"].astype(bool)}, tensordict)


def make():
    """One cluster with flat rows, its mask under "action_mask"."""
    cluster = gymnasium.make("ringyard:ringyard/Sharing-Queue-v0", flat=True)  # imports ringyard first
    env = GymWrapper(cluster, categorical_action_encoding=True)
    mask = Binary(int(cluster.action_space.n), dtype=torch.bool)
    env.set_info_dict_reader(MaskReader(["action_mask"], spec={"action_mask": mask}))
    return TransformedEnv(env, ActionMask())


def main(total_steps=100_000, frames=1000):
    """Train; the mean reward of a step in the last batch."""
    torch.manual_seed(0)
    env = make()
    size, num_actions = env.observation_spec["observation"].shape[-1], env.action_spec.space.n
    logits = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, num_actions))
    actor = ProbabilisticTensorDictSequential(
        TensorDictModule(logits, ["observation"], ["logits"]),
        ProbabilisticTensorDictModule(
            in_keys={"logits": "logits", "mask": "action_mask"},
            out_keys=["action"],
            distribution_class=MaskedCategorical,
            return_log_prob=True,
        ),
    )
    critic = ValueOperator(nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, 1)))
    advantages = GAE(gamma=1.0, lmbda=0.95, value_network=critic)
    objective = ClipPPOLoss(actor, critic, entropy_coeff=0.01)
    optimizer = torch.optim.Adam(objective.parameters(), 3e-4)
    collector = Collector(env, actor, frames_per_batch=frames, total_frames=total_steps)
    for batch in collector:
        reward = float(batch["next", "reward"].mean())
        advantages(batch)
        for rows in torch.randperm(4 * frames).remainder(frames).split(256):
            losses = objective(batch[rows])
            optimizer.zero_grad()
            sum(losses[name] for name in losses.keys() if name.startswith("loss_")).backward()
            optimizer.step()
        ends = int(batch["next", "done"].sum())
        print(f"{frames} steps: mean reward {reward:.5f}, {ends} episodes ended")
    collector.shutdown()
    return reward


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=100_000)
    main(parser.parse_args().total_steps)
