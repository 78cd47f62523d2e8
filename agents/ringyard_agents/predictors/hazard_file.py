"""Files of hazard networks, written by `python -m tools.hazard`, and schedulers that use them."""

from pathlib import Path
from typing import Any

import numpy as np

from ringyard.allocator import Allocator, Gamma, RunningFactor, SizePower
from ringyard.checks import NonNegative, Positive, checked
from ringyard.errors import ConfigurationError
from ringyard.placement import PlacementRule
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_baselines.policies.allocating import AllocatingScheduler
from ringyard_baselines.policies.least_estimated import LeastEstimated
from ringyard_baselines.tools.survival import SurvivalEstimate

#: network fitted to the public part of Microsoft's Philly trace. Its header says how
SHIPPED = Path(__file__).parent / "weights" / "hazard_philly.safetensors"
KIND = "hazard network"  #: of such files, in their headers


def read_survival_estimate(file: str | Path | None = None) -> SurvivalEstimate:
    """Read a file of `python -m tools.hazard` (None: the shipped one) as an estimate of the seconds left."""
    path = SHIPPED if file is None else Path(file).expanduser()
    saved = Checkpoint.read(path)
    if saved.metadata.get("kind") != KIND:
        raise ConfigurationError(f"{path} is no hazard network; expected a file of `python -m tools.hazard`")
    return SurvivalEstimate({name: array.astype(np.float64) for name, array in saved.arrays.items()})


def hazard(
    placement: PlacementRule,
    file: str | None = None,
    running_factor: float = 0.2,
    gpu_power: NonNegative = 1.0,
    round_seconds: Positive = 300.0,
) -> LeastEstimated:
    """Highest Gittins index per GPU ** gpu_power first, preemptive.

    `file` is one of `read_survival_estimate`, the other arguments are those of `LeastEstimated`.
    """
    estimate = read_survival_estimate(file)
    return LeastEstimated(placement, estimate, "hazard", gpu_power, running_factor, round_seconds)


@checked("scheduler")
def allocator_hazard(
    file: str | None = None,
    running_factor: RunningFactor = 0.5,
    gamma: Gamma = 0.75,
    size_power: SizePower = 0.7,
    preemption_price: NonNegative = 0.0,
) -> AllocatingScheduler:
    """The allocator with weights of (1 / Gittins index) ** -gamma.

    `file` is one of `read_survival_estimate`, the other arguments are those of `Allocator`.
    """
    options: dict[str, Any] = {"running_factor": running_factor, "preemption_price": preemption_price}
    allocator = Allocator(gamma, size_power, estimate=read_survival_estimate(file), **options)
    return AllocatingScheduler(allocator, "allocator_hazard")
