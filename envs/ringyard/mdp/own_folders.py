"""Hydra and the folders of one's own yamls."""

import functools
from typing import Any

from ringyard.config_folder import own_folders

__all__ = ["search_own_folders"]


@functools.cache
def search_own_folders() -> None:
    """From now on Hydra finds yamls of RINGYARD_CONF before those of that name which ship."""
    from hydra.core.plugins import Plugins
    from hydra.plugins.search_path_plugin import SearchPathPlugin

    class OwnFolders(SearchPathPlugin):
        def manipulate_search_path(self, search_path: Any) -> None:
            for folder in reversed(own_folders()):
                search_path.prepend("ringyard", f"file://{folder}")

    Plugins.instance().register(OwnFolders)
