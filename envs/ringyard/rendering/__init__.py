"""Pictures and videos of schedules: jobs on GPUs over time, waiting jobs, shared links."""
