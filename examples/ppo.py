"""PPO in one file: masked actions in the manner of CleanRL, without a base class, every step in sight."""

import argparse

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


def main(total_steps=200_000, num_envs=32, num_steps=64, seed=0):
    """Train, print the mean JCT of the episodes of each quarter of the way; the last of them."""
    torch.manual_seed(seed)
    name = "ringyard:ringyard/Sharing-Queue-v0"  # imports ringyard first
    envs = gymnasium.make_vec(name, num_envs, flat=True, autoreset_mode="SameStep")
    size, num_actions = envs.single_observation_space.shape[0], envs.single_action_space.n
    actor = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, num_actions))
    critic = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, 1))
    weights = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(weights, 3e-4)

    def policy(observations, masks):
        return Categorical(logits=actor(observations).masked_fill(masks == 0, -1e9))

    seen, info = envs.reset(seed=seed)
    last, jcts = float("nan"), []
    num_updates = max(total_steps // (num_envs * num_steps), 1)
    for update in range(num_updates):
        kept = {name: [] for name in ("seen", "masks", "actions", "log_probs", "values", "rewards", "ended")}
        for _ in range(num_steps):
            observations, masks = torch.as_tensor(seen), torch.as_tensor(info["action_mask"])
            with torch.no_grad():
                chosen = policy(observations, masks)
                actions, values = chosen.sample(), critic(observations)[:, 0]
            seen, rewards, done, cut, info = envs.step(actions.numpy())
            ended = torch.as_tensor(done | cut).float()
            if ended.any():
                told = info["final_info"]
                jcts += told["episode_jct"][told["_episode_jct"]].tolist()
            gained = torch.as_tensor(rewards).float()
            row = (observations, masks, actions, chosen.log_prob(actions), values, gained, ended)
            for name, value in zip(kept, row, strict=True):
                kept[name].append(value)
        batch = {name: torch.stack(values) for name, values in kept.items()}
        with torch.no_grad():
            following = critic(torch.as_tensor(seen))[:, 0]
        advantages, gained = torch.zeros(num_steps, num_envs), torch.zeros(num_envs)
        for t in reversed(range(num_steps)):  # generalised advantage estimation, without discount
            goes_on = 1 - batch["ended"][t]
            error = batch["rewards"][t] + goes_on * following - batch["values"][t]
            gained = error + 0.95 * goes_on * gained
            advantages[t], following = gained, batch["values"][t]
        returns = (advantages + batch["values"]).flatten()
        flat = {name: batch[name].flatten(0, 1) for name in ("seen", "masks", "actions", "log_probs")}
        for rows in torch.randperm(4 * len(returns)).remainder(len(returns)).split(512):
            chosen = policy(flat["seen"][rows], flat["masks"][rows])
            ratio = (chosen.log_prob(flat["actions"][rows]) - flat["log_probs"][rows]).exp()
            gain = advantages.flatten()[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            surrogate = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            loss = 0.5 * (critic(flat["seen"][rows])[:, 0] - returns[rows]).square().mean()
            optimizer.zero_grad()
            (loss - surrogate - 0.01 * chosen.entropy().mean()).backward()
            nn.utils.clip_grad_norm_(weights, 0.5)
            optimizer.step()
        if (update + 1) % max(num_updates // 4, 1) == 0:
            last, steps = float(np.mean(jcts)) if jcts else float("nan"), (update + 1) * num_envs * num_steps
            print(f"{steps:,} steps: {last:,.0f} s mean JCT of {len(jcts)} episodes")
            jcts = []
    return last


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=200_000)
    main(parser.parse_args().total_steps)
