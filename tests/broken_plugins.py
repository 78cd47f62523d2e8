"""Functions that fill slots and break what they promise; `parameters[0]` says how."""

import numpy as np

from ringyard.compiled import Float32Vector, FloatVector, Int32Vector, implements
from ringyard.mdp.episode import Episode
from ringyard.mdp.observations import queue_and_cluster
from ringyard.mdp.observations.observation import Observation, Observe
from ringyard.performance import IterationSeconds, PerformanceModel
from ringyard.placement import FindGpus, PlacementRule
from ringyard.placement.availability import take_free_gpus
from ringyard.state.arrays import State
from ringyard.state.records import Job
from ringyard_baselines.policies.priority_rule import JobKey

OUTSIDE, NEGATIVE, TWICE, BUSY, FEW, MANY, HUGE, ENDLESS, PAST, ROOM, RAISES, BELOW, MOODY = range(13)

#: what the error says of each mistake of a rule
RULES = {
    OUTSIDE: r"gave job \d+ GPU 8; expected ids from 0 to 7",
    NEGATIVE: r"gave job \d+ GPU -1; expected ids from 0 to 7",
    TWICE: r"gave job \d+ GPU 2 twice; expected \d+ different ones",
    BUSY: r"gave job 1 GPU 0, which holds 1 jobs; expected 0 at most",
    FEW: r"gave job \d+ \d GPUs; expected \d, or 0",
    MANY: r"gave job \d+ \d GPUs; expected \d, or 0",
    HUGE: r"gave job \d+ 1000 GPUs; expected \d, or 0",
    ENDLESS: r"gave job \d+ 1000000000 GPUs; expected \d, or 0",
    PAST: r"raised IndexError: index is out of bounds",
    ROOM: r"raised IndexError: index is out of bounds",
    RAISES: r"raised ValueError: no idea",
    BELOW: r"gave job \d+ -3 GPUs; expected \d, or 0",
}


@implements(FindGpus)
def misplace(state: State, b: int, j: int, wanted: int, parameters: FloatVector, out: Int32Vector) -> int:
    mistake = int(parameters[0])
    if mistake == PAST:
        for i in range(len(out) + 100_000):
            out[i] = i
    if mistake == ROOM:
        return take_free_gpus(state, b, j, 1_000_000, wanted, out, 0)
    if mistake == RAISES:
        raise ValueError("no idea")
    count = 0
    for s in range(state.servers.shape[1]):
        count = take_free_gpus(state, b, j, s, wanted - count, out, count)
    if mistake == OUTSIDE:
        out[wanted - 1] = state.gpus.shape[1]
    if mistake == NEGATIVE:
        out[0] = -1
    if mistake == TWICE:
        out[:wanted] = 2
    if mistake == BUSY:
        for i in range(wanted):
            out[i] = i
    if mistake == FEW:
        return wanted - 1
    if mistake == MANY:
        return wanted + 1
    if mistake == HUGE:
        return 1000
    if mistake == ENDLESS:
        return 1_000_000_000
    if mistake == BELOW:
        return -3
    if mistake == MOODY:
        state.server_scratch[b, 0] += 1
        return wanted if state.server_scratch[b, 0] % 2 == 1 else 0
    return wanted


def misplacing(mistake, shares=False):
    """A rule that takes the lowest GPUs, with one mistake."""
    return PlacementRule(misplace, "misplace", np.array([float(mistake)]), shares=shares)


@implements(IterationSeconds)
def mistime(job: Job, parameters: FloatVector) -> float:
    if job.num_servers >= parameters[1]:
        return parameters[int(parameters[0])]
    return 1.0


def mistiming(value, from_servers=0):
    """A model that says `value` of jobs on so many servers; None: it reads past its parameters."""
    where = 1000.0 if value is None else 2.0
    return PerformanceModel(mistime, np.array([where, from_servers, value or 0.0]))


@implements(Observe)
def misobserve(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    out[:] = 0.0
    out[int(parameters[0])] = parameters[1]


def misobserving(position, value):
    """An observation of zeros but for one value."""
    return Observation(
        misobserve,
        queue_and_cluster().blocks,
        True,
        queue_and_cluster().observability,
        np.array([position, value]),
    )


@implements(JobKey)
def misjudge(job: Job, now: float, parameters: FloatVector) -> float:
    return parameters[int(parameters[0])]


@implements(JobKey)
def fair(job: Job, now: float, parameters: FloatVector) -> float:
    return 1.0
