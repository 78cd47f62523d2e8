"""From how much each job matters to legal allocations, for baselines and for agents' scores."""

from ringyard.allocator.allocate import Allocator, Gamma, SizePower, Starts, Stay, allocate
from ringyard.allocator.plan import (
    UNKNOWN_SECONDS,
    Estimate,
    EstimateLeft,
    Plan,
    Rules,
    UnknownSeconds,
    attained,
    empty_plan,
    moves_of,
    predicted,
)
from ringyard.allocator.rates import Rates, put_rates, rates_of, with_rates_of, with_room_for

__all__ = [
    "UNKNOWN_SECONDS",
    "Allocator",
    "Estimate",
    "EstimateLeft",
    "Gamma",
    "Plan",
    "Rates",
    "Rules",
    "SizePower",
    "Starts",
    "Stay",
    "UnknownSeconds",
    "allocate",
    "attained",
    "empty_plan",
    "moves_of",
    "predicted",
    "put_rates",
    "rates_of",
    "with_rates_of",
    "with_room_for",
]
