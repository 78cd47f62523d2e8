"""Steps per second of `CudaVectorEnv` on a GPU, over whole episodes, with random valid actions drawn there.

`python -m tools.cuda` first plays 64 clusters beside a processor, and their steps must be the same.
"""

import argparse
import time
from typing import Any

import numpy as np

from ringyard.mdp.vector import ClusterVectorEnv
from tools.cuda.vector_env import _STRIDE, CudaVectorEnv


class SameTables(ClusterVectorEnv):
    """On a processor, the job tables that clusters of a GPU begin after `reset(seed=0)`."""

    def _draw(self, b: int) -> int:
        self.drawn = getattr(self, "drawn", [0] * self.num_envs)
        self.drawn[b] += 1
        return (b + (self.drawn[b] - 1) * _STRIDE) % self.config.num_workloads


def compare(form: dict[str, Any], steps: int = 200) -> tuple[int, float]:
    """Return in how many of the steps something differed, and the largest difference of observations."""
    gpu: Any = CudaVectorEnv(64, experiment="contention", flat=True, **form)
    cpu: Any = SameTables(64, experiment="contention", flat=True, **form)
    (seen, _), (expected, info) = gpu.reset(seed=0), cpu.reset(seed=0)
    rng, worst, differ = np.random.default_rng(0), 0.0, 0
    for _ in range(steps):
        masks = info["action_mask"]
        if form:
            actions = rng.uniform(-1, 1, cpu.action_space.shape).astype(np.float32)
        else:
            actions = (rng.random(masks.shape) * masks).argmax(axis=1)
        seen, *results, _ = gpu.step(actions)
        expected, *wanted, info = cpu.step(actions)
        same = [np.array_equal(a.get(), b) for a, b in zip(results, wanted, strict=True)]
        differ += not all(same) or not np.array_equal(gpu.action_masks().get(), info["action_mask"])
        worst = max(worst, float(np.abs(seen.get() - expected).max()))
    gpu.check()
    return differ, worst


def main() -> None:
    """Compare, then measure."""
    import cupy

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clusters", type=int, nargs="+", default=[4096, 16384, 65536])
    sizes = parser.parse_args().clusters
    print(cupy.cuda.runtime.getDeviceProperties(0)["name"].decode())
    forms: list[dict[str, Any]] = [{}, {"form": "jobs"}]
    for form in forms:
        print(form or "discrete starts", "steps that differ, largest difference:", *compare(form))
        for count in sizes:
            env = CudaVectorEnv(count, experiment="contention", **form)
            env.reset(seed=0)
            masks, shape, begun, calls = env.action_masks(), env.action_space.shape, time.perf_counter(), 0
            while time.perf_counter() - begun < 20:
                for _ in range(10):
                    if form:
                        env.step(cupy.random.uniform(-1, 1, shape, dtype=np.float32))
                    else:
                        draws = cupy.random.random(masks.shape, dtype=np.float32)
                        env.step((draws * masks).argmax(axis=1))
                calls += 10
                env.check()
            print(f"{count:7} clusters {calls * count / (time.perf_counter() - begun):12,.0f} steps/s")
            del env, masks
            cupy.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
