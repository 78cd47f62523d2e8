"""What an agent sees."""

from ringyard.mdp.observations.queue import queue_and_cluster
from ringyard.mdp.observations.resources import queue_cluster_and_resources

__all__ = ["queue_and_cluster", "queue_cluster_and_resources"]
