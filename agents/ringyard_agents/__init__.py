"""Agents, training, evaluation and reports for Ringyard.

`evaluate` and `compare` run schedulers and agents on workloads. `load` reads a trained agent.
"""

from importlib import import_module

#: {name: its module}, imported on first use, so that schedulers run without torch.
#: Type checkers read `__init__.pyi`, since importing `typing` here would delay the handling of Ctrl-C
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

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        from ringyard.renamed import renamed_export

        return renamed_export(__name__, name)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
