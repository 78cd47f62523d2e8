"""Action spaces: `Actions` (start, adjust, wait), `Scores` (of jobs) and `Weights` (of jobs' features)."""

from ringyard.mdp.actions.space import ActionKind as ActionKind
from ringyard.mdp.actions.space import Actions as Actions
from ringyard.mdp.actions.space import Adjustment as Adjustment
from ringyard.mdp.actions.space import AllocatorActions as AllocatorActions
from ringyard.mdp.actions.space import Reject as Reject
from ringyard.mdp.actions.space import Scores as Scores
from ringyard.mdp.actions.space import Template as Template
from ringyard.mdp.actions.space import Weights as Weights
