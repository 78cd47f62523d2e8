"""Ringyard: Gymnasium environments of a multi-tenant GPU cluster. Importing it registers their ids."""

from typing import Any

from ringyard.mdp.registration import register_environments
from ringyard.renamed import lazy_exports

_EXPORTS, _get = lazy_exports(__name__)
__all__ = sorted([*_EXPORTS, "__version__"])


def __getattr__(name: str) -> Any:
    """Import an export, `__version__` or a module of this package on first use."""
    if name != "__version__":
        return _get(name)
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ringyard")
    except PackageNotFoundError:  # it is only on the path
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register_environments()
