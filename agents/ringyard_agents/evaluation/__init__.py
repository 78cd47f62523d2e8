"""Run schedulers on workloads: one tidy results frame, its cache, statistics and tuning."""
