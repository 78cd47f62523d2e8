"""Operation graphs of jobs, drawn from a number, and the share of their work that no worker shortens."""

from typing import Any

import numpy as np

from ringyard.compiled import Record, Records1, f8, i8, kernel, to_int
from ringyard.state.random_numbers import normal_at, uniform_at

#: most operations of a graph, and most dependencies
OPERATIONS, DEPENDENCIES = 16, 29
# assumptions: PAC-ML's profiled networks have 46 to 142 operations, a few of which take most of the time
_FEWEST, _DEVIATION, _SKIPS = 6, 1.0, 0.3


class Operation(Record):
    """One operation of a training step."""

    work: f8  # seconds on one GPU, as a share of all operations'
    output: f8  # bytes, as a share of all operations'
    depth: i8  # most dependencies on a way to it
    end: f8  # of the longest path to its end, as a share of all work


class Dependency(Record):
    """An operation that needs the output of an earlier one."""

    source: i8
    target: i8
    output: f8  # of the source


@kernel
def draw_graph(number: int, operations: Any, dependencies: Any) -> tuple[int, int]:
    """Write a graph of a `number` into records, and return how many operations and dependencies it has.

    An operation follows the one before it, or, as often as the graph branches, any earlier one. Some have a
    second, skipping input. Work and output are log-normal. Dependencies stand in the order of their targets.
    """
    seed, used, work, output = np.uint64(number), 0, 0.0, 0.0
    count = _FEWEST + to_int(uniform_at(seed, 0, 0) * (OPERATIONS + 1 - _FEWEST))
    branches = uniform_at(seed, 0, 1)
    for i in range(count):
        operations[i].work = np.exp(_DEVIATION * normal_at(seed, 1, i))
        operations[i].output = np.exp(_DEVIATION * normal_at(seed, 2, i))
        operations[i].depth = 0
        work += operations[i].work
        output += operations[i].output
        first = to_int(uniform_at(seed, 3, i) * i) if uniform_at(seed, 4, i) < branches else i - 1
        second = to_int(uniform_at(seed, 5, i) * i) if uniform_at(seed, 6, i) < _SKIPS else first
        for k in range(0 if i == 0 else 1 if second == first else 2):
            source, edge = first if k == 0 else second, dependencies[used]
            edge.source, edge.target, edge.output = source, i, operations[source].output
            operations[i].depth = max(operations[i].depth, operations[source].depth + 1)
            used += 1
    for i in range(count):
        operations[i].work /= work
        operations[i].output /= output
    for k in range(used):
        dependencies[k].output /= output
    return count, used


@kernel
def span(operations: Records1[Operation], dependencies: Records1[Dependency], quantum: float) -> float:
    """Return the longest path, as a share of all work, if an operation has parts of at least a `quantum`.

    An operation of work c is cut into floor(c / quantum) parts, which may all run at once, or stays whole.
    """
    used, longest = 0, 0.0
    for i in range(len(operations)):
        operations[i].end = 0.0
        while used < len(dependencies) and dependencies[used].target == i:
            operations[i].end = max(operations[i].end, operations[dependencies[used].source].end)
            used += 1
        operations[i].end += operations[i].work / max(np.floor(operations[i].work / quantum), 1.0)
        longest = max(longest, operations[i].end)
    return min(longest, 1.0)
