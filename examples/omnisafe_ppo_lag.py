"""PPO with a Lagrange multiplier of OmniSafe: few jobs may take twice as long as alone.

OmniSafe imports Safety-Gymnasium, which needs Gymnasium 0.28. Its environments are not used here, so that an
empty module stands in for it.
"""

import argparse
import sys
import types

import gymnasium
import torch

sys.modules.setdefault("safety_gymnasium", types.ModuleType("safety_gymnasium"))
import omnisafe  # noqa: E402
from omnisafe.envs.core import CMDP, env_register  # noqa: E402


@env_register
class RingyardCMDP(CMDP):
    """An environment whose `step` returns six values: the third is the cost."""

    _support_envs = ("ringyard/Sharing-Weights-v0", "ringyard/Contention-Weights-v0")
    need_time_limit_wrapper, need_auto_reset_wrapper, _num_envs = False, True, 1

    def __init__(self, env_id, cost="slowdown_violations", device="cpu", num_envs=1, **arguments):
        del num_envs  # one cluster in each process
        self._env = gymnasium.make(f"ringyard:{env_id}", cost=cost, flat=True, **arguments)
        self._observation_space, self._action_space = self._env.observation_space, self._env.action_space
        self._metadata, self._device = self._env.metadata, device

    def reset(self, seed=None, options=None):
        """Observation and info."""
        observation, info = self._env.reset(seed=seed, options=options)
        return self._tensor(observation), info

    def step(self, action):
        """Observation, reward, cost, terminated, truncated and info."""
        observation, reward, terminated, truncated, info = self._env.step(action.clamp(-1, 1).cpu().numpy())
        values = (observation, reward, info["cost"], terminated, truncated)
        return *map(self._tensor, values), info

    def _tensor(self, value):
        return torch.as_tensor(value, dtype=torch.float32, device=self._device)

    def set_seed(self, seed):
        """Seed the job tables."""
        self._env.reset(seed=seed)

    def render(self):
        """A picture, if the environment was made with `render_mode`."""
        return self._env.render()

    def close(self):
        """Close the environment."""
        self._env.close()


def main(total_steps=20000, epoch=1000, limit=0.05):
    """Train with a limit on the share of such jobs; the mean share in the last episodes."""
    settings = {
        "train_cfgs": {"total_steps": total_steps, "torch_threads": 1},
        "algo_cfgs": {"steps_per_epoch": epoch, "update_iters": 10},
        "lagrange_cfgs": {"cost_limit": limit},
        "logger_cfgs": {"use_wandb": False},
    }
    agent = omnisafe.Agent("PPOLag", "ringyard/Sharing-Weights-v0", custom_cfgs=settings)
    _, cost, _ = agent.learn()
    print(f"share of jobs with twice the run time: {cost:.3f}, limit {limit}")
    return float(cost)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=20000)
    main(parser.parse_args().total_steps)
