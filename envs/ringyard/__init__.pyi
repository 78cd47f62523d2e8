"""Names that `ringyard` exports, for type checkers and for `__init__.py`, which imports them on first use."""

from ringyard.cluster import Cluster as Cluster
from ringyard.errors import RingyardError as RingyardError
from ringyard.fabric import Fabric as Fabric
from ringyard.jobs import JobTable as JobTable
from ringyard.mdp.actions import Actions as Actions
from ringyard.mdp.actions import Scores as Scores
from ringyard.mdp.env import ClusterEnv as ClusterEnv
from ringyard.mdp.env_config import EnvConfig as EnvConfig
from ringyard.mdp.experiments import experiment as experiment
from ringyard.mdp.observations import live_jobs as live_jobs
from ringyard.mdp.observations import queue_and_cluster as queue_and_cluster
from ringyard.mdp.vector import ClusterVectorEnv as ClusterVectorEnv
from ringyard.mdp.wrappers import ActionMaskObservation as ActionMaskObservation
from ringyard.observability import Observability as Observability
from ringyard.performance import PerformanceModel as PerformanceModel
from ringyard.performance import ideal as ideal
from ringyard.performance import ring_contention as ring_contention
from ringyard.placement import PlacementRule as PlacementRule
from ringyard.placement import consolidate as consolidate
from ringyard.placement import pack as pack
from ringyard.sim.allocation import Allocation as Allocation
from ringyard.sim.placement_plan import PlacementPlan as PlacementPlan
from ringyard.sim.simulator import Simulator as Simulator
from ringyard.sim.view import SchedulingView as SchedulingView
from ringyard.threads import get_num_threads as get_num_threads
from ringyard.threads import set_num_threads as set_num_threads
from ringyard.workloads import read_csv as read_csv

__version__: str
