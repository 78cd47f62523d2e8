"""Which jobs any placement rule treats alike."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.jobs import JobTable
from ringyard.resources import RESOURCES

__all__ = ["demand_classes"]

#: more combinations of values than this are counted anew, or 64 bits would not do
_MOST_CODES = 1 << 62


def demand_classes(table: JobTable, cluster: Cluster, owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """[jobs] equal for jobs of one owner that any placement rule treats alike, from 0 on for each owner.

    Only columns that matter are compared.
    """
    resizes = (table.min_gpus < table.max_gpus) | (table.min_batch < table.max_batch)
    columns: list[NDArray[Any]] = [table.num_gpus, table.kind]
    for one in RESOURCES:
        if getattr(cluster, one.capacity):
            columns.append(getattr(table, one.per_worker))
            columns += (
                [table.parameter_servers, getattr(table, one.per_server_task)] if one.per_server_task else []
            )
    of_models = [table.model_ids, table.batch_size, table.fixed_memory_bytes, table.sample_memory_bytes]
    if cluster.gpu_types or cluster.jobs_per_gpu > 1:
        columns += of_models
    if cluster.gpu_types:
        columns += [table.fixed_fraction]
    if resizes.any():
        elastic = np.bincount(owner, resizes)[owner] > 0  # some job of the table is
        sizes = [table.min_gpus, table.max_gpus, table.min_batch, table.max_batch]
        columns += [np.where(elastic, column, column[0]) for column in (*of_models, *sizes)]
    classes, count = owner, int(owner[-1]) + 1
    for column in columns:
        low, high = column.min(), column.max()
        if low == high:
            continue
        if column.dtype.kind == "i":  # its own order will do
            codes, values = column - low, int(high) - int(low) + 1
        else:
            found, codes = np.unique(column, return_inverse=True)
            values = len(found)
        if count * values > _MOST_CODES:
            found, classes = np.unique(classes, return_inverse=True)
            count = len(found)
        classes, count = classes * values + codes, count * values
    classes = _ranks(classes, count)
    firsts = np.flatnonzero(np.concatenate([[True], owner[1:] > owner[:-1]]))
    return np.asarray(classes - np.minimum.reduceat(classes, firsts)[owner])


def _ranks(codes: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """[jobs] rank of each code, of 0 to count - 1, among those that occur."""
    if count > len(codes):
        return np.asarray(np.unique(codes, return_inverse=True)[1])
    occurs = np.zeros(count, np.int64)
    occurs[codes] = 1
    return (np.cumsum(occurs) - 1)[codes]
