"""What a learner computes with: a device, and the processes that learn the same agent together."""

import atexit
import importlib
import os
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard.threads import usable_cores

__all__ = [
    "ALONE",
    "Device",
    "Equipped",
    "Hardware",
    "ProcessGroup",
    "device_of",
    "equip",
    "join_process_group",
    "on",
    "threads_of_process",
]


THING = TypeVar("THING")


class ProcessGroup:
    """The processes of a training; every method but `part` is called by all of them, in the same order.

    Attributes:
        rank: of this one; 0 writes the run.
        size: how many there are.
    """

    rank = 0
    size = 1

    def part(self, what: str, count: int) -> slice:
        """Which of so many things are this process's.

        Args:
            what: they are, as users know it.
            count: of all processes together.

        Raises:
            ConfigurationError: not the same number for each.
        """
        if count % self.size:
            raise ConfigurationError(
                f"{what} is {count} and there are {self.size} processes; expected a multiple of them"
            )
        own = count // self.size
        return slice(self.rank * own, (self.rank + 1) * own)

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over processes, in place; the same bits in each."""
        return tensor

    def gathered(self, array: NDArray[Any]) -> NDArray[Any]:
        """The arrays of all processes behind each other, [rows, ...]; each may have other rows."""
        return array

    def from_first(self, thing: THING) -> THING:
        """What process 0 gives."""
        return thing

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] sums over processes."""
        return np.asarray(self.total(torch.as_tensor(values).clone()).numpy())

    def add_up(self, parameters: list[torch.nn.Parameter]) -> None:
        """Every parameter's gradient becomes the sum of those of all processes; none counts as 0."""
        for one in parameters:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        if self.size == 1:
            return
        every = torch.cat([one.grad.reshape(-1) for one in parameters if one.grad is not None])
        parts = torch.split(self.total(every), [one.numel() for one in parameters])
        for one, part in zip(parameters, parts, strict=True):
            one.grad = part.reshape(one.shape)


class _TorchGroup(ProcessGroup):
    """Processes that have found one another."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(tensor)
        return tensor

    def gathered(self, array: NDArray[Any]) -> NDArray[Any]:
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, array)
        return np.concatenate(parts)

    def from_first(self, thing: THING) -> THING:
        given: list[Any] = [thing]
        dist.broadcast_object_list(given, src=0)
        found: THING = given[0]
        return found


#: a process that learns by itself
ALONE = ProcessGroup()


def join_process_group() -> ProcessGroup:
    """The processes that `torchrun` has started with this one; `ALONE` without it.

    Raises:
        ConfigurationError: they do not find one another.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return ALONE
    if not dist.is_initialized():
        # defaults of its functions are the group there is when it is imported, which they would keep, and its
        # threads, past destroy_process_group: a process that ends with them now and then aborts
        importlib.import_module("torch.distributed.nn.functional")
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        try:
            dist.init_process_group(backend)
        except (ValueError, RuntimeError) as error:
            raise ConfigurationError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']} and the processes do not find one another:"
                f" {error}; start them with torchrun --nproc-per-node=N -m ringyard_agents train ..."
            ) from error
        atexit.register(dist.destroy_process_group)  # else its threads may abort the process as it ends
    return _TorchGroup()


def threads_of_process() -> int:
    """This process's share of the cores, beside those that `torchrun` has started on the same machine."""
    return max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Hardware:
    """What a learner computes with.

    Attributes:
        device: of networks and their updates; clusters are stepped by the processor's cores.
        peers: processes that learn the same agent.
    """

    device: torch.device = field(default_factory=partial(torch.device, "cpu"))
    peers: ProcessGroup = ALONE


@runtime_checkable
class Equipped(Protocol):
    """A learner that can use a GPU, or several processes.

    Attributes:
        hardware: what it computes with, to be set before `setup`.
    """

    hardware: Hardware


def equip(learner: object, hardware: Hardware) -> None:
    """Say what a learner computes with.

    Raises:
        ConfigurationError: it can use the processor only, in one process, and there is more.
    """
    if isinstance(learner, Equipped):
        learner.hardware = hardware
    elif hardware.device.type != "cpu" or hardware.peers.size > 1:
        raise ConfigurationError(
            f"{type(learner).__name__} learns on the processor in one process; device is {hardware.device},"
            f" processes are {hardware.peers.size}; expected device=cpu and no torchrun, or a learner with an"
            " attribute hardware (ringyard_agents/learning/process_group.py)"
        )


def device_of(name: Device) -> torch.device:
    """The device of that name; `auto`: a GPU if there is one. Processes of one machine take one GPU each.

    Raises:
        ConfigurationError: cuda, and there is none.
    """
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigurationError(
            "device is cuda and torch finds no GPU; expected device=cpu, device=auto, or a machine with a GPU"
            " and a build of torch for it"
        )
    local = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def on(device: torch.device, array: NDArray[np.generic]) -> torch.Tensor:
    """The array as a tensor there; on the way to a GPU through memory that it may read by itself."""
    tensor = torch.as_tensor(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
