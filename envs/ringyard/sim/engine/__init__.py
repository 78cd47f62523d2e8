"""The compiled engine: what happens to jobs, servers and links in a simulated cluster.

Functions are kernels (`ringyard.compiled`) on the arrays of `ringyard.state`, which documents all fields.
Their arguments have the same names everywhere: `state` is a batch of simulations, `b` the cluster in it, `j`
a job row, `s` a server, `g` a GPU id, `i` a slot of a GPU, `r` a position in `RESOURCES`, and `physics` the
performance model. `places` are GPU ids, or the one server of a CPU-only job. The row behind the jobs in
`state.jobs` is scratch for what-if questions.

A *ring* is a job on several servers. Progress counts in *base iterations*, those of the batch that the job
asks for: one iteration of another batch is worth `Job.progress_per_iteration` of them. A job runs *isolated*
if it is alone in the cluster as it asks, on the fewest servers and on the GPU type where it is fastest.

* `prepare.py`: job table to job records. `setup.py`: a cluster at time 0.
* `events.py`: time advances event by event. `livelock.py` stops simulations that would not end.
* `lifecycle.py`: a job arrives, starts, changes, is preempted, ends. `shape.py`: its GPUs, batch and cores.
* `allocation.py`: resources are allocated and released. `queues.py`: waiting list, heap of running jobs.
* `co_location.py`: what slows a job on its servers and GPUs. `network.py`: the same on shared links.
* `rates.py`: seconds per iteration and expected ends of a job and of its neighbours.
* `slowdown_accounting.py`: how much time each job loses to what.
"""
