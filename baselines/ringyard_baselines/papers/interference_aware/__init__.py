"""Interference-aware parallelization (Geng et al., Cluster Computing 2020) and its two networks."""
