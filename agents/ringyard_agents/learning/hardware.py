"""What a learner computes with: a device, and the processes that learn with it."""

import os
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.errors import ConfigurationError
from ringyard_agents.learning.peers import ALONE, Peers

__all__ = ["Device", "Equipped", "Hardware", "device_of", "equip", "on"]

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class Hardware:
    """What a learner computes with.

    Attributes:
        device: of networks and their updates; clusters are stepped by the processor's cores.
        peers: processes that learn the same agent.
    """

    device: torch.device = field(default_factory=partial(torch.device, "cpu"))
    peers: Peers = ALONE


@runtime_checkable
class Equipped(Protocol):
    """A learner that can use a GPU, or several processes.

    Attributes:
        hardware: what it computes with, to be set before `begin`.
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
            " attribute hardware (ringyard_agents/learning/hardware.py)"
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
