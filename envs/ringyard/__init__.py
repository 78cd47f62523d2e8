"""Ringyard: a multi-tenant GPU cluster as a Gymnasium environment; importing it registers the ids."""

from ringyard.cluster import Cluster
from ringyard.errors import RingyardError
from ringyard.fabric import Fabric
from ringyard.jobs import JobSpec, JobTable
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.registration import register_environments
from ringyard.mdp.setting import Setting
from ringyard.mdp.vector import ClusterVectorEnv
from ringyard.mdp.wrappers import ActionMaskObservation
from ringyard.performance import PerformanceModel, ideal, ring_contention
from ringyard.sim.allocation import Allocation
from ringyard.sim.simulator import Simulator
from ringyard.sim.view import SchedulingView
from ringyard.threads import get_num_threads, set_num_threads

__all__ = [
    "ActionMaskObservation",
    "Allocation",
    "Cluster",
    "ClusterEnv",
    "ClusterVectorEnv",
    "Fabric",
    "JobSpec",
    "JobTable",
    "PerformanceModel",
    "RingyardError",
    "SchedulingView",
    "Setting",
    "Simulator",
    "get_num_threads",
    "ideal",
    "ring_contention",
    "set_num_threads",
]

register_environments()
