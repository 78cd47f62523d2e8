"""Reports: turn results into tables, plots and TensorBoard runs."""
