"""Ringyard: a multi-tenant GPU cluster as a Gymnasium environment; importing it registers the ids."""

import importlib.util
from typing import TYPE_CHECKING, Any

from ringyard.mdp.registration import register_environments

if TYPE_CHECKING:
    from ringyard.cluster import Cluster
    from ringyard.errors import RingyardError
    from ringyard.fabric import Fabric
    from ringyard.information import Information
    from ringyard.jobs import JobSpec, JobTable
    from ringyard.mdp.actions import Actions, Scores
    from ringyard.mdp.env import ClusterEnv
    from ringyard.mdp.env_config import EnvConfig
    from ringyard.mdp.experiments import experiment
    from ringyard.mdp.observations import live_jobs, queue_and_cluster
    from ringyard.mdp.vector import ClusterVectorEnv
    from ringyard.mdp.wrappers import ActionMaskObservation
    from ringyard.performance import PerformanceModel, ideal, ring_contention
    from ringyard.placement import PlacementRule, consolidate, pack
    from ringyard.sim.allocation import Allocation
    from ringyard.sim.placement_plan import PlacementPlan
    from ringyard.sim.simulator import Simulator
    from ringyard.sim.view import SchedulingView
    from ringyard.threads import get_num_threads, set_num_threads
    from ringyard.workloads import read_csv

    __version__: str

__all__ = [
    "ActionMaskObservation",
    "Actions",
    "Allocation",
    "Cluster",
    "ClusterEnv",
    "ClusterVectorEnv",
    "EnvConfig",
    "Fabric",
    "Information",
    "JobSpec",
    "JobTable",
    "PerformanceModel",
    "PlacementPlan",
    "PlacementRule",
    "RingyardError",
    "SchedulingView",
    "Scores",
    "Simulator",
    "__version__",
    "consolidate",
    "experiment",
    "get_num_threads",
    "ideal",
    "live_jobs",
    "pack",
    "queue_and_cluster",
    "read_csv",
    "ring_contention",
    "set_num_threads",
]

#: {module: what is found here by a shorter name}, imported when asked for: a command's help needs no numba
_FOUND_IN = {
    "cluster": ("Cluster",),
    "errors": ("RingyardError",),
    "fabric": ("Fabric",),
    "information": ("Information",),
    "jobs": ("JobSpec", "JobTable"),
    "mdp.actions": ("Actions", "Scores"),
    "mdp.env": ("ClusterEnv",),
    "mdp.env_config": ("EnvConfig",),
    "mdp.experiments": ("experiment",),
    "mdp.observations": ("live_jobs", "queue_and_cluster"),
    "mdp.vector": ("ClusterVectorEnv",),
    "mdp.wrappers": ("ActionMaskObservation",),
    "performance": ("PerformanceModel", "ideal", "ring_contention"),
    "placement": ("PlacementRule", "consolidate", "pack"),
    "sim.allocation": ("Allocation",),
    "sim.placement_plan": ("PlacementPlan",),
    "sim.simulator": ("Simulator",),
    "sim.view": ("SchedulingView",),
    "threads": ("get_num_threads", "set_num_threads"),
    "workloads": ("read_csv",),
}
_HOMES = {name: module for module, names in _FOUND_IN.items() for name in names}

if not TYPE_CHECKING:  # else every name would be one of this package's

    def __getattr__(name: str) -> Any:
        """What `__all__` lists, `__version__` and this package's modules, on first use."""
        if name == "__version__":
            return _version()
        if name in _HOMES:
            value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        module = f"{__name__}.{name}"
        if not name.startswith("_") and importlib.util.find_spec(module) is not None:
            return importlib.import_module(module)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """Of the installed package; a checkout that is only on the path has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ringyard")
    except PackageNotFoundError:
        return "0+unknown"


register_environments()
