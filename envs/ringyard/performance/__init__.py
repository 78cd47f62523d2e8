"""How fast a job runs: compiled functions of one declared signature."""

from ringyard.performance.model import ITERATION_SECONDS, PerformanceModel, ideal
from ringyard.performance.ring import ring_contention

__all__ = ["ITERATION_SECONDS", "PerformanceModel", "ideal", "ring_contention"]
