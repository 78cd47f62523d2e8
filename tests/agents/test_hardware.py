"""Which GPU a process takes, and how arrays go there; no GPU is needed."""

import numpy as np
import pytest
import torch

from ringyard.errors import ConfigurationError
from ringyard_agents.learning.process_group import select_device, to_device


@pytest.fixture
def two_gpus(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    return chosen


@pytest.mark.parametrize("name", ["auto", "cuda"])
@pytest.mark.parametrize(("rank", "gpu"), [(None, 0), (1, 1), (3, 1)])
def test_processes_of_a_machine_take_a_gpu_each_in_turn(name, rank, gpu, two_gpus, monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", str(rank))
    assert select_device(name) == torch.device("cuda", gpu)
    assert two_gpus == [gpu]


def test_without_a_gpu_auto_is_the_processor_and_cuda_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert select_device("auto") == torch.device("cpu")
    with pytest.raises(
        ConfigurationError, match="device is cuda and torch finds no GPU; expected device=cpu"
    ):
        select_device("cuda")


def test_arrays_go_to_a_gpu_from_pinned_memory_without_waiting(monkeypatch):
    went = []

    def pin_memory(self):
        went.append("pinned")
        return self

    def to(self, device, non_blocking=False):
        went.append((device, non_blocking))
        return self

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(torch.Tensor, "to", to)
    array = np.arange(3.0)
    np.testing.assert_array_equal(to_device(torch.device("cuda", 1), array).numpy(), array)
    assert went == ["pinned", (torch.device("cuda", 1), True)]


def test_on_the_processor_a_tensor_is_a_window_on_the_array():
    array = np.zeros(2)
    to_device(torch.device("cpu"), array)[0] = 1.0
    assert array[0] == 1.0
