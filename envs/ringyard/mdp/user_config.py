"""Hydra's search path: the folder `conf` and the user's folders in RINGYARD_CONF."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ringyard.config_folder import config_folder, user_config_folders


@contextmanager
def hydra_initialized() -> Iterator[None]:
    """Let `hydra.compose` read `conf` in a `with` block, and restore an outer Hydra application after it."""
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.version import VersionBase

    around, version = GlobalHydra.instance(), VersionBase.instance().version_base
    outer = around.hydra
    around.clear()
    register_user_config_folders()
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            yield
    finally:
        GlobalHydra.set_instance(around)
        around.hydra = outer
        VersionBase.instance().version_base = version


@functools.cache
def register_user_config_folders() -> None:
    """Let Hydra find the yaml files of RINGYARD_CONF before those of the same name in `conf`."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class UserConfigFolders(SearchPathPlugin):
        def manipulate_search_path(self, search_path: Any) -> None:
            for folder in reversed(user_config_folders()):
                search_path.prepend("ringyard", f"file://{folder}")

    Plugins.instance().register(UserConfigFolders)
