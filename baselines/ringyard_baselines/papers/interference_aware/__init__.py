"""Interference-aware parallelization (Cluster Computing 2020): CLWP and NLWP."""
