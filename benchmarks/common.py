"""What the benchmarks share: configs to objects, timing, the machine."""

import os
import platform
import time

from hydra.utils import instantiate

from ringyard.compiled import kernel
from ringyard.mdp.user_config import hydra_initialized


def build(command, overrides, *groups):
    """{group: object} of a command's config."""
    from hydra import compose
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with hydra_initialized():
        config = compose(command, list(overrides))
    return {group: instantiate(config[group], _convert_="all") for group in groups}


def best_seconds(function, repeats=3):
    """Shortest of several runs: the machines are shared, the minimum is the least disturbed."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def machine():
    """One line about where this ran."""
    name = platform.processor() or platform.machine()
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"


@kernel
def first_valid(masks, actions):
    """The first valid action of each cluster: choosing costs next to nothing."""
    for b in range(masks.shape[0]):
        for a in range(masks.shape[1]):
            if masks[b, a]:
                actions[b] = a
                break
