"""Where jobs come from: a random generator in, a job table out."""

from typing import TYPE_CHECKING, Any

from ringyard.workloads.extensions import (
    Cancellations,
    CpuJobs,
    Elastic,
    Extended,
    GradientCpuWork,
    Groups,
    ParameterServers,
    PerWorker,
    Predictability,
)
from ringyard.workloads.papers import AITurboJobs, GadgetJobs, OnesJobs, PartitionedJobs, PublishedMix
from ringyard.workloads.replay import Replay, replay_file
from ringyard.workloads.synthetic import (
    Arrivals,
    Durations,
    LogNormalDurations,
    QuantileDurations,
    Sizes,
    Synthetic,
)
from ringyard.workloads.workload import Assignment, ModelMix, UniformCosts, Workload, scale_to_load

if TYPE_CHECKING:
    from ringyard.workloads.readers import read_csv, read_helios, read_pai, read_philly

__all__ = [
    "AITurboJobs",
    "Arrivals",
    "Assignment",
    "Cancellations",
    "CpuJobs",
    "Durations",
    "Elastic",
    "Extended",
    "GadgetJobs",
    "GradientCpuWork",
    "Groups",
    "LogNormalDurations",
    "ModelMix",
    "OnesJobs",
    "ParameterServers",
    "PartitionedJobs",
    "PerWorker",
    "Predictability",
    "PublishedMix",
    "QuantileDurations",
    "Replay",
    "Sizes",
    "Synthetic",
    "UniformCosts",
    "Workload",
    "read_csv",
    "read_helios",
    "read_pai",
    "read_philly",
    "replay_file",
    "scale_to_load",
]

if not TYPE_CHECKING:  # else every name would be one of this package's

    def __getattr__(name: str) -> Any:
        """Readers of files, on first use: most simulations read none, and pandas takes long to import."""
        if name.startswith("read_") and name in __all__:
            from ringyard.workloads import readers

            return getattr(readers, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
