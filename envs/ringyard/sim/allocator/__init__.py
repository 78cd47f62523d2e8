"""From how much each job matters to legal allocations, for baselines and for agents' scores."""

from ringyard.sim.allocator.allocate import Allocator, allocate
from ringyard.sim.allocator.plan import (
    Estimate,
    EstimateLeft,
    Plan,
    attained,
    empty_plan,
    moves_of,
    predicted,
)

__all__ = [
    "Allocator",
    "Estimate",
    "EstimateLeft",
    "Plan",
    "allocate",
    "attained",
    "empty_plan",
    "moves_of",
    "predicted",
]
