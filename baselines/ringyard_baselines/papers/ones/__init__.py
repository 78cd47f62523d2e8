"""ONES (Bian et al., SC 2021): evolution of schedules with elastic batches."""
