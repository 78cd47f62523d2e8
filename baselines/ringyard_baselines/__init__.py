"""Schedulers of the literature: the baselines every agent is measured against, one paper a file.

Docstrings say where each rule comes from. "FOUND": read in a public text or in code that is named. "From
memory": recalled of the paper, not confirmed by a text. "Assumed": nobody says; a named argument where it
matters. Only what was found may be quoted as the paper's.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringyard_baselines.classic.fifo import fifo
    from ringyard_baselines.classic.las import las
    from ringyard_baselines.classic.sjf import sjf
    from ringyard_baselines.classic.srsf import srsf
    from ringyard_baselines.classic.srtf import srtf
    from ringyard_baselines.scheduler import Scheduler, run

__all__ = ["Scheduler", "fifo", "las", "run", "sjf", "srsf", "srtf"]


def __getattr__(name: str) -> Any:
    """Import a textbook scheduler when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "scheduler" if name in ("Scheduler", "run") else f"classic.{name}"
    return getattr(import_module(f"{__name__}.{module}"), name)
