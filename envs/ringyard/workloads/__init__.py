"""Workloads: random generators of job tables, and readers of traces.

`workload` has the protocol for own workloads. conf/workload has a yaml for each workload.
"""

from ringyard.renamed import lazy_exports

__all__, __getattr__ = lazy_exports(__name__)
