"""What the pointer policy does with single items, compiled: torch would write all of them to memory."""

import numpy as np

from ringyard.compiled import (
    BoolMatrix,
    Float32Cube,
    Float32Matrix,
    Float32Vector,
    IntVector,
    kernel,
)

__all__ = [
    "add_encoded_means",
    "add_gradients_of_means",
    "add_gradients_of_starts",
    "add_means_of_jobs",
    "join_jobs",
    "pack_jobs",
]


@kernel
def pack_jobs(
    waiting: Float32Cube,
    placements: Float32Cube,
    present: BoolMatrix,
    num_actions: int,
    jobs: Float32Matrix,
    of_jobs: Float32Matrix,
    rows: IntVector,
    shares: Float32Vector,
    logits: IntVector,
) -> None:
    """Write the present jobs behind each other.

    Args:
        waiting: [B, slots, F].
        placements: [B, slots, templates * P].
        present: [B, slots].
        num_actions: logits of each row.
        jobs: [present jobs, F] written.
        of_jobs: [present jobs, templates * P] their placements, written.
        rows: [present jobs] written.
        shares: [present jobs] one over how many jobs their rows have, written.
        logits: [present jobs * templates] where each start stands among all logits, written.
    """
    templates = len(logits) // max(len(rows), 1)
    j = 0
    for b in range(len(waiting)):
        first = j
        for slot in range(waiting.shape[1]):
            if present[b, slot]:
                rows[j] = b
                for f in range(waiting.shape[2]):
                    jobs[j, f] = waiting[b, slot, f]
                for f in range(placements.shape[2]):
                    of_jobs[j, f] = placements[b, slot, f]
                for t in range(templates):
                    logits[j * templates + t] = b * num_actions + slot * templates + t
                j += 1
        for other in range(first, j):
            shares[other] = 1.0 / (j - first)


@kernel
def add_encoded_means(
    items: Float32Cube,
    present: BoolMatrix,
    weight: Float32Matrix,
    bias: Float32Vector,
    means: Float32Matrix,
    first: int,
    scratch: Float32Matrix,
) -> None:
    """Add means over each row's present items of relu(item @ weight + bias); none where a row has no items.

    Args:
        items: [B, slots, F].
        present: [B, slots].
        weight: [F, width].
        bias: [width].
        means: [B, at least first + width] added to.
        first: column of `means` where they begin.
        scratch: [2, width] overwritten.
    """
    width = len(bias)
    for b in range(len(items)):
        count = 0
        for h in range(width):
            scratch[1, h] = 0.0
        for slot in range(items.shape[1]):
            if present[b, slot]:
                count += 1
                for h in range(width):
                    scratch[0, h] = bias[h]
                for f in range(items.shape[2]):
                    value = items[b, slot, f]
                    for h in range(width):
                        scratch[0, h] += value * weight[f, h]
                for h in range(width):
                    scratch[1, h] += max(scratch[0, h], np.float32(0.0))
        share = np.float32(1.0 / max(count, 1))
        mean = means[b, first : first + width]
        for h in range(width):
            mean[h] += share * scratch[1, h]


@kernel
def add_gradients_of_means(
    items: Float32Cube,
    present: BoolMatrix,
    weight: Float32Matrix,
    bias: Float32Vector,
    by_means: Float32Matrix,
    first: int,
    scratch: Float32Matrix,
    by_weight: Float32Matrix,
    by_bias: Float32Vector,
) -> None:
    """Add the gradients of `add_encoded_means`; to encode items again is cheaper than to remember them.

    Args:
        items, present, weight, bias, first, scratch: as there.
        by_means: [B, at least first + width] the gradient by the means.
        by_weight: [F, width] added to.
        by_bias: [width] added to.
    """
    width = len(bias)
    for b in range(len(items)):
        count = 0
        for slot in range(items.shape[1]):
            count += present[b, slot]
        share = np.float32(1.0 / max(count, 1))
        by_mean = by_means[b, first : first + width]
        for h in range(width):
            scratch[1, h] = share * by_mean[h]
        for slot in range(items.shape[1]):
            if present[b, slot]:
                for h in range(width):
                    scratch[0, h] = bias[h]
                for f in range(items.shape[2]):
                    value = items[b, slot, f]
                    for h in range(width):
                        scratch[0, h] += value * weight[f, h]
                for h in range(width):
                    scratch[0, h] = scratch[1, h] if scratch[0, h] > 0.0 else np.float32(0.0)
                for f in range(items.shape[2]):
                    value = items[b, slot, f]
                    for h in range(width):
                        by_weight[f, h] += value * scratch[0, h]
                for h in range(width):
                    by_bias[h] += scratch[0, h]


@kernel
def add_means_of_jobs(
    jobs: Float32Matrix, rows: IntVector, shares: Float32Vector, means: Float32Matrix
) -> None:
    """Add means over each row's jobs of relu(job).

    Args:
        jobs: [jobs, width].
        rows: [jobs] whose they are.
        shares: [jobs] one over how many jobs their rows have.
        means: [B, at least width] added to.
    """
    for j in range(len(jobs)):
        mean = means[rows[j], : jobs.shape[1]]
        for h in range(jobs.shape[1]):
            mean[h] += shares[j] * max(jobs[j, h], np.float32(0.0))


@kernel
def join_jobs(jobs: Float32Matrix, rows: IntVector, around: Float32Matrix, joined: Float32Matrix) -> None:
    """Write relu(job + what is around it).

    Args:
        jobs: [jobs, width].
        rows: [jobs] whose they are.
        around: [B, width].
        joined: [jobs, width] written.
    """
    for j in range(len(jobs)):
        own = around[rows[j]]
        for h in range(jobs.shape[1]):
            joined[j, h] = max(jobs[j, h] + own[h], np.float32(0.0))


@kernel
def add_gradients_of_starts(
    by_start: Float32Matrix,
    weight: Float32Vector,
    starts: Float32Matrix,
    placements: Float32Matrix,
    scratch: Float32Vector,
    by_jobs: Float32Matrix,
    by_rule: Float32Matrix,
    by_placement: Float32Matrix,
) -> None:
    """Add the gradients by what starts are made of: relu(job + placement @ its weight + rule) @ weight.

    Args:
        by_start: [jobs, templates] the gradient by the result.
        weight: [width].
        starts: [jobs * templates, width] after their relu.
        placements: [jobs * templates, P].
        scratch: [width] overwritten.
        by_jobs: [jobs, width] added to.
        by_rule: [templates, width] added to.
        by_placement: [P, width] added to.
    """
    width = len(weight)
    for j in range(by_start.shape[0]):
        for t in range(by_start.shape[1]):
            i = j * by_start.shape[1] + t
            for h in range(width):
                scratch[h] = by_start[j, t] * weight[h] if starts[i, h] > 0.0 else np.float32(0.0)
            for h in range(width):
                by_jobs[j, h] += scratch[h]
            for h in range(width):
                by_rule[t, h] += scratch[h]
            for p in range(placements.shape[1]):
                value = placements[i, p]
                for h in range(width):
                    by_placement[p, h] += value * scratch[h]
