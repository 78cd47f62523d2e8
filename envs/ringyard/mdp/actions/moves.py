"""Compiled kernels that decode, preview and apply the options (templates and adjustments) of `Actions`."""

import numpy as np

from ringyard.compiled import (
    FloatMatrix,
    Int32Vector,
    IntVector,
    bundle,
    error_message,
    function_address,
    kernel,
    linked_kernel,
    raise_plugin_error,
    to_int,
)
from ringyard.mdp.actions.space import IN_PLACE, PLACE, PREEMPT, REJECT, Actions, Reject
from ringyard.mdp.episode import running_at
from ringyard.performance.model import Physics
from ringyard.performance.plan_table import FASTEST
from ringyard.placement import PlacementRule, pack, place
from ringyard.sim.engine.allocation import collect_places, detach, reattach
from ringyard.sim.engine.lifecycle import apply_allocation, end_job, preempt, same_places
from ringyard.sim.engine.shape import Shape, current_shape, set_asked_shape, set_shape
from ringyard.sim.feasibility import FITS, find_shortfall
from ringyard.state.arrays import State, waiting_at
from ringyard.state.records import Job, JobKind, JobOutcome

_INCONSISTENT_RULE = error_message(
    "placement rule {function} found GPUs for job {job} (or one that asks for the same) when the action mask"
    " was written, and finds none now; expected the same result for the same cluster and job"
)


@bundle
class Options:
    """The T start templates and A adjustments of `Actions`, as kernels read them."""

    rules: tuple[PlacementRule, ...]  #: [T + A] placement rules. Unused by options that place nothing.
    #: [T + A, 6] factors of GPUs, batch and cores, 1 or 0 for the fastest plan, then bandwidth cap and link
    #: share (0 keeps it)
    factors: FloatMatrix
    kinds: IntVector  #: [T + A] PLACE, IN_PLACE, PREEMPT or REJECT
    scaled: bool  #: whether any template has a factor other than 1
    num_templates: int  #: T
    num_adjustments: int  #: A


_AS_IT_IS = (1.0, 1.0, 1.0, 0.0)  # factors and plan of an option that changes none of these
#: options of score actions
EMPTY_OPTIONS = Options((), np.zeros((0, 6)), np.zeros(0, np.int64), False, 0, 0)


def options_of(actions: Actions) -> Options:
    """Return the options of an action space."""
    unused = pack()
    rows: list[tuple[PlacementRule, tuple[float, ...], int]] = []
    for start_option in actions.starts:
        fastest = float(start_option.plan == "fastest")
        scaled = (start_option.gpu_factor, start_option.batch_factor, start_option.core_factor)
        factors = (*scaled, fastest, 0.0, 0.0)
        kind = REJECT if isinstance(start_option, Reject) else PLACE
        rows.append((start_option.placement, factors, kind))
    if actions.preemptive:
        rows.append((unused, (*_AS_IT_IS, 0.0, 0.0), PREEMPT))
    for change in actions.adjustments:
        new = (change.bandwidth_cap or 0.0, change.link_share or 0.0)
        factors = (change.gpu_factor, change.batch_factor, change.core_factor, 0.0, *new)
        kind = IN_PLACE if change.placement is None else PLACE
        rows.append((change.placement or unused, factors, kind))
    num_templates = len(actions.starts)
    return Options(
        rules=tuple(rule for rule, _, _ in rows),
        factors=np.array([factors for _, factors, _ in rows]),
        kinds=np.array([kind for _, _, kind in rows], dtype=np.int64),
        scaled=any(factors[:4] != _AS_IT_IS for _, factors, _ in rows[:num_templates]),
        num_templates=num_templates,
        num_adjustments=actions.num_adjustments,
    )


@kernel
def target_shape(job: Job, options: Options, o: int) -> Shape:
    """Return the shape of `job` after option `o` of `options`, from its present one."""
    shape = current_shape(job)
    gpus = shape.num_gpus
    batch = shape.batch_size
    cores = shape.cores_per_worker
    cap, link_share = shape.memory_bandwidth_cap, shape.link_share
    if job.num_servers > 1 and options.factors[o, 5] > 0.0:
        link_share = options.factors[o, 5]
    if job.kind != JobKind.CPU_ONLY:
        if options.factors[o, 0] != 1.0:
            gpus = to_int(np.floor(gpus * options.factors[o, 0] + 0.5))
            gpus = min(max(gpus, to_int(job.min_gpus)), to_int(job.max_gpus))
        if options.factors[o, 1] != 1.0:
            batch = min(max(batch * options.factors[o, 1], job.min_batch), job.max_batch)
    elif options.factors[o, 4] > 0.0:
        cap = options.factors[o, 4]
    if cores > 0 and options.factors[o, 2] != 1.0:
        factor = options.factors[o, 2]
        scaled = np.ceil(cores * factor) if factor > 1.0 else np.floor(cores * factor)
        cores = max(to_int(scaled), 1)
    servers, server_cores = shape.parameter_servers, shape.cores_per_server_task
    plan = shape.plan if gpus == shape.num_gpus and options.factors[o, 3] == 0.0 else FASTEST
    return Shape(gpus, batch, cores, servers, server_cores, cap, shape.ram_per_worker, plan, link_share)


@linked_kernel
def propose_start(state: State, b: int, j: int, options: Options, t: int, out: Int32Vector) -> int:
    """Write GPUs (or the server) on which template `t` would start a job to `out`; return how many (0: none).

    The job keeps the template's shape, also where it asks for another. `shape.set_asked_shape` undoes this.
    """
    job = state.jobs[b, j]
    if options.kinds[t] == REJECT:
        out[0] = 0  # rejecting is always valid and needs no GPU
        return 1
    if options.scaled:
        shape = target_shape(job, options, t)
        same = shape == current_shape(job)
        factors = options.factors[t]
        if same and (factors[0] != 1.0 or factors[1] != 1.0 or factors[2] != 1.0 or factors[3] != 0.0):
            return 0
        if not same:
            set_shape(job, shape)
    return place(state, b, j, options.rules[t], out)


@linked_kernel
def propose_adjustment(state: State, b: int, j: int, options: Options, a: int, out: Int32Vector) -> int:
    """Find the GPUs of a running job after adjustment `a`, which does not preempt it, as `propose_start`."""
    o = options.num_templates + a
    job = state.jobs[b, j]
    shape = target_shape(job, options, o)
    same_shape = shape == current_shape(job)
    moves = options.kinds[o] != IN_PLACE and job.kind != JobKind.CPU_ONLY
    if same_shape and not moves:
        return 0
    if same_shape and (options.factors[o, 0] != 1.0 or options.factors[o, 1] != 1.0):
        return 0  # the job is at the end of its range, so that this would only migrate it
    if not moves:
        count = collect_places(state, b, j, out)
        return count if find_shortfall(state, b, j, shape, out).cause == FITS else 0
    if shape.num_gpus - job.num_gpus > state.clusters[b].open_gpus:
        return 0
    num_held = detach(state, b, j)
    set_shape(job, shape)
    count = place(state, b, j, options.rules[o], out)
    if same_shape and same_places(out, count, state.place_scratch[b], num_held):
        count = 0
    reattach(state, b, j, num_held)
    return count


@kernel
def decode_action(state: State, b: int, options: Options, num_waiting: int, action: int) -> tuple[int, int]:
    """Return (row of the job, option) of a valid action other than waiting, with V = `num_waiting`."""
    change = action - num_waiting * options.num_templates
    if change < 0:
        return waiting_at(state, b, action // options.num_templates), action % options.num_templates
    row = running_at(state, b, change // options.num_adjustments)
    return row, options.num_templates + change % options.num_adjustments


@kernel
def _propose(state: State, b: int, j: int, options: Options, o: int, out: Int32Vector) -> int:
    if o < options.num_templates:
        return propose_start(state, b, j, options, o, out)
    return propose_adjustment(state, b, j, options, o - options.num_templates, out)


@kernel
def apply_option(state: State, b: int, j: int, options: Options, o: int, physics: Physics) -> None:
    """Apply the valid option `o` of `options` to job `j` of cluster `b` in `state`, given `physics`."""
    if options.kinds[o] == REJECT:
        end_job(state, b, j, JobOutcome.BLOCKED, physics)
    elif options.kinds[o] == PREEMPT:
        preempt(state, b, j, physics)
    else:
        out, shape = state.gpu_scratch[b], target_shape(state.jobs[b, j], options, o)
        if _propose(state, b, j, options, o, out) == 0:
            raise_plugin_error(_INCONSISTENT_RULE, function_address(options.rules[o].find), j, 0.0, 0.0, 0.0)
        apply_allocation(state, b, j, shape, out, physics)


@kernel
def preview_option(state: State, b: int, j: int, options: Options, o: int) -> tuple[int, Shape]:
    """Return (number of ids in `gpu_scratch`, shape) of job `j` after option `o`; 0 if it holds nothing."""
    shape, count = target_shape(state.jobs[b, j], options, o), 0
    if options.kinds[o] != REJECT and options.kinds[o] != PREEMPT:
        count = _propose(state, b, j, options, o, state.gpu_scratch[b])
    if o < options.num_templates:
        set_asked_shape(state.jobs[b, j])
    return count, shape
