"""What a placement rule is, and asking one."""

from dataclasses import field
from typing import Protocol

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, bundle, linked_kernel, slot
from ringyard.information import Information, check_reads
from ringyard.placement.room import cpu_server
from ringyard.state.arrays import State

__all__ = ["FindGpus", "PlacementRule", "place"]


@slot
class FindGpus(Protocol):
    """Turns "so many GPUs for job j" into GPU ids.

    A rule reads free GPUs, slots, memory and cores from the state and may write only `out` and
    `server_scratch` (and, if it is random, the cluster's `rng`). It gives only what the cluster can hold;
    less that is free never makes a job placeable.
    """

    def __call__(
        self, state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector
    ) -> int:
        """How many GPU ids it wrote to `out` [gpus]: `wanted`, or 0 if it finds no place."""


@bundle
class PlacementRule:
    """A compiled rule and its parameters.

    Attributes:
        find: fills `FindGpus`.
        name: shown in tables.
        parameters: [parameters] float64, whatever the function reads.
        shares: it may give GPUs that other jobs hold; others are asked only where enough GPUs are free.
        takes: what it goes by, besides sizes and speeds.

    Raises:
        InformationError: `find` reads more of jobs than that.
    """

    find: FindGpus
    name: str
    parameters: FloatVector = field(default_factory=lambda: np.zeros(1))
    shares: bool = False
    takes: Information = Information.NOTHING

    def __post_init__(self) -> None:
        knows = self.takes | Information.SIZES | Information.SPEEDS
        check_reads(self.find, knows, f"placement rule {self.name}")


@linked_kernel
def place(state: State, b: int, j: int, rule: PlacementRule, out: Int32Vector) -> int:
    """Places for job j, which holds none, as a rule finds them; how many were written to `out`, 0: none.

    A CPU-only job gets one server (`room.cpu_server`), whatever the rule.
    """
    wanted = state.jobs[b, j].num_gpus
    if wanted == 0:
        return cpu_server(state, b, j, out)
    cluster = state.clusters[b]
    if wanted > (cluster.open_gpus if rule.shares else cluster.free_gpus):
        return 0
    return rule.find(state, b, j, wanted, rule.parameters, out)
