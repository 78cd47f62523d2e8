"""Agents, training, evaluation and reports for Ringyard.

`evaluate` and `compare` run schedulers and agents on workloads. `load` reads a trained agent.
"""

from importlib import import_module

TYPE_CHECKING = False  # in place of typing's, since importing that delays the handling of Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    from ringyard_agents.evaluation.api import compare, evaluate
    from ringyard_agents.learning.agent import AgentScheduler, load
    from ringyard_agents.learning.jct_callback import JctCallback
    from ringyard_agents.learning.job_policy import JobAttentionPolicy
    from ringyard_agents.learning.policies import GreedyPolicy, PointerPolicy
    from ringyard_agents.learning.vec_env import RingyardVecEnv

__all__ = [
    "AgentScheduler",
    "GreedyPolicy",
    "JctCallback",
    "JobAttentionPolicy",
    "PointerPolicy",
    "RingyardVecEnv",
    "compare",
    "evaluate",
    "load",
]

#: {name: its module}, imported on first use, so that schedulers run without torch
_MODULES = {
    "AgentScheduler": "learning.agent",
    "GreedyPolicy": "learning.policies",
    "JctCallback": "learning.jct_callback",
    "JobAttentionPolicy": "learning.job_policy",
    "PointerPolicy": "learning.policies",
    "RingyardVecEnv": "learning.vec_env",
    "compare": "evaluation.api",
    "evaluate": "evaluation.api",
    "load": "learning.agent",
}


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        from ringyard.renamed import renamed_export

        return renamed_export(__name__, name)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
