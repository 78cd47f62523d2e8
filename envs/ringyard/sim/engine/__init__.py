"""The compiled engine: what happens to jobs, servers and links in a simulated cluster.

Functions are kernels (`ringyard.compiled`) on the arrays of `ringyard.state`, which documents all fields.
Their arguments have the same names everywhere: `state` is a batch of simulations, `b` the cluster in it, `j`
a job row, `s` a server, `g` a GPU id, `i` a slot of a GPU, `r` a position in `RESOURCES`, and `physics` the
performance model. `places` are GPU ids, or the one server of a CPU-only job. The row behind the jobs in
`state.jobs` is scratch for what-if questions.

A *ring* is a job on several servers. Progress counts in *base iterations*, those of the batch that the job
asks for: one iteration of another batch is worth `Job.progress_per_iteration` of them. A job runs *isolated*
if it is alone in the cluster as it asks, on the fewest servers and on the GPU type where it is fastest.
"""
