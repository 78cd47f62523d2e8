"""Schedules of several schedulers on one workload, to be stepped through in a browser."""
