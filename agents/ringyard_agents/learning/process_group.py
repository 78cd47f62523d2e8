"""Hardware of a learner: a torch device, and the processes that train the same agent together."""

import atexit
import importlib
import os
import sys
import threading
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError

_SILENT_SECONDS = 2.0  # until a process says that it waits for others

OBJECT = TypeVar("OBJECT")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one agent together, started by `torchrun`.

    All processes must call its methods in the same order, except `local_slice`.
    """

    rank: int = 0  #: index of this process. Process 0 writes the run folder.
    size: int = 1  #: number of processes

    def local_slice(self, setting: str, num_groups: int, group_size: int = 1) -> slice:
        """Return this process's slice among `num_groups`, a multiple of the processes, of `group_size`."""
        if num_groups % self.size:
            raise ConfigurationError(
                f"{setting} is {num_groups} and there are {self.size} processes"
                "; expected a multiple of the number of processes"
            )
        local = num_groups // self.size * group_size
        return slice(self.rank * local, (self.rank + 1) * local)

    def sum_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace a tensor by its sum over processes, which has the same bits in each. Returns it."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return [rows, ...], the concatenated arrays of all processes in order of rank."""
        if self.size == 1:
            return array
        parts: list[Any] = [None] * self.size
        dist.all_gather_object(parts, array)
        return np.concatenate(parts)

    def order_decisions(self, valid: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Order the decisions of all processes by step and cluster.

        `valid` [steps, clusters] says where this process decided. Returns [decisions] indices among the
        decisions of this process, or -1 for other processes.
        """
        step, cluster = np.nonzero(valid)
        if self.size == 1:
            return np.arange(len(step))
        places = np.column_stack((step, cluster + self.rank * valid.shape[1], np.full(len(step), self.rank)))
        gathered = self.gather(places)
        local = np.full(len(gathered), -1)
        local[gathered[:, 2] == self.rank] = np.arange(len(step))
        return local[np.lexsort((gathered[:, 1], gathered[:, 0]))]

    def broadcast(self, value: OBJECT) -> OBJECT:
        """Return the argument that process 0 passed. Arguments of other processes are ignored."""
        values: list[Any] = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def sum_values(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sums over processes of each of the values, an array of their shape."""
        return np.asarray(self.sum_tensor(torch.as_tensor(values).clone()).numpy())

    def sum_gradients(self, parameters: list[torch.nn.Parameter]) -> None:
        """Replace the gradient of each parameter by its sum over processes. A missing one counts as 0."""
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self.size == 1:
            return
        gradients = torch.cat([one.grad.reshape(-1) for one in parameters if one.grad is not None])
        parts = torch.split(self.sum_tensor(gradients), [one.numel() for one in parameters])
        for parameter, part in zip(parameters, parts, strict=True):
            parameter.grad = part.reshape(parameter.shape)


SINGLE_PROCESS = ProcessGroup()  #: the group of a process that trains an agent without others


def environment_integer(name: str, default: int) -> int:
    """Return the number that `torchrun` leaves in the variable `name`, `default` without it."""
    text = os.environ.get(name, str(default))
    if not text.isdecimal():
        raise ConfigurationError(f"the environment has {name}={text}; expected a number, as torchrun sets it")
    return int(text)


def join_process_group() -> ProcessGroup:
    """Join the processes that `torchrun` started and return their group (`SINGLE_PROCESS` without)."""
    size = environment_integer("WORLD_SIZE", 1)
    if size < 2:
        return SINGLE_PROCESS
    if not dist.is_initialized():
        # Its functions bind the process group of the time of the import as a default argument. Imported
        # later, they would keep the group and its threads alive after destroy_process_group, and the process
        # would now and then abort at its end.
        importlib.import_module("torch.distributed.nn.functional")
        here = environment_integer("LOCAL_WORLD_SIZE", size)  # NCCL takes one process for each GPU
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.device_count() >= here else "gloo"
        address = ":".join(os.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
        others = f"{size - 1} more process{'es' * (size > 2)} at {address} (WORLD_SIZE={size})"
        text = f"waiting for {others}; without WORLD_SIZE in the environment one process trains"
        joined = Future[None]()

        def join() -> None:
            try:
                joined.set_result(dist.init_process_group(backend))
            except (ValueError, RuntimeError) as error:
                joined.set_exception(error)

        threading.Thread(target=join, daemon=True).start()  # the main thread handles signals meanwhile
        try:
            if wait([joined], _SILENT_SECONDS).not_done:
                print(text, file=sys.stderr, flush=True)
            joined.result()
        except (ValueError, RuntimeError) as error:
            raise ConfigurationError(
                f"WORLD_SIZE is {os.environ['WORLD_SIZE']} and the processes cannot connect: {error};"
                " start them with torchrun --nproc-per-node=N -m ringyard_agents train ..."
            ) from error
        atexit.register(dist.destroy_process_group)  # otherwise its threads may abort the process at its end
    return ProcessGroup(dist.get_rank(), dist.get_world_size())


@dataclass(frozen=True)
class Hardware:
    """Device and processes of a learner."""

    #: device of networks and their updates. Clusters are always simulated on the CPU.
    device: torch.device = field(default_factory=partial(torch.device, "cpu"))
    process_group: ProcessGroup = SINGLE_PROCESS  #: the processes that train the same agent


def select_device(name: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return a torch device; "auto" is a GPU if there is one. Processes of a machine get its GPUs in turn."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigurationError(
            "device is cuda and torch finds no GPU; expected device=cpu, device=auto, or a machine with a GPU"
            " and a build of torch for it"
        )
    local = environment_integer("LOCAL_RANK", 0) % torch.cuda.device_count()
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def to_device(device: torch.device, array: NDArray[np.generic]) -> torch.Tensor:
    """Return an array as a tensor on a device. Copies to a GPU go through pinned memory."""
    tensor = torch.as_tensor(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
