"""How fast a job runs: compiled functions of one declared signature."""

from ringyard.fabric import Fabric
from ringyard.performance.composed import composed
from ringyard.performance.interference import (
    Interference,
    no_interference,
    pair_table,
    sensitivity_pressure,
)
from ringyard.performance.model import IterationSeconds, PerformanceModel, ideal
from ringyard.performance.ring import ring_contention

__all__ = [
    "Fabric",
    "Interference",
    "IterationSeconds",
    "PerformanceModel",
    "composed",
    "ideal",
    "no_interference",
    "pair_table",
    "ring_contention",
    "sensitivity_pressure",
]
