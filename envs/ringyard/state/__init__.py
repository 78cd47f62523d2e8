"""The state of simulations: job and cluster records, the arrays of them, and what follows from one record.

Read `records.py` for the fields of jobs, GPUs, servers, links and clusters, then `arrays.py` for `State`.
"""
