"""Action spaces: `Actions` (start, adjust, wait), `Scores` (of jobs) and `Weights` (of jobs' features)."""

from ringyard.mdp.actions.space import (
    ActionKind,
    Actions,
    Adjustment,
    AllocatorActions,
    Reject,
    Scores,
    Template,
    Weights,
)

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
