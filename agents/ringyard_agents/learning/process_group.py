"""Hardware of a learner: a device, and the processes that learn the same agent together."""

import atexit
import importlib
import os
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError

THING = TypeVar("THING")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a training, all of which call its methods (but `part`) in the same order.

    Attributes:
        rank: of this one; 0 writes the run.
        size: number of processes.
    """

    rank: int = 0
    size: int = 1

    def part(self, what: str, count: int, members: int = 1) -> slice:
        """The items of this process.

        Args:
            what: name of the setting, for errors.
            count: groups of items of all processes together.
            members: items in each group.

        Raises:
            ConfigurationError: the groups cannot be shared out evenly.
        """
        if count % self.size:
            raise ConfigurationError(
                f"{what} is {count} and there are {self.size} processes; expected a multiple of them"
            )
        own = count // self.size * members
        return slice(self.rank * own, (self.rank + 1) * own)

    def total(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over processes, in place; the same bits in each."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gathered(self, array: NDArray[Any]) -> NDArray[Any]:
        """[rows, ...] the concatenated arrays of all processes."""
        if self.size == 1:
            return array
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, array)
        return np.concatenate(parts)

    def from_first(self, thing: THING) -> THING:
        """The argument of process 0."""
        given: list[Any] = [thing]
        if self.size > 1:
            dist.broadcast_object_list(given, src=0)
        found: THING = given[0]
        return found

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n] sums over processes."""
        return np.asarray(self.total(torch.as_tensor(values).clone()).numpy())

    def add_up(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace every parameter's gradient by its sum over processes; a missing one counts as 0."""
        for one in parameters:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        if self.size == 1:
            return
        every = torch.cat([one.grad.reshape(-1) for one in parameters if one.grad is not None])
        parts = torch.split(self.total(every), [one.numel() for one in parameters])
        for one, part in zip(parameters, parts, strict=True):
            one.grad = part.reshape(one.shape)


#: a process that learns by itself
ALONE = ProcessGroup()


def join_process_group() -> ProcessGroup:
    """Join the processes that `torchrun` started; `ALONE` without it.

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
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


@dataclass(frozen=True)
class Hardware:
    """Hardware of a learner.

    Attributes:
        device: of networks and their updates; clusters are always stepped on the CPU.
        peers: processes that learn the same agent.
    """

    device: torch.device = field(default_factory=partial(torch.device, "cpu"))
    peers: ProcessGroup = ALONE


def device_of(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """The device of a name; each process of a machine gets its own GPU.

    Args:
        name: auto takes a GPU if there is one.

    Raises:
        ConfigurationError: cuda without a GPU.
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
    """The array as a tensor on a device, sent to a GPU through pinned memory."""
    tensor = torch.as_tensor(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
