"""Ringyard: Gymnasium environments of a multi-tenant GPU cluster. Importing it registers their ids."""

import importlib.util
from typing import TYPE_CHECKING, Any

from ringyard.mdp.registration import register_environments

if TYPE_CHECKING:
    from ringyard.cluster import Cluster as Cluster
    from ringyard.errors import RingyardError as RingyardError
    from ringyard.fabric import Fabric as Fabric
    from ringyard.jobs import JobSpec as JobSpec
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

#: {module: names that this package exports}. They are imported on first use, so that `--help` needs no numba
_EXPORTS = {
    "cluster": ("Cluster",),
    "errors": ("RingyardError",),
    "fabric": ("Fabric",),
    "observability": ("Observability",),
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
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted([*_MODULE_OF, "__version__"])

if not TYPE_CHECKING:  # a type checker would accept any name of a module with `__getattr__`

    def __getattr__(name: str) -> Any:
        """Import an export, `__version__` or a module of this package on first use."""
        if name == "__version__":
            return _version()
        if name in _MODULE_OF:
            value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
            globals()[name] = value
            return value
        module = f"{__name__}.{name}"
        if not name.startswith("_") and importlib.util.find_spec(module) is not None:
            return importlib.import_module(module)
        from ringyard.renamed import renamed_export

        return renamed_export(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "__version__"})


def _version() -> str:
    """Return the version of the installed package, or `0+unknown` if it is only on the path."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ringyard")
    except PackageNotFoundError:
        return "0+unknown"


register_environments()
