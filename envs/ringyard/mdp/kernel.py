"""What compiled steps of every kind of actions share: to begin an episode, and to reward and observe."""

from ringyard.compiled import (
    BoolMatrix,
    BoolVector,
    Float32Matrix,
    Float32Vector,
    FloatMatrix,
    FloatVector,
    IntVector,
    Records2,
    address_of,
    bundle,
    complain,
    complaint,
    is_watched,
    kernel,
    whole,
)
from ringyard.mdp.episode import Episode, StaticFeatures
from ringyard.mdp.observations.observation import Observe
from ringyard.sim.engine.setup import load
from ringyard.state.arrays import State
from ringyard.state.records import Job

__all__ = [
    "BEGIN",
    "DONE",
    "GOES_ON",
    "SETTLE",
    "STALLED",
    "STEP",
    "TRUNCATED",
    "Bank",
    "Outputs",
    "Sight",
    "conclude",
    "enter",
]

#: values of an observation lie between minus this and this
LIMIT = 10.0
_OUTSIDE = complaint(
    "observation {function} wrote {got} at position {there:.0f} of its row; expected {expected:.0f} at most,"
    " up or down"
)

# what a step ended in
GOES_ON, DONE, TRUNCATED, STALLED = 0, 1, 2, 3
# what brings a cluster to its next decision
STEP, BEGIN, SETTLE = 0, 1, 2


@bundle
class Sight:
    """What agents see.

    Attributes:
        observe: writes observations.
        parameters: [parameters] what it reads.
        num_running: R, visible running jobs.
    """

    observe: Observe
    parameters: FloatVector
    num_running: int


@bundle
class Outputs:
    """What steps write, one row per cluster; each step overwrites it.

    Attributes:
        observations: [clusters, size].
        masks: [clusters, mask] valid actions; of scores, who has one.
        rewards: [clusters] of the last step.
        returns: [clusters] undiscounted sum of the episode's rewards.
        lengths: [clusters] steps of the episode.
        ends: [clusters] GOES_ON, DONE, TRUNCATED or STALLED.
        playing: [clusters] an episode is on, which the next step continues.
    """

    observations: Float32Matrix
    masks: BoolMatrix
    rewards: FloatVector
    returns: FloatVector
    lengths: IntVector
    ends: IntVector
    playing: BoolVector


@bundle
class Bank:
    """Workloads ready to be loaded.

    Attributes:
        records: [rows, jobs] `ringyard.state.records.Job` at time zero.
        static: [rows, jobs] `StaticFeatures`.
        num_jobs: [rows].
        weights: [rows, Integral] of the reward.
        seeds: [rows] of failures, stragglers and whatever else of an episode is random.
    """

    records: Records2[Job]
    static: Records2[StaticFeatures]
    num_jobs: IntVector
    weights: FloatMatrix
    seeds: IntVector


@kernel
def _begin(
    state: State, episode: Episode, b: int, row: int, bank: Bank, limit_seconds: float, out: Outputs
) -> None:
    """Load row `row` of the bank into cluster b; nothing has arrived yet."""
    count = bank.num_jobs[row]
    load(state, b, bank.records[row, :count], limit_seconds, bank.seeds[row])
    for j in range(count):
        episode.static[b, j] = bank.static[row, j]
    for k in range(bank.weights.shape[1]):
        episode.reward_weights[b, k] = bank.weights[row, k]
    episode.last_integrals[b] = 0.0
    episode.num_live[b] = 0
    episode.num_arrived[b] = 0
    out.returns[b] = 0.0
    out.lengths[b] = 0


@kernel
def enter(
    state: State,
    episode: Episode,
    b: int,
    phase: int,
    row: int,
    bank: Bank,
    limit_seconds: float,
    out: Outputs,
) -> int:
    """Make cluster b ready for what brings it on; not GOES_ON: its episode was over as it began."""
    if phase == BEGIN:
        _begin(state, episode, b, row, bank, limit_seconds, out)
    return whole(out.ends[b]) if phase == STEP else GOES_ON


@kernel
def _reward(state: State, episode: Episode, b: int) -> float:
    reward = 0.0
    for k in range(state.integrals.shape[1]):
        grown = state.integrals[b, k] - episode.last_integrals[b, k]
        reward += episode.reward_weights[b, k] * grown
        episode.last_integrals[b, k] = state.integrals[b, k]
    return reward


@kernel
def _check_row(row: Float32Vector, function: int) -> None:
    """Complain of the first value of an observation that its space does not hold."""
    outside = 0
    for value in row:
        outside += not -LIMIT <= value <= LIMIT
    if outside == 0:
        return
    for i in range(len(row)):
        if not -LIMIT <= row[i] <= LIMIT:
            complain(_OUTSIDE, function, 0, row[i], LIMIT, i)


@kernel
def conclude(
    state: State, episode: Episode, b: int, end: int, phase: int, sight: Sight, out: Outputs
) -> None:
    """Note how cluster b came to its next decision; reward a step, and observe."""
    out.ends[b] = end
    out.playing[b] = end == GOES_ON or (phase != STEP and end != STALLED)
    if phase == STEP:
        reward = _reward(state, episode, b)
        out.rewards[b] = reward
        out.returns[b] += reward
        out.lengths[b] += 1
    seen = out.observations[b]
    sight.observe(state, episode, b, sight.num_running, sight.parameters, seen)
    if is_watched(sight.observe):
        _check_row(seen, address_of(sight.observe))
