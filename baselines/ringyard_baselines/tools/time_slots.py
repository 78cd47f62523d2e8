"""Time slots of fixed length, for schedulers that decide only when a slot begins."""

import numpy as np

from ringyard.sim.engine.events import next_round
from ringyard.sim.view import SchedulingView


class TimeSlots:
    """Distinguishes decision points at which a time slot begins from those that events cause in between.

    Args:
        seconds: length of a slot. Slots begin at its multiples, the first one with the first job.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -np.inf

    def begins(self, view: SchedulingView) -> bool:
        """Return whether a slot has begun since the last call with jobs in the system."""
        empty = not len(view.waiting) and not len(view.running)
        if empty or view.now < self._next:
            return False
        self._next = next_round(view.now, self._seconds)
        return True
