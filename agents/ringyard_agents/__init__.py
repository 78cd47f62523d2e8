"""PPO agents on Ringyard: networks, training, evaluation, comparison and TensorBoard."""

from importlib import import_module

TYPE_CHECKING = False  # as typing's, which takes longer to import than all else before Ctrl-C is heard
if TYPE_CHECKING:
    from typing import Any

    from ringyard_agents.evaluation.api import compare, evaluate
    from ringyard_agents.learning.api import load

__all__ = ["compare", "evaluate", "load"]

#: imported when they are asked for: schedulers are measured without torch
_WHERE = {"load": "learning.api", "compare": "evaluation.api", "evaluate": "evaluation.api"}


def __getattr__(name: str) -> "Any":
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
