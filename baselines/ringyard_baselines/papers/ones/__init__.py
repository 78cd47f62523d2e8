"""ONES (SC 2021): evolution of schedules."""
