"""Observations of the environments: compiled writers and the blocks that they write."""

from ringyard.mdp.observations.jobs import live_job_summary as live_job_summary
from ringyard.mdp.observations.jobs import live_jobs as live_jobs
from ringyard.mdp.observations.observation import Observation as Observation
from ringyard.mdp.observations.observation import Observe as Observe
from ringyard.mdp.observations.queue import operation_graph as operation_graph
from ringyard.mdp.observations.queue import queue_and_cluster as queue_and_cluster
from ringyard.mdp.observations.queue import queue_cluster_and_resources as queue_cluster_and_resources
