"""Lower bounds on mean job completion time and makespan that no schedule can beat."""

from ringyard.bounds.lower_bounds import LowerBounds, bounds_of, fastest_alone, lower_bounds

__all__ = ["LowerBounds", "bounds_of", "fastest_alone", "lower_bounds"]
