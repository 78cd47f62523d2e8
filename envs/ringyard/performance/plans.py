"""The performance model of jobs with execution plans: `plan_table`, read by a compiled function."""

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np

from ringyard.checks import NonNegative, Positive, PositiveInt, checked
from ringyard.compiled import FloatVector, implements, kernel, to_int
from ringyard.performance.model import IterationSeconds, PerformanceModel
from ringyard.performance.plan_table import plan_table
from ringyard.performance.ring import contention_factor
from ringyard.state.records import Job, Network

_ALPHA, _SERVERS, _PER_SERVER, _COLUMNS, _MODELS, _HEAD = range(6)


@kernel
def _entry(job: Job, parameters: FloatVector) -> int:
    """Return where the three numbers of the job's plan at its placement stand in `parameters`."""
    models = to_int(parameters[_MODELS])
    servers, per_server = to_int(parameters[_SERVERS]), to_int(parameters[_PER_SERVER])
    place = (job.num_gpus * (servers + 1) + job.num_servers) * (per_server + 1) + job.fewest_gpus
    column = to_int(parameters[_HEAD + models + place])
    row = to_int(parameters[_HEAD + job.plan_model]) + job.plan
    table = _HEAD + models + (servers * per_server + 1) * (servers + 1) * (per_server + 1)
    return table + 3 * (row * to_int(parameters[_COLUMNS]) + column)


@kernel
def sending_share(job: Job, parameters: FloatVector) -> float:
    """Return the share of its time in which `job`, alone, sends gradients between servers."""
    i = _entry(job, parameters)
    return parameters[i + 1] / (parameters[i] + parameters[i + 1])


@kernel
def stage_gpus(job: Job, parameters: FloatVector) -> int:
    """Return the GPUs of a pipeline stage of `job` in its plan at its placement."""
    return to_int(parameters[_entry(job, parameters) + 2])


@implements(IterationSeconds)
def plan_iteration_seconds(job: Job, parameters: FloatVector) -> float:
    """Return the seconds of an iteration of `job` in its plan (`plans` sets `parameters`)."""
    i = _entry(job, parameters)
    sharing = contention_factor(parameters[_ALPHA], max(1.0, job.contenders))
    return parameters[i] + parameters[i + 1] * sharing


@checked("performance")
def plans(
    gpu_type: str = "a800",
    servers: Annotated[int, "[1, 64]"] = 8,
    gpus_per_server: PositiveInt = 8,
    alpha: NonNegative = 0.0,
    contention: Literal["none", "live_transfers"] = "live_transfers",
    measured: Mapping[str, Mapping[str, Mapping[str, Positive]]] | None = None,
) -> PerformanceModel:
    """Return the model of jobs with execution plans, by `ringyard.performance.execution_plans`.

    Rings of data-parallel ranks that cross servers share their links with those of other jobs. Transfers of
    tensor ranks and pipeline stages do not; stragglers, CPU cores and RAM do not matter (assumptions).

    A job in several racks loads their uplinks only if a pipeline stage is in more than one of them. Else its
    rings stay under the racks' switches, and only transfers between stages cross. GPUs that idle count as
    the job's last ones.

    Args:
        gpu_type: name of a yaml in conf/plan_gpus.
        servers: servers of the largest cluster.
        gpus_per_server: GPUs of the largest server.
        alpha: at least 0, in f(alpha, k) = k + alpha (k - 1) for k rings on the worst link.
        contention: "none" or "live_transfers" (`ringyard.state.records.Network`).
        measured: {model: {plan: {GPUs of each server: seconds of an iteration}}}, such as {bert: {ga:
            {"4+4": 0.3}}}. All others are by the analytic model.

    Raises:
        ConfigurationError: an argument out of its range, or an unknown model or plan.
    """
    rows = [
        (model, plan, placement, float(seconds))
        for model, of_model in (measured or {}).items()
        for plan, of_plan in of_model.items()
        for placement, seconds in of_plan.items()
    ]
    table = plan_table(servers, gpus_per_server, gpu_type, tuple(rows))
    head = [float(alpha), servers, gpus_per_server, table.seconds.shape[1], len(table.models)]
    entries = np.concatenate([table.seconds, table.stage_gpus[:, :, None]], axis=2)
    parts = (head, table.first, table.column.reshape(-1), entries.reshape(-1))
    network = Network[contention.upper()]
    return PerformanceModel(
        plan_iteration_seconds, np.concatenate(parts, dtype=np.float64), network, plans=table
    )
