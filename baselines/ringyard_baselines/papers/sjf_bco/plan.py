"""What SJF-BCO's planner works with: jobs, machine, what is tried, and the plan; all legal in kernels."""

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.compiled import FloatMatrix, FloatVector, IntVector, Records1, bundle
from ringyard.performance.model import Physics
from ringyard.state.records import Job

__all__ = [
    "FIRST_FIT",
    "LEAST_LOADED",
    "RANDOM",
    "SJF_BCO",
    "Batch",
    "Machine",
    "Plan",
    "Search",
    "Task",
    "empty_plan",
]


# how GPUs are chosen
SJF_BCO, FIRST_FIT, LEAST_LOADED, RANDOM = 0, 1, 2, 3


@bundle
class Batch:
    """The n jobs to plan, in planning order.

    Attributes:
        rows: [n] of the job table.
        records: [n] `Job` records.
        estimates: [n] rhohat / u, seconds.
        priorities: [n, G] random numbers, read by RANDOM only.
    """

    rows: IntVector
    records: Records1[Job]
    estimates: FloatVector
    priorities: FloatMatrix


@bundle
class Machine:
    """The G GPUs as they are: each one's server, and seconds until it is free, which are its first U."""

    servers: IntVector
    busy_seconds: FloatVector


@bundle
class Search:
    """What is tried.

    Attributes:
        rule: SJF_BCO, FIRST_FIT, LEAST_LOADED or RANDOM.
        kappas: thresholds, ascending; SJF-BCO's alone, as the next.
        over_provision: lambda.
        queues: FF, LS, RAND: jobs queue up on any GPUs; else they wait for GPUs that are free.
        horizon: T, upper limit of theta and of every job's exit, seconds.
        resolution: stop when the interval is this short, seconds.
    """

    rule: int
    kappas: IntVector
    over_provision: float
    queues: bool
    horizon: float
    resolution: float


@bundle
class Task:
    """What to plan, with what, and how fast jobs run."""

    batch: Batch
    machine: Machine
    search: Search
    physics: Physics


@bundle
class Plan:
    """Work space and result of one trial; G GPUs, S servers, n jobs.

    Attributes:
        load: [G] U_s^g, estimated seconds assigned to each GPU.
        free_at: [G] when the GPU's last planned job exits.
        spans: [G] 1 on the first GPU of a server held by a job that spans servers.
        taken: [G] scratch.
        marks: [S] scratch.
        start: [n] planned start.
        begin: [n + 1] where each job's GPUs begin in `gpus`.
        gpus: [sum of demands] planned GPU ids, job after job.
    """

    load: FloatVector
    free_at: FloatVector
    spans: IntVector
    taken: IntVector
    marks: IntVector
    start: FloatVector
    begin: IntVector
    gpus: IntVector


def empty_plan(cluster: Cluster, demands: NDArray[np.int64]) -> Plan:
    """A plan for jobs of the given demands, in planning order."""
    gpus, count = cluster.num_gpus, len(demands)
    return Plan(
        np.zeros(gpus),
        np.zeros(gpus),
        np.zeros(gpus, np.int64),
        np.zeros(gpus, np.int64),
        np.zeros(cluster.num_servers, np.int64),
        np.zeros(count),
        np.concatenate([[0], np.cumsum(demands)]).astype(np.int64),
        np.zeros(int(demands.sum()), np.int64),
    )
