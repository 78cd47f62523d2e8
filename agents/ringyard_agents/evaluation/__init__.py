"""Evaluation: run schedulers on workloads, from the config of a command to a table of results.

A scheduler is an *entry* (`SchedulerEntry`): its label in tables, name, placement rule and options. Workloads
are numbers from 0. With a seed, a number selects the jobs that are drawn, the same for every scheduler.
Environments are {config group: config}. docs/architecture.md follows `ringyard compare` through the modules.
`api` does the same from Python and returns the tables. `simulate` and `tune` are commands beside `compare`.
"""
