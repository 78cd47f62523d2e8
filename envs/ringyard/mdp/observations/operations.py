"""`operation_graph`, the observation of jobs that are graphs of operations (PAC-ML)."""

from typing import Annotated

from ringyard.compiled import (
    Float32Vector,
    FloatVector,
    Record,
    Records1,
    f4,
    implements,
    kernel,
    take_rows,
    to_int,
)
from ringyard.mdp.episode import Episode
from ringyard.mdp.features import Feature
from ringyard.mdp.observations.observation import Block, ItemAxis, Observation, Observe, Present, mark_present
from ringyard.mdp.observations.queue import (
    BLOCKS,
    OBSERVABILITY,
    RESOURCE_BLOCKS,
    ClusterFeatures,
    RunningFeatures,
    RunningResources,
    WaitingFeatures,
    WaitingResources,
    write_cluster,
    write_ranks,
    write_running,
    write_waiting,
)
from ringyard.state.arrays import State, waiting_at
from ringyard.state.operations import DEPENDENCIES, OPERATIONS, draw_graph


class GraphTotals(Record):
    """Features of the graph of the first visible waiting job, without its edges."""

    operations: Annotated[f4, Feature("operations / 16")]
    dependencies: Annotated[f4, Feature("dependencies / 32")]
    longest: Annotated[f4, Feature("seconds of its longest operation / of all operations")]
    largest: Annotated[f4, Feature("output bytes of its largest operation / of all operations")]


class OperationFeatures(Record):
    """Features of an operation of the first visible waiting job."""

    work: Annotated[f4, Feature("seconds / those of the longest operation")]
    is_longest: Annotated[f4, Feature("1 if it is the longest")]
    output: Annotated[f4, Feature("output bytes / those of the largest")]
    is_largest: Annotated[f4, Feature("1 if it is the largest")]
    depth: Annotated[f4, Feature("most dependencies on a way to it / the most of any operation")]


class DependencyFeatures(Record):
    """Features of a dependency between these operations."""

    source: Annotated[f4, Feature("number of the operation before / 16")]
    target: Annotated[f4, Feature("number of the operation after / 16")]
    output: Annotated[f4, Feature("output bytes of the one before / those of the largest")]
    is_largest: Annotated[f4, Feature("1 if that is the largest")]


_BLOCKS = (
    *(block for block in BLOCKS if block.axis in (ItemAxis.WAITING, ItemAxis.RUNNING, ItemAxis.CLUSTER)),
    *(block for block in RESOURCE_BLOCKS if block.axis is ItemAxis.WAITING),
    Block("graph", ItemAxis.CLUSTER, GraphTotals),
    Block("operations", ItemAxis.OPERATION, OperationFeatures),
    Block("operations_mask", ItemAxis.OPERATION, Present),
    Block("dependencies", ItemAxis.DEPENDENCY, DependencyFeatures),
    Block("dependencies_mask", ItemAxis.DEPENDENCY, Present),
)


@kernel
def _write_graph(
    number: int,
    totals: GraphTotals,
    operations: Records1[OperationFeatures],
    dependencies: Records1[DependencyFeatures],
) -> tuple[int, int]:
    """Write the graph of a `number`, and return how many operations and dependencies it has."""
    count, used = draw_graph(number, operations, dependencies)
    deepest = 0.0
    for i in range(count):
        totals.longest = max(totals.longest, operations[i].work)
        totals.largest = max(totals.largest, operations[i].output)
        deepest = max(deepest, operations[i].depth)
    for i in range(count):
        operations[i].work /= totals.longest
        operations[i].output /= totals.largest
        operations[i].is_longest = 1.0 if operations[i].work == 1.0 else 0.0
        operations[i].is_largest = 1.0 if operations[i].output == 1.0 else 0.0
        operations[i].depth /= deepest
    for k in range(used):
        source = operations[to_int(dependencies[k].source)]
        dependencies[k].output, dependencies[k].is_largest = source.output, source.is_largest
        dependencies[k].source /= OPERATIONS
        dependencies[k].target /= OPERATIONS
    totals.operations, totals.dependencies = count / OPERATIONS, used / 32.0
    return count, used


@implements(Observe)
def _operation_graph(
    state: State, episode: Episode, b: int, num_running: int, parameters: FloatVector, out: Float32Vector
) -> None:
    out[:] = 0.0
    num_waiting = episode.placement_contexts.shape[1]
    visible = min(num_waiting, state.clusters[b].num_waiting)
    waiting, rest = take_rows(out, num_waiting, WaitingFeatures)
    waiting_mask, rest = take_rows(rest, num_waiting, Present)
    running, rest = take_rows(rest, num_running, RunningFeatures)
    running_mask, rest = take_rows(rest, num_running, Present)
    cluster, rest = take_rows(rest, 1, ClusterFeatures)
    more, rest = take_rows(rest, num_waiting, WaitingResources)
    none, _ = take_rows(rest, 0, RunningResources)
    totals, rest = take_rows(rest, 1, GraphTotals)
    operations, rest = take_rows(rest, OPERATIONS, OperationFeatures)
    operations_mask, rest = take_rows(rest, OPERATIONS, Present)
    dependencies, rest = take_rows(rest, DEPENDENCIES, DependencyFeatures)
    dependencies_mask, _ = take_rows(rest, DEPENDENCIES, Present)
    mark_present(waiting_mask, visible)
    mark_present(running_mask, min(num_running, state.clusters[b].num_running))
    write_waiting(state, episode, b, waiting, more)
    write_ranks(visible, waiting)
    write_running(state, b, running, none)
    write_cluster(state, b, visible, cluster[0])
    if visible == 0 or state.jobs[b, waiting_at(state, b, 0)].graph < 0:
        return
    number = to_int(state.jobs[b, waiting_at(state, b, 0)].graph)
    count, used = _write_graph(number, totals[0], operations, dependencies)
    mark_present(operations_mask, count)
    mark_present(dependencies_mask, used)


def operation_graph(flat: bool = False) -> Observation:
    """Create the observation of waiting and running jobs, and of the graph of the first visible waiting job.

    How fast the job would run on some GPUs is not among the features. docs/observations.md has their table.

    Args:
        flat: one Box row (for an MLP) instead of a Dict of blocks (for a graph network).
    """
    return Observation(_operation_graph, _BLOCKS, flat, OBSERVABILITY)
