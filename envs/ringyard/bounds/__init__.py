"""Lower bounds on mean job completion time and makespan that no schedule can beat."""

from ringyard.bounds.lower_bounds import LowerBounds as LowerBounds
from ringyard.bounds.lower_bounds import isolated_bounds as isolated_bounds
from ringyard.bounds.lower_bounds import simulation_bounds as simulation_bounds
