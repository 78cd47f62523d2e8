"""Costs of steps, `info["cost"]`: what a constrained learner keeps below a limit."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import checked
from ringyard.compiled import Records1
from ringyard.errors import ConfigurationWarning
from ringyard.state.records import INTEGRALS, Integral, Job

#: function of job records [jobs] that returns the second [jobs] after which each is late. inf: never
DueSeconds = Callable[[Records1[Job]], NDArray[np.float64]]


@checked("cost")
@dataclass(frozen=True)
class Cost:
    """The growth of a time integral since the last step, or the share of jobs that became late since then.

    A job is late from the moment at which it should have ended, also if it then waits or runs. A blocked job
    that should have ended at some time is late when it is blocked.
    """

    integral: Integral | None = None  #: one of `ringyard.state.records.Integral`. None: none of them
    due_seconds: DueSeconds | None = None  #: when jobs should have ended. None: no job is ever late

    def weights(self, episodes: Sequence[Records1[Job]]) -> NDArray[np.float64]:
        """Return the cost per unit of each integral, and last per late job [episodes, Integral + 1].

        Args:
            episodes: job records [jobs] of each episode.
        """
        weights = np.zeros((len(episodes), INTEGRALS + 1))
        column = INTEGRALS if self.integral is None else self.integral
        weights[:, column] = [1.0 / len(jobs) if column == INTEGRALS else 1.0 for jobs in episodes]
        return weights


def no_cost() -> None:
    """Return None: `info` has no cost."""


def worst_fairness() -> Cost:
    """Create the cost that sums up to the largest finish-time fairness rho of an episode (Themis).

    The rho of a job (`ringyard.sim.metrics.JobTimes`) counts when the job ends.
    """
    return Cost(Integral.WORST_FAIRNESS)


def _deadline(jobs: Records1[Job]) -> NDArray[np.float64]:
    due = np.minimum(jobs["submit_seconds"] + jobs["deadline_seconds"], jobs["blocked_seconds"])
    if np.isinf(due).all():
        said = "no job has deadline_seconds or acceptable_jct; try cost=slowdown_violations"
        warnings.warn(f"cost=deadline_misses: {said}", ConfigurationWarning, stacklevel=2)
    return due


def deadline_misses() -> Cost:
    """Create the cost that sums up to the share of jobs of an episode that miss their deadline.

    It is the earlier of `JobTable.deadline_seconds` and `acceptable_jct`. Jobs without one are never late.
    """
    return Cost(due_seconds=_deadline)


def _exceed(slowdown: float, jobs: Records1[Job]) -> NDArray[np.float64]:
    return np.asarray(jobs["submit_seconds"] + slowdown * jobs["isolated_seconds"])


@checked("cost")
def slowdown_violations(slowdown: Annotated[float, "[1, inf)"] = 2.0) -> Cost:
    """Create the cost of jobs that exceed an agreed slowdown.

    Its sum over an episode is the share of jobs with a completion time of more than `slowdown` x their run
    time alone as they ask. The limit is an assumption: clusters publish none.

    Args:
        slowdown: largest completion time / run time alone that the agreement allows.
    """
    return Cost(due_seconds=partial(_exceed, slowdown))
