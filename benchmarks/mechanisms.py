"""What each mechanism of `ringyard.compiled` costs and buys: nanoseconds per call, seconds of compilation."""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import namedtuple
from typing import Protocol

import numba
import numpy as np
from common import best_seconds, machine

from ringyard.compiled import FloatVector, bundle, entry_point, implements, interface, kernel, linked_kernel
from ringyard.state.arrays import State, empty_state


@interface
class Twice(Protocol):
    def __call__(self, x: float, parameters: FloatVector) -> float: ...


@implements(Twice)
def twice(x: float, parameters: FloatVector) -> float:
    return x * parameters[0]


@bundle
class Model:
    value: Twice
    parameters: FloatVector


@kernel
def plain(x: float, parameters: FloatVector) -> float:
    return x * parameters[0]


@linked_kernel
def linked(x: float, parameters: FloatVector) -> float:
    return x * parameters[0]


@kernel
def loop_plain(n: int, model: Model) -> float:
    x = 1.0
    for _ in range(n):
        x = plain(x, model.parameters)
    return x


@kernel
def loop_linked(n: int, model: Model) -> float:
    x = 1.0
    for _ in range(n):
        x = linked(x, model.parameters)
    return x


@kernel
def loop_slot(n: int, model: Model) -> float:
    x = 1.0
    for _ in range(n):
        x = model.value(x, model.parameters)
    return x


@kernel
def touch(state: State, b: int) -> float:
    return state.clusters[b].now


def nanoseconds(function, *arguments, count):
    """Of each of `count` rounds inside one call, or of each call if count is None."""
    function(*arguments)
    if count is not None:
        return 1e9 * best_seconds(lambda: function(*arguments), 7) / count

    def calls():
        for _ in range(20_000):
            function(*arguments)

    return 1e9 * best_seconds(calls, 5) / 20_000


def first_step_seconds(mode):
    """Seconds of processor time until a vector environment has made its first step, nothing cached.

    Args:
        mode: "as it is", or "nothing linked": every linked kernel is compiled into its callers.
    """
    code = "import gymnasium, ringyard\n"
    if mode == "nothing linked":
        code = (
            "import ringyard.compiled.functions as f, ringyard.compiled as c\n"
            "c.linked_kernel = f.linked_kernel = f.kernel\n"
        )
        code = "import sys, types\n" + _without_ringyard(code) + "import gymnasium, ringyard\n"
    code += (
        "e = gymnasium.make_vec('ringyard/Cluster-v0', num_envs=4); _, i = e.reset(seed=0)\n"
        "e.step(i['action_mask'].argmax(axis=1))\nimport time; print(time.process_time())\n"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
    return float(done.stdout.split()[-1])


def _without_ringyard(code):
    """Run `code` on the room of the mechanisms before the package that uses it is imported."""
    return (
        "import importlib.util, pathlib\n"
        "folder = pathlib.Path(importlib.util.find_spec('ringyard').origin).parent\n"
        "sys.modules['ringyard'] = types.ModuleType('ringyard')\n"
        "sys.modules['ringyard'].__path__ = [str(folder)]\n" + code + "del sys.modules['ringyard']\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-compilation", action="store_true", help="leave out the two cold starts")
    options = parser.parse_args()
    print(machine())
    n = 2_000_000
    model = Model(twice, np.array([0.999]))
    rows = {
        "kernel, compiled into its caller": loop_plain,
        "linked kernel, called by name": loop_linked,
        "slot, called by address": loop_slot,
    }
    for name, loop in rows.items():
        print(f"{name:44s} {nanoseconds(loop, n, model, count=n):8.1f} ns a call")
    state = empty_state(1, jobs=8, gpus=8, servers=2, classes=1, models=1, gpu_types=1)
    loose = namedtuple("Loose", state.__dataclass_fields__)(*state)
    calls = {
        "Python to kernel, state as a NamedTuple": (numba.njit(touch.python), loose),
        "Python to kernel, state as a bundle": (touch, state),
        "the same through its entry point": (entry_point(touch), state),
    }
    for name, (function, given) in calls.items():
        print(f"{name:44s} {nanoseconds(function, given, 0, count=None):8.0f} ns a call")
    for mode in () if options.no_compilation else ("as it is", "nothing linked"):
        seconds = first_step_seconds(mode)
        print(f"{'first step of make_vec, ' + mode:44s} {seconds:8.1f} s of processor time")


if __name__ == "__main__":
    main()
