"""How fast a job would be elsewhere, under the present contention."""

from typing import Any

from ringyard.compiled import kernel

__all__ = ["spanned_servers", "what_if"]


@kernel
def spanned_servers(state: Any, b: int, j: int, gpus: Any, count: int) -> tuple[int, int]:
    """(servers, most jobs on their links) if job j held `gpus[:count]` (ascending), itself included."""
    spans_now = state.jobs[b, j].num_servers > 1
    num_servers = 0
    worst = 0
    last = -1
    for i in range(count):
        s = state.gpus[b, gpus[i]].server
        if s == last:
            continue
        last = s
        num_servers += 1
        server = state.servers[b, s]
        others = server.spanning_jobs
        if spans_now:
            for g in range(server.first_gpu, server.first_gpu + server.num_gpus):
                if state.gpus[b, g].job == j:
                    others -= 1
                    break
        worst = max(worst, others + 1)
    if num_servers == 1:
        worst = 0
    return num_servers, worst


@kernel
def what_if(state: Any, b: int, j: int, gpus: Any, rate: Any) -> float:
    """Seconds per iteration of job j on `gpus` (ascending), all other jobs where they are."""
    scratch = state.jobs.shape[1] - 1
    num_servers, worst = spanned_servers(state, b, j, gpus, len(gpus))
    state.jobs[b, scratch] = state.jobs[b, j]
    job = state.jobs[b, scratch]
    job.num_servers = num_servers
    job.worst_link_jobs = worst
    return rate.seconds(job, rate.parameters)
