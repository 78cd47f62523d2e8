"""Runs of schedulers on workloads, compared: tables, plots, TensorBoard."""
