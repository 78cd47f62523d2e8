"""Ringyard: Gymnasium environments of a multi-tenant GPU cluster. Importing it registers their ids."""

from typing import Any

from ringyard.mdp.registration import register_environments
from ringyard.renamed import lazy_exports

_EXPORTS, _get = lazy_exports(__name__)
__all__ = sorted([*_EXPORTS, "__version__"])


def __getattr__(name: str) -> Any:
    """Import an export, `__version__` or a module of this package on first use."""
    return _version() if name == "__version__" else _get(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """Return the version of the installed package, or `0+unknown` if it is only on the path."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ringyard")
    except PackageNotFoundError:
        return "0+unknown"


register_environments()
