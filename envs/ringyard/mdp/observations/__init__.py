"""Observations of the environments: compiled writers and the blocks that they write."""

from ringyard.mdp.observations.jobs import live_job_summary, live_jobs
from ringyard.mdp.observations.observation import Observation, Observe
from ringyard.mdp.observations.queue import operation_graph, queue_and_cluster, queue_cluster_and_resources

__all__ = [
    "Observation",
    "Observe",
    "live_job_summary",
    "live_jobs",
    "operation_graph",
    "queue_and_cluster",
    "queue_cluster_and_resources",
]
