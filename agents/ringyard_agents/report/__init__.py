"""From the results frame to tables, plots, TensorBoard and pages."""
