"""CleanRL: its ppo_continuous_action.py on priority weights, with three lines changed for Gymnasium 1.x."""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
import torch

import ringyard_agents

#: {what CleanRL 1.2.0 and its main branch have: what Gymnasium 1.x asks for}
CHANGES = {
    "lambda obs: np.clip(obs, -10, 10))": "lambda obs: np.clip(obs, -10, 10), env.observation_space)",
    "for i in range(args.num_envs)]": (
        "for i in range(args.num_envs)], autoreset_mode=gym.vector.AutoresetMode.SAME_STEP"
    ),
    'for info in infos["final_info"]:': (
        'for info in [{"episode": {key: infos["final_info"]["episode"][key][i] for key in "rl"}}'
        ' for i in np.flatnonzero(infos["_final_info"])]:'
    ),
}


def main(total_steps=50_000, file=None, seeds=20):
    """Run CleanRL's file, compare its agent on test workloads; the agent's mean JCT in seconds."""
    file = Path(file or importlib.util.find_spec("cleanrl.ppo_continuous_action").origin)
    text = file.read_text()
    for old, new in CHANGES.items():
        assert text.count(old) == 1, f"{file}: expected one line with {old!r}"
        text = text.replace(old, new)
    words = ["--env-id", "ringyard:ringyard/CpuGpu-Weights-v0", "--total-timesteps", str(total_steps)]
    sys.argv = [file.name, *words]
    trained = {"__name__": "__main__", "__file__": str(file)}
    exec(compile(text, file, "exec"), trained)
    agent, seen = trained["agent"].cpu(), trained["envs"].envs[0].get_wrapper_attr("obs_rms")

    def act(observation, mask):
        row = np.clip((observation - seen.mean) / np.sqrt(seen.var + 1e-8), -10, 10)
        with torch.no_grad():
            return agent.actor_mean(torch.as_tensor(row[None]).float())[0].clip(-1, 1).numpy()

    schedulers = [{"cleanrl": act}, "fifo_backfill", "allocator"]
    table = ringyard_agents.compare(schedulers, "cpu_gpu", seeds=seeds, overrides=["form=weights"])
    print(table[["scheduler", "mean_jct", "mean_jct_low", "mean_jct_high"]].to_string(index=False))
    return float(table.set_index("scheduler")["mean_jct"]["cleanrl"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=50_000)
    parser.add_argument("--file", help="a copy of ppo_continuous_action.py in place of the installed one")
    arguments = parser.parse_args()
    main(arguments.total_steps, arguments.file)
