"""What reaches the targets of a scheduler is what the plain way answers, job by job."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from ringyard import Allocation, Simulator
from ringyard.errors import PlacementError
from ringyard.placement import consolidate, pack, share
from ringyard.restart import constant
from ringyard.sim.feasibility import SHAPE_FIELDS
from ringyard.sim.placement_plan import PlacementPlan
from ringyard.state.records import JobKind
from ringyard_baselines.scheduler import REQUESTED, Capabilities
from ringyard_baselines.tools.targets import Target, apply_sizes, start_cpu_jobs, work_conserving
from small_simulations import everything, random_allocation


def plain_shapes(view, target):
    """As wanted, and as the job asks."""
    wanted = (target.shape or Allocation(target.job)).at(tuple(range(target.num_gpus)))
    asked = {
        name: int(view.column(column)[target.job])
        for name, (column, power) in REQUESTED.items()
        if power is Capabilities.CORES and getattr(wanted, name) is not None
    }
    return [wanted, replace(wanted, **asked)]


def plain_reach(view, targets, rule):
    """As `apply_sizes`, one job after the other."""
    draft, allocations = PlacementPlan(view), []
    held = {job: int(view.column("num_gpus")[job]) for job in view.running.tolist()}
    wanted = {target.job for target in targets if target.num_gpus > 0}

    def reshape(target):
        if held[target.job] != target.num_gpus:
            found = draft.migrate(rule, target.job, plain_shapes(view, target))
            allocations.extend([] if found is None else [found])
            return
        named = {} if target.shape is None else {name: getattr(target.shape, name) for name in SHAPE_FIELDS}
        if any(value not in (None, view.column(name)[target.job]) for name, value in named.items()):
            there = target.shape.at(view.gpus_of(target.job))
            allocations.extend([there] if draft.reallocate(there) else [])

    for job in held:
        if job not in wanted and view.column("kind")[job] != JobKind.CPU_ONLY:
            allocations += draft.preempt([job])
    for target in targets:
        if 0 < target.num_gpus <= held.get(target.job, 0):
            reshape(target)
    allocations.extend(start_cpu_jobs(view, draft, rule))
    for target in targets:
        if target.job in held:
            if target.num_gpus > held[target.job]:
                reshape(target)
        elif target.num_gpus > 0:
            found = (draft.place(rule, target.job, shape) for shape in plain_shapes(view, target))
            first = next((one for one in found if one is not None), None)
            allocations.extend([] if first is None else [first])
    return work_conserving(view, draft, rule, view.gpu_jobs.tolist(), allocations)


@pytest.mark.parametrize("seed", range(12))
def test_targets_are_reached_as_one_by_one(seed):
    rng = np.random.default_rng(seed)
    cluster, jobs, performance, failures = everything(rng, 25)
    sim = Simulator(cluster, jobs, performance, constant(2.5, 0.7), 19.0, seed, failures=failures)
    rule = (pack, consolidate, share)[seed % 3]()
    kinds = set()
    for _ in range(150):
        if sim.done:
            break
        view = sim.view()
        targets = []
        for job in rng.permutation(view.gpu_jobs).tolist():
            shape, draw = random_allocation(view, rng, job), rng.random()
            size = len(shape.gpu_ids) if draw < 0.6 else int(view.column("num_gpus")[job]) * (draw < 0.9)
            targets.append(Target(job, size, shape if rng.random() < 0.7 else None))
        answer = apply_sizes(view, targets, rule)
        assert answer == plain_reach(view, targets, rule)
        running = set(view.running.tolist())
        kinds |= {(one.job in running, one.preempts) for one in answer}
        for one in answer:
            with contextlib.suppress(PlacementError):  # random shapes may be out of a job's range
                sim.apply([one])
        sim.advance()
    assert kinds == {(True, True), (True, False), (False, False)}
