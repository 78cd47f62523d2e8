"""Slots of fixed length, for schedulers that decide anew only when one begins."""

import numpy as np

from ringyard.sim.engine.events import next_round
from ringyard.sim.view import SchedulingView


class TimeSlots:
    """Tells the decisions at which a slot of fixed length begins from those that events cause in between.

    Args:
        seconds: length of a slot; slots begin at its multiples, the first with the first job.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = -np.inf

    def begins(self, view: SchedulingView) -> bool:
        """Whether a slot begins now, or should have since the last question."""
        empty = not len(view.waiting) and not len(view.running)
        if empty or view.now < self._next:
            return False
        self._next = next_round(view.now, self._seconds)
        return True
