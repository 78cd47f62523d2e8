"""A schedule as people see it: which jobs held which GPUs, which waited, which links were shared."""
