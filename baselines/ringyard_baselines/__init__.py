"""The schedulers of the literature."""
