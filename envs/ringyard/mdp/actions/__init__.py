"""Action spaces: `Actions` (start, adjust, wait), `Scores` (of jobs) and `Weights` (of jobs' features)."""

from ringyard.mdp.actions.scores import AllocatorActions, Scores, Weights
from ringyard.mdp.actions.space import ActionKind, Actions, Adjustment, Reject, Template

__all__ = [
    "ActionKind",
    "Actions",
    "Adjustment",
    "AllocatorActions",
    "Reject",
    "Scores",
    "Template",
    "Weights",
]
