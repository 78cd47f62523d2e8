"""The event-driven core; no I/O, no Gymnasium, no Hydra."""
