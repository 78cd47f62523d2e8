"""Policies, learners and the command that trains them."""
