"""Schedulers of the literature: the baselines every agent is measured against, one paper a file.

Docstrings say where each rule comes from. "FOUND": read in a public text or in code that is named. "From
memory": recalled of the paper, not confirmed by a text. "Assumed": no source says so; a named argument
where it matters. Only what was found may be quoted as the paper's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringyard.renamed import renamed_export

if TYPE_CHECKING:
    from ringyard_baselines.classic.preemptive import las, srsf, srtf
    from ringyard_baselines.classic.start_only import fifo, fifo_backfill, sjf
    from ringyard_baselines.scheduler import Scheduler, run

_HOMES = {
    **dict.fromkeys(("Scheduler", "run"), "scheduler"),
    **dict.fromkeys(("fifo", "fifo_backfill", "sjf"), "classic.start_only"),
    **dict.fromkeys(("las", "srsf", "srtf"), "classic.preemptive"),
}
__all__ = ["Scheduler", "fifo", "fifo_backfill", "las", "run", "sjf", "srsf", "srtf"]


def __getattr__(name: str) -> Any:
    """Import a textbook scheduler when it is asked for."""
    if name not in _HOMES:
        return renamed_export(__name__, name)
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
