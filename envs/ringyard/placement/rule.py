"""What a placement rule is, and asking one."""

from dataclasses import field
from typing import Protocol

import numpy as np

from ringyard.compiled import FloatVector, Int32Vector, address_of, bundle, is_watched, linked_kernel, slot
from ringyard.information import Information, check_reads
from ringyard.placement.places import check_places
from ringyard.placement.room import cpu_server
from ringyard.state.arrays import State

__all__ = ["FindGpus", "PlacementRule", "place"]


@slot
class FindGpus(Protocol):
    """Turns "so many GPUs for job j" into GPU ids.

    A rule reads free GPUs, slots, memory and cores from the state and may write only `out`, `server_scratch`
    and `number_scratch` (and, if it is random, the cluster's `rng`). It promises:

    * exactly `wanted` GPUs, or none;
    * ids from 0 to the cluster's last GPU, each once;
    * GPUs of servers that are up, without a job, or with fewer than `jobs_per_gpu` if it says `shares`;
    * on each GPU the memory and on each server the cores that the job needs in its present shape.

    All of that is checked each time, the last three of rules of others only (with RINGYARD_CHECK=1 of all).
    It also promises that less which is free never makes a job placeable, and to answer the same question in
    the same way; an action that finds no place any more is an error.
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

    A CPU-only job gets one server (`room.cpu_server`), whatever the rule. A rule that breaks its promise is
    a PluginError.
    """
    wanted = state.jobs[b, j].num_gpus
    if wanted == 0:
        return cpu_server(state, b, j, out)
    cluster = state.clusters[b]
    if wanted > (cluster.open_gpus if rule.shares else cluster.free_gpus):
        return 0
    count = rule.find(state, b, j, wanted, rule.parameters, out)
    if count != 0 and (count != wanted or is_watched(rule.find)):
        check_places(state, b, j, address_of(rule.find), rule.shares, out, count)
    return count
