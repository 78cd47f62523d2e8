"""Workloads: random generators of job tables, and readers of traces.

`workload` has the protocol for own workloads. conf/workload has a yaml for each workload.
"""

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_STUB = Path(__file__).with_suffix(".pyi").read_text()
_EXPORTS = re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)
#: {name that this package exports: its module}, imported on first use, because pandas takes long to import
_MODULE_OF = {name: module for module, name in _EXPORTS}
__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import an export or a module of this package on first use."""
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    module = f"{__name__}.{name}"
    if not name.startswith("_") and find_spec(module) is not None:
        return import_module(module)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
