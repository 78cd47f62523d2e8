"""Action spaces: `Actions` (start, adjust or wait) and `Scores` (a score for each job)."""

from ringyard.mdp.actions.scores import Scores
from ringyard.mdp.actions.space import ActionKind, Actions, Adjustment, Reject, Template

__all__ = ["ActionKind", "Actions", "Adjustment", "Reject", "Scores", "Template"]
