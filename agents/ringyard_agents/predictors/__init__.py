"""Learned predictors that published schedulers use."""
