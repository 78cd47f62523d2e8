"""The kernels as a GPU runs them, linked in LLVM and called through copies, here on a processor."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from ringyard.compiled.numba_internals import llvm, processor
from ringyard.errors import ActionError, ConfigurationError, PluginError
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.state.records import Job
from tools.cuda import llvm as cuda
from tools.cuda.llvm import Gpu, link, write_ptx
from tools.cuda.vector_env import _STRIDE, CudaVectorEnv, step_cluster

WORLD = {"experiment": "contention", "num_workloads": 8, "flat": True}
SEED = 5


class Copy(np.ndarray):
    """An array with CuPy's way to NumPy."""

    def get(self):
        return np.array(self)


class Host(Gpu):
    """A processor in place of a GPU: the same module of LLVM's, compiled for it."""

    def __init__(self):
        self._cupy = SimpleNamespace(asarray=lambda values: np.array(values).view(Copy))

    def _compile(self, entry, functions):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple, name, features = processor()
        made = llvm.Target.from_triple(triple)
        machine = made.create_target_machine(cpu=name, features=features, opt=1, jit=True)
        program = link(entry, functions, triple, str(machine.target_data))
        self.engine = llvm.create_mcjit_compiler(program, machine)
        self.engine.finalize_object()
        table = self.engine.get_global_value_address("ringyard_functions")
        run = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
        addresses = (ctypes.c_int64 * len(functions)).from_address(table)
        return list(addresses), run(self.engine.get_function_address("ringyard_entry"))

    def _place(self, copy):
        return copy.ctypes.data


class SameTables(ClusterVectorEnv):
    """On a processor, the job tables that clusters of a GPU begin."""

    def _draw(self, b):
        self.drawn = getattr(self, "drawn", [0] * self.num_envs)
        self.drawn[b] += 1
        return (SEED + b + (self.drawn[b] - 1) * _STRIDE) % self.config.num_workloads


@pytest.fixture(scope="module")
def gpu_env():
    env = CudaVectorEnv(4, device=Host(), **WORLD)
    yield env
    env.close()


def play(gpu, steps, choose, **arguments):
    """Step both environments with equal actions, and compare all that they return to the bit."""
    cpu = SameTables(gpu.num_envs, **WORLD, **arguments)
    (seen, info), (expected, known) = gpu.reset(seed=SEED), cpu.reset(seed=SEED)
    ends = 0
    for _ in range(steps):
        assert seen.tobytes() == expected.tobytes()
        for name, values in info.items():
            assert values.tobytes() == known[name].tobytes(), name
        actions = choose(known["action_mask"])
        seen, *results, info = gpu.step(actions)
        expected, *wanted, known = cpu.step(actions)
        for one, other in zip(results, wanted, strict=True):
            assert one.tobytes() == other.tobytes()
        ends += int(results[1].sum())
    gpu.check()
    return ends


def test_discrete_actions_on_a_gpu_equal_those_on_a_processor(gpu_env):
    rng = np.random.default_rng(0)
    ends = play(gpu_env, 260, lambda masks: np.array([rng.choice(np.flatnonzero(one)) for one in masks]))
    assert ends >= 4  # each cluster began a second episode


@pytest.mark.slow  # compiles the allocator once more
def test_scores_on_a_gpu_equal_those_on_a_processor():
    rng = np.random.default_rng(0)
    gpu = CudaVectorEnv(2, device=Host(), form="jobs", **WORLD)
    shape = gpu.action_space.shape
    assert play(gpu, 200, lambda _: rng.uniform(-1, 1, shape).astype(np.float32), form="jobs") >= 2


def test_a_masked_action_is_an_error_of_its_cluster(gpu_env):
    gpu_env.reset(seed=0)
    actions = gpu_env.action_masks().argmax(axis=1)
    actions[2] = 10**6
    lengths = gpu_env._gpu.copy(gpu_env._call.out.lengths)
    gpu_env.step(actions)
    assert lengths.tolist() == [1, 1, 0, 1]
    with pytest.raises(ActionError, match="cluster 2"):
        gpu_env.check()
    gpu_env.reset()
    gpu_env.check()


def test_an_exception_in_a_kernel_is_an_error_of_its_cluster(gpu_env):
    gpu_env.reset(seed=0)
    jobs = gpu_env._gpu.copy(gpu_env._call.state.jobs).view(Job.dtype)
    jobs["base_compute_seconds"][1] = np.nan
    for _ in range(32):
        gpu_env.step(gpu_env.action_masks().argmax(axis=1))
    with pytest.raises(PluginError, match="in cluster 1"):
        gpu_env.check()


def test_what_a_gpu_cannot_do_is_refused():
    with pytest.raises(ConfigurationError, match="reward=total_jct"):
        CudaVectorEnv(2, experiment="contention", form="jobs", reward="saved_jct")


def test_the_same_module_becomes_code_for_a_gpu(gpu_env, monkeypatch, tmp_path):
    """PTX of the step, where NVIDIA's library of device functions is installed."""
    try:
        cuda._libdevice()
    except ConfigurationError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(cuda, "folder_of", lambda package: tmp_path)
    ptx = write_ptx(step_cluster, cuda.functions_of(gpu_env._call), "sm_90").read_text()
    assert ".visible .entry ringyard_entry(" in ptx
    assert ".extern .func" not in ptx
