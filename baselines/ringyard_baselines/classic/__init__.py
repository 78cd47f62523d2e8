"""Classic orders of the queue."""
