"""What an agent can do, and doing it."""

from ringyard.mdp.actions.scores import Scores
from ringyard.mdp.actions.space import ActionKind, Actions, Adjustment, Reject, Template

__all__ = ["ActionKind", "Actions", "Adjustment", "Reject", "Scores", "Template"]
