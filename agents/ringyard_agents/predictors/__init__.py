"""Learned predictors that schedulers use."""
