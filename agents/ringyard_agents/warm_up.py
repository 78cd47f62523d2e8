"""Tell the user when the first call will compile."""

import sys
from pathlib import Path
from typing import Any

from ringyard.sim import setup

__all__ = ["announce_compilation"]


def announce_compilation() -> None:
    """Say so on standard error if the simulator's machine code is not in numba's cache yet."""
    load: Any = setup.load
    if not any(Path(load.stats.cache_path).glob("setup.load-*.nbi")):
        print(
            "compiling the simulator (once, under a minute; later runs start at once)",
            file=sys.stderr,
            flush=True,
        )
