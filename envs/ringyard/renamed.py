"""Names of earlier versions, as in `conf/renamed.yaml`: errors and warnings that say today's."""

import functools
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ringyard.config_folder import config_folder


@functools.cache
def renamed_names(kind: str) -> Mapping[str, str | None]:
    """{old name of a kind: name today, or None if there is nothing in its place}.

    Kinds: "settings", "commands", "options", "choices", "schedulers", "scheduler_options", "exports".
    """
    import yaml

    return yaml.safe_load((config_folder() / "renamed.yaml").read_text())[kind]


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
