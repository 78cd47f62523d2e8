"""The discrete-event simulator: jobs arrive at a GPU cluster, a scheduler allocates, time advances.

It does no I/O and needs neither Gymnasium nor Hydra. A run alternates three calls of `Simulator`:

1. `view()` shows the scheduler what it may see: a `SchedulingView` of the cluster and its jobs.
2. `apply(allocations)` checks each `Allocation` and carries it out at the present time: start, migrate,
   resize, preempt or reject.
3. `advance()` lets time pass to the next decision point. Jobs progress at constant speed from event to event:
   a job arrives, ends or is cancelled, a server fails or returns, a round begins. Each event changes the
   speeds of the neighbours that it affects (`engine/events.py`).

`metrics()` summarises the run. Read on in this order:

* `simulator.py`: the three calls. `allocation.py`: the one kind of decision.
* `view.py` and `job_columns.py`: what schedulers read. `placement_plan.py`: trying placements on a copy
  (`scratch.py`), optionally with an admission filter (`admission.py`). `speeds.py`: profiles of jobs.
* `feasibility.py`: why an allocation is refused. `metrics.py`: per-job times and their summary.
* `engine/`: the compiled functions behind all of this. `ringyard.state` has the arrays that they change.
"""
