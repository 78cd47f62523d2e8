"""Ringyard: Gymnasium environments of a multi-tenant GPU cluster. Importing it registers their ids."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from ringyard.mdp.registration import register_environments

_STUB = Path(__file__).with_suffix(".pyi").read_text()
_EXPORTS = re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)
#: {name that this package exports: its module}, imported on first use, so that `--help` needs no numba
_MODULE_OF = {name: module for module, name in _EXPORTS}
__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    """Import an export, `__version__` or a module of this package on first use."""
    if name == "__version__":
        return _version()
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
        globals()[name] = value
        return value
    module = f"{__name__}.{name}"
    if not name.startswith("_") and importlib.util.find_spec(module) is not None:
        return importlib.import_module(module)
    from ringyard.renamed import renamed_export

    return renamed_export(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "__version__"})


def _version() -> str:
    """Return the version of the installed package, or `0+unknown` if it is only on the path."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ringyard")
    except PackageNotFoundError:
        return "0+unknown"


register_environments()
