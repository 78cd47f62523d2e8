"""Names that packages export, and those of earlier versions, as in `conf/renamed.yaml`."""

import functools
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ringyard.config_folder import config_folder


@functools.cache
def renamed_names(kind: str) -> Mapping[str, str | None]:
    """{old name of a kind: name today, or None if there is nothing in its place}.

    Kinds: "settings", "commands", "options", "choices", "schedulers", "scheduler_options", "exports".
    """
    import yaml

    return yaml.safe_load((config_folder() / "renamed.yaml").read_text())[kind]


def lazy_exports(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """Return `__all__` and `__getattr__` of a package, of which `__init__.pyi` has the exports.

    They are imported on first use, as the package's modules are, since numba and pandas take long to import.
    """
    stub = Path(str(sys.modules[package].__file__)).with_suffix(".pyi").read_text()
    module_of = {
        name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)
    }

    def get(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(module_of[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        module = f"{package}.{name}"
        if not name.startswith("_") and find_spec(module) is not None:
            return import_module(module)
        return renamed_export(package, name)

    return sorted(module_of), get


def renamed_export(package: str, name: str) -> Any:
    """The object that a package exported under an old name, with a warning; an AttributeError if none."""
    today = None if name.startswith("_") else renamed_names("exports").get(f"{package}.{name}")
    if today is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    message = f"{package}.{name} is called {today}; the old name goes in the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    module, _, attribute = today.rpartition(".")
    return getattr(import_module(module), attribute)


def explain_renamed(kind: str, name: str, written: str | None = None) -> str | None:
    """Say what an old name (`written`: where it stands) is called today. None: it is no old name."""
    if name not in renamed_names(kind):
        return None
    today = renamed_names(kind)[name]
    does = "was removed without a replacement" if today is None else f"is called {today} now"
    return f"{written or name} {does}; docs/renamed.md lists all names that changed"
