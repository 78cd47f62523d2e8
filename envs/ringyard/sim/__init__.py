"""The discrete-event simulator: jobs arrive at a GPU cluster, a scheduler allocates, time advances.

It does no I/O and needs neither Gymnasium nor Hydra. A run alternates three calls of `Simulator`: `view()`
shows the scheduler what it may see, `apply(allocations)` carries out what it answers, and `advance()` lets
time pass to the next decision point. Jobs progress at constant speed between events (`engine/events.py`).
docs/architecture.md ("An allocation, from `decide` to the engine") follows one through the modules.
"""
