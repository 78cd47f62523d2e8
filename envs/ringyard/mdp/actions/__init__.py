"""What an agent can do, and doing it."""

from ringyard.mdp.actions.space import Actions, Adjustment, Reject, Template

__all__ = ["Actions", "Adjustment", "Reject", "Template"]
