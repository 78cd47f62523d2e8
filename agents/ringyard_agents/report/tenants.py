"""Who got what: measures by virtual cluster and by user, as a file and as a table."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ringyard.sim.metrics import JobTimes, TenantMetrics, by_tenant
from ringyard_agents.runs.atomic_write import atomic_write

__all__ = ["print_tenants", "write_tenants"]

#: {how tenants are told apart: what tables call them}
_KINDS: Mapping[Literal["vc", "user"], str] = {"vc": "virtual cluster", "user": "user"}

_MOST_TENANTS = 12  # lines of a printed table
_MOST_SCHEDULERS = 6  # columns of a printed table
_UNNAMED = "(none named)"

#: {scheduler: its runs' per-job times, workload by workload}
_Runs = Mapping[str, Sequence[JobTimes]]


def write_tenants(file: Path, runs: _Runs) -> bool:
    """One row a scheduler, workload, kind (vc, user) and tenant, if any job names one; else no such file.

    Args:
        file: replaced, or removed.
        runs: what to write.

    Returns:
        Whether there is a file.
    """
    kinds = [
        kind for kind in _KINDS if any(len(_names(times, kind)) for each in runs.values() for times in each)
    ]
    if not kinds:
        file.unlink(missing_ok=True)
        return False
    with atomic_write(file) as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["scheduler", "workload", "kind", *(one.name for one in fields(TenantMetrics))])
        for scheduler, each in runs.items():
            for workload, times in enumerate(each):
                for kind in kinds:
                    for tenant in by_tenant(times, kind):
                        writer.writerow([scheduler, workload, kind, *astuple(tenant)])
    return True


def print_tenants(console: Console, runs: _Runs) -> None:
    """A table by virtual cluster, or by user if there is but one cluster; none if there is but one tenant.

    One scheduler's has all measures, that of several their mean completion times, over the jobs of all
    workloads.
    """
    pooled = {label: _pooled(each) for label, each in list(runs.items())[:_MOST_SCHEDULERS]}
    first = next(iter(pooled.values()))
    kind = next((kind for kind in _KINDS if len(np.unique(getattr(first, kind))) > 1), None)
    if kind is None:
        return
    tenants = {label: by_tenant(times, kind) for label, times in pooled.items()}
    table = _one(tenants, kind) if len(tenants) == 1 else _several(tenants, kind)
    console.print(table)
    more = len(next(iter(tenants.values()))) - _MOST_TENANTS
    if more > 0:
        console.print(f"  and {more:,} more")


def _one(tenants: Mapping[str, Sequence[TenantMetrics]], kind: Literal["vc", "user"]) -> Table:
    """All measures of the largest tenants of one scheduler."""
    ((label, found),) = tenants.items()
    table = _table(f"{label} by {_KINDS[kind]}", _KINDS[kind])
    for title in ("jobs", "mean JCT (s)", "queueing (s)", "slowdown", "GPU hours"):
        table.add_column(title, justify="right")
    for one in found[:_MOST_TENANTS]:
        means = (f"{one.mean_jct:,.0f}", f"{one.mean_queueing:,.0f}", f"{one.mean_slowdown:.1f}")
        table.add_row(one.tenant or _UNNAMED, f"{one.jobs:,}", *means, f"{one.gpu_seconds / 3600:,.1f}")
    return table


def _several(tenants: Mapping[str, Sequence[TenantMetrics]], kind: Literal["vc", "user"]) -> Table:
    """Mean completion times of the first scheduler's largest tenants under every scheduler."""
    table = _table(f"mean JCT (s) by {_KINDS[kind]}", _KINDS[kind])
    for title in ("jobs", *tenants):
        table.add_column(title, justify="right")
    of = {label: {one.tenant: one for one in found} for label, found in tenants.items()}
    for one in next(iter(tenants.values()))[:_MOST_TENANTS]:
        means = [f"{of[label][one.tenant].mean_jct:,.0f}" for label in tenants]
        table.add_row(one.tenant or _UNNAMED, f"{one.jobs:,}", *means)
    return table


def _table(title: str, who: str) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column(who)
    return table


def _names(times: JobTimes, kind: str) -> list[str]:
    return [name for name in np.unique(getattr(times, kind)).tolist() if name]


def _pooled(runs: Sequence[JobTimes]) -> JobTimes:
    """The jobs of all runs."""
    return JobTimes(
        **{
            field.name: np.concatenate([getattr(one, field.name) for one in runs])
            for field in fields(JobTimes)
        }
    )
