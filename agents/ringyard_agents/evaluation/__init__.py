"""Evaluation: run schedulers on workloads, from the config of a command to a table of results.

A scheduler is an *entry* (`SchedulerEntry`): its label in tables, name, placement rule and options. Workloads
are numbers from 0. With a seed, a number selects the jobs that are drawn, the same for every scheduler.
Environments are {config group: config}. `ringyard compare` goes through the modules in this order:

1. `compare` is the command. It reads the config, runs what follows for each environment, and hands the
   results to `ringyard_agents.report`.
2. `selection` chooses the environments, the schedulers by name, and the seed of the workloads.
3. `tuned_configs` replaces scheduler names by the placement rules and options that `ringyard tune` found.
4. `evaluate` runs one task: a scheduler on a workload. An `EvaluationTask` goes in, a `RunResult` comes out.
5. `process_pool` runs the tasks on all cores. `result_cache` stores each result as it comes in, so that an
   interrupted command goes on.
6. `results_frame` turns the results into tidy tables with documented columns: runs, jobs and timelines.
7. `ranking` orders the schedulers and averages over workloads, with the intervals and p-values of
   `statistics`.

`api` does the same from Python and returns the tables. `simulate` and `tune` are commands beside `compare`.
"""
