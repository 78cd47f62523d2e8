"""The decisions of a preemptive key, made from what has changed since the last one.

A decision walks the jobs in the order of their keys and gives GPUs to whoever fits into those that are left.
Whoever holds GPUs was chosen, and stays so if it only moves forward, or if it changes places with another one
that was chosen. So the *safe* jobs, all that run and lie before a limit in the order, need not be looked at:
only how many GPUs they hold counts. Looked at are the *loose* jobs, the few that run behind the limit, and
the first of those that wait for each number of GPUs. If somebody before the limit does not fit, the limit is
moved forward.
"""

from ringyard_baselines.families.standing.books import empty_books
from ringyard_baselines.families.standing.play import play

__all__ = ["empty_books", "play"]
