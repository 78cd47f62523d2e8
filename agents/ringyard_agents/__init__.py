"""Agents on Ringyard: networks, training, evaluation, comparison and TensorBoard."""

from importlib import import_module

TYPE_CHECKING = False  # as typing's, which takes longer to import than all else before Ctrl-C is heard
if TYPE_CHECKING:
    from typing import Any

    from ringyard_agents.evaluation.api import compare, evaluate
    from ringyard_agents.learning.agent import AgentScheduler, load
    from ringyard_agents.learning.policies import GreedyPolicy, PointerPolicy
    from ringyard_agents.learning.vec_env import RingyardVecEnv

__all__ = ["AgentScheduler", "GreedyPolicy", "PointerPolicy", "RingyardVecEnv", "compare", "evaluate", "load"]

#: imported when they are asked for: schedulers are measured without torch
_WHERE = {
    "AgentScheduler": "learning.agent",
    "GreedyPolicy": "learning.policies",
    "PointerPolicy": "learning.policies",
    "RingyardVecEnv": "learning.vec_env",
    "compare": "evaluation.api",
    "evaluate": "evaluation.api",
    "load": "learning.agent",
}


def __getattr__(name: str) -> "Any":
    if name not in _WHERE:
        from ringyard.renamed import renamed_export

        return renamed_export(__name__, name)
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
