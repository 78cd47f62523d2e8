"""Families of schedulers, each defined by one function: an order, a key, sizes or job weights."""
