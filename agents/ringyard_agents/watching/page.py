"""The page: one file, with everything in it and nothing fetched from anywhere."""

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

__all__ = ["page_of"]

#: files of this folder that the page is made of: {mark: file}
_PARTS = {
    "STYLE": "page.css",
    "MODEL": "model.js",
    "GANTT": "gantt.js",
    "PANELS": "panels.js",
    "MAIN": "main.js",
}


def page_of(data: Mapping[str, Any]) -> str:
    """HTML that shows schedules.

    Args:
        data: of `schedule.workload_of`, with `command` and `schedules`; texts of users are shown as texts.
    """
    folder = resources.files(__package__)
    page = folder.joinpath("page.html").read_text(encoding="utf-8")
    for mark, file in _PARTS.items():
        page = page.replace(f"/*{mark}*/", folder.joinpath(file).read_text(encoding="utf-8"))
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    # nothing in it can end the element it stands in
    return page.replace("/*DATA*/", text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))
