"""Workloads: random generators of job tables, and readers of traces.

`workload` has the protocol for own workloads. conf/workload has a yaml for each workload.
"""

from typing import TYPE_CHECKING, Any

from ringyard.workloads.extensions import Cancellations as Cancellations
from ringyard.workloads.extensions import CpuJobs as CpuJobs
from ringyard.workloads.extensions import Elastic as Elastic
from ringyard.workloads.extensions import Extended as Extended
from ringyard.workloads.extensions import GradientCpuWork as GradientCpuWork
from ringyard.workloads.extensions import Groups as Groups
from ringyard.workloads.extensions import LossCurves as LossCurves
from ringyard.workloads.extensions import ParameterServers as ParameterServers
from ringyard.workloads.extensions import PerWorker as PerWorker
from ringyard.workloads.extensions import Predictability as Predictability
from ringyard.workloads.papers import AITurboJobs as AITurboJobs
from ringyard.workloads.papers import BurstJobs as BurstJobs
from ringyard.workloads.papers import GadgetJobs as GadgetJobs
from ringyard.workloads.papers import OnesJobs as OnesJobs
from ringyard.workloads.papers import PartitionedJobs as PartitionedJobs
from ringyard.workloads.papers import PublishedMix as PublishedMix
from ringyard.workloads.replay import Replay as Replay
from ringyard.workloads.replay import replay_file as replay_file
from ringyard.workloads.synthetic import Arrivals as Arrivals
from ringyard.workloads.synthetic import Durations as Durations
from ringyard.workloads.synthetic import LogNormalDurations as LogNormalDurations
from ringyard.workloads.synthetic import QuantileDurations as QuantileDurations
from ringyard.workloads.synthetic import Sizes as Sizes
from ringyard.workloads.synthetic import Synthetic as Synthetic
from ringyard.workloads.workload import CostAssignment as CostAssignment
from ringyard.workloads.workload import ModelMix as ModelMix
from ringyard.workloads.workload import UniformCosts as UniformCosts
from ringyard.workloads.workload import Workload as Workload
from ringyard.workloads.workload import scale_to_load as scale_to_load

if TYPE_CHECKING:
    from ringyard.workloads.readers import TraceReader as TraceReader
    from ringyard.workloads.readers import read_csv as read_csv
    from ringyard.workloads.readers import read_helios as read_helios
    from ringyard.workloads.readers import read_pai as read_pai
    from ringyard.workloads.readers import read_philly as read_philly
    from ringyard.workloads.readers import read_trace as read_trace

if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import readers of files on first use, because pandas takes long to import."""
        if name == "TraceReader" or name.startswith("read_"):
            from ringyard.workloads import readers

            if hasattr(readers, name):
                return getattr(readers, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
