"""What the benchmarks share: configs to objects, timing, the machine."""

import os
import platform
import time

from ringyard.compiled import kernel


def build(command, overrides, *groups):
    """{group: object} of a command's config."""
    from hydra import compose
    from hydra.core.global_hydra import GlobalHydra

    from ringyard.hydra_versions import initialized, made  # older checkouts, in turns, have none

    GlobalHydra.instance().clear()
    with initialized():
        config = compose(command, list(overrides))
    return {group: made(config[group]) for group in groups}


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
