"""A sweep from its beginning to its table, whoever runs the jobs."""

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any, TextIO, cast

from ringyard.errors import RingyardError
from ringyard_agents.runs.job_record import JobRecord, job_records
from ringyard_agents.runs.run_folder import locked
from ringyard_agents.runs.sweep_plan import Sweep, planned
from ringyard_agents.runs.sweep_table import said, swept

__all__ = ["SweepError", "run_sweep"]


class SweepError(RingyardError):
    """Some jobs of a sweep failed; the others' results are there."""


def run_sweep(
    command: str,
    words: Sequence[str],
    searched: str | None,
    start: Callable[[], object],
    report: Callable[[Path, Sequence[JobRecord], Collection[str]], None],
) -> None:
    """Run all jobs, print and write one table across them.

    Args:
        command: that the jobs run.
        words: overrides of the command line.
        searched: folder of further configs.
        start: hands the command line to Hydra.
        report: prints and writes the table: folder, records, settings on a logarithmic scale.

    Raises:
        SweepError: names the jobs that failed.
        Exception: of Hydra's sweeper or launcher.
    """
    sweep = planned(command, words, searched)
    with locked(sweep.folder):
        sweep.begin()
        sys.argv += sweep.pinned
        try:
            with redirect_stderr(cast(TextIO, _WithoutHydrasLine(sys.stderr))):
                start()
        except KeyboardInterrupt as stop:
            _end(sweep, report)
            stop.add_note("what has ended is kept, and the same command goes on")
            raise
        except Exception as error:
            if not _failed(_end(sweep, report)):
                raise
            raise _error(sweep) from error
        if _failed(_end(sweep, report)):
            raise _error(sweep)


class _WithoutHydrasLine:
    """A stream that drops what Hydra says of a failed job, without its reason: our own error names it.

    Args:
        stream: gets everything else.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        if text.startswith("Error executing job with overrides: "):
            return len(text)
        return self.stream.write(text)


def _end(
    sweep: Sweep, report: Callable[[Path, Sequence[JobRecord], Collection[str]], None]
) -> Sequence[JobRecord]:
    records = job_records(sweep.folder)
    if records:
        report(sweep.folder, records, sweep.logarithmic)
    return records


def _failed(records: Sequence[JobRecord]) -> list[JobRecord]:
    return [one for one in records if one.status != "done"]


def _error(sweep: Sweep) -> SweepError:
    records = job_records(sweep.folder)
    failed, names = _failed(records), swept(records)
    which = ", ".join(str(one.number) for one in failed)
    first = f"job {said(failed[0], names)}: {failed[0].why}"
    return SweepError(f"{len(failed)} of {len(records)} jobs failed: {which}; {first}")
