"""Metrics by virtual cluster and by user, as a file and as a table."""

from pathlib import Path

import pandas as pd
from rich.console import Console

from ringyard_agents.evaluation.results_frame import write_frame
from ringyard_agents.report.tables import print_table

#: {column of jobs that names the tenant: its header in tables}
_KINDS = {"vc": "virtual cluster", "user": "user"}

_MAX_TENANTS = 12  # lines of a printed table
_MAX_SCHEDULERS = 6  # columns of a printed table
_UNNAMED = "(none named)"


def tenant_frame(jobs: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Compute metrics of each virtual cluster ("vc") or "user"; jobs without a name belong to "".

    Returns:
        One row per tenant, the most GPU seconds first: `tenant`, number of `jobs`, `gpu_seconds`, and
        `mean_jct`, `mean_queueing` (both in seconds) and `mean_slowdown` of the jobs that were not blocked
        (NaN: none).
    """
    rows = []
    for tenant, of_tenant in jobs.groupby(kind):
        served = of_tenant[of_tenant["outcome"] != "blocked"]
        means = {f"mean_{name}": served[name].mean() for name in ("jct", "queueing", "slowdown")}
        total = of_tenant["gpu_seconds"].sum()
        rows.append({"tenant": tenant, "jobs": len(of_tenant), **means, "gpu_seconds": total})
    return pd.DataFrame(rows).sort_values("gpu_seconds", ascending=False, kind="stable")


def write_tenants(file: Path, jobs: pd.DataFrame) -> bool:
    """Write a row per scheduler, workload, kind and tenant; return False, without a file, for none."""
    kinds = [kind for kind in _KINDS if (jobs[kind] != "").any()]
    if not kinds:
        file.unlink(missing_ok=True)
        return False
    runs = jobs.groupby(["scheduler", "workload"], sort=False)
    rows = {(*run, kind): tenant_frame(own, kind) for run, own in runs for kind in kinds}
    write_frame(file, pd.concat(rows, names=["scheduler", "workload", "kind"]).droplevel(3).reset_index())
    return True


def print_tenants(console: Console, jobs: pd.DataFrame) -> None:
    """Print a table by virtual cluster, or by user if there is one cluster; none if there is one tenant.

    It has all measures of one scheduler, or mean completion times of several, over all workloads.
    """
    schedulers = dict(list(jobs.groupby("scheduler", sort=False))[:_MAX_SCHEDULERS])
    (label, first), *others = schedulers.items()
    kind = next((kind for kind in _KINDS if first[kind].nunique() > 1), None)
    if kind is None:
        return
    header, found = _KINDS[kind], tenant_frame(first, kind)
    names = found["tenant"].replace("", _UNNAMED)
    texts = pd.DataFrame({header: names, "jobs": found["jobs"].map("{:,}".format)})
    if others:
        title = f"mean JCT (s) by {header}"
        for name, own in schedulers.items():
            means = tenant_frame(own, kind).set_index("tenant")["mean_jct"]
            texts[name] = found["tenant"].map(means).map("{:,.0f}".format)
    else:
        title = f"{label!s} by {header}"
        texts["mean JCT (s)"] = found["mean_jct"].map("{:,.0f}".format)
        texts["queueing (s)"] = found["mean_queueing"].map("{:,.0f}".format)
        texts["slowdown"] = found["mean_slowdown"].map("{:.1f}".format)
        texts["GPU hours"] = (found["gpu_seconds"] / 3600).map("{:,.1f}".format)
    rows = texts.head(_MAX_TENANTS).to_dict("records")
    print_table(console, title, rows, [str(one) for one in texts], left=[header], wrapped=[header])
    if len(texts) > _MAX_TENANTS:
        console.print(f"  and {len(texts) - _MAX_TENANTS:,} more")
