"""Schedulers that are one function: an order, a preemptive key, a choice of sizes."""
