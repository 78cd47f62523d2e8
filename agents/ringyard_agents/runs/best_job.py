"""Which job of a sweep is best: of the setting that is best over seeds, the best seed."""

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from ringyard.errors import ConfigurationError
from ringyard_agents.command_line import quoted
from ringyard_agents.runs.job_record import JobRecord, job_records
from ringyard_agents.runs.sweep_table import SEED, said, settings_of, swept

__all__ = ["best_job", "over_seeds", "print_best"]

AGENT = "agent.safetensors"  # as `ringyard train` calls it


def over_seeds(records: Sequence[JobRecord]) -> list[list[JobRecord]]:
    """Jobs that differ in nothing but the seed, together; the setting of the least mean objective first.

    Args:
        records: of jobs; those without an objective are left out.
    """
    names = [name for name in swept(records) if name != SEED]
    groups: dict[str, list[JobRecord]] = {}
    for record in records:
        if record.status == "done" and record.objective is not None and math.isfinite(record.objective):
            settings = settings_of(record)
            groups.setdefault(repr([settings.get(name) for name in names]), []).append(record)
    return sorted(groups.values(), key=lambda jobs: fmean(float(one.objective or 0.0) for one in jobs))


def best_job(records: Sequence[JobRecord]) -> JobRecord | None:
    """The best seed of the setting that is best over seeds; None: no job has an objective.

    Args:
        records: of all jobs.
    """
    groups = over_seeds(records)
    return min(groups[0], key=lambda one: float(one.objective or 0.0)) if groups else None


def print_best(sweep: Path, only_folder: bool) -> None:
    """Print the best job of a sweep, and the commands that go on from it.

    Args:
        sweep: its folder.
        only_folder: nothing but where the job is.

    Raises:
        ConfigurationError: there is no sweep, or none of its jobs has an objective.
    """
    records = job_records(sweep)
    if not records:
        raise ConfigurationError(
            f"{sweep} has no jobs of a sweep; expected a folder that `ringyard COMMAND -m` wrote"
        )
    best = best_job(records)
    if best is None:
        reasons = "; ".join(f"job {one.number}: {one.why}" for one in records if one.why)
        raise ConfigurationError(
            f"no job of {sweep} has ended with an objective{': ' * bool(reasons)}{reasons}"
        )
    for one in records:
        if one.status == "damaged":
            print(f"left out: job {one.number}: {one.why}", file=sys.stderr)
    folder = sweep / str(best.number)
    if only_folder:
        print(folder)
        return
    print(f"best of {len(records)} jobs: {said(best, swept(records))}, objective {best.objective:.6g}")
    seeds = over_seeds(records)[0]
    if len(seeds) > 1:
        values = [float(one.objective or 0.0) for one in seeds]
        spread = f"{min(values):.6g} to {max(values):.6g}"
        print(f"its setting over {len(seeds)} seeds: mean {fmean(values):.6g}, {spread}")
    print(f"folder: {folder}")
    if (folder / AGENT).is_file():
        print(f"agent: {folder / AGENT}")
        entry = quoted(f"best:{folder}")
        print(f"compare it: ringyard compare {shlex.quote(f'schedulers=[fifo,sjf,{entry}]')}")
