"""Names that `ringyard_agents` exports, for type checkers: those of `_MODULES` in `__init__.py`."""

from ringyard_agents.evaluation.api import compare as compare
from ringyard_agents.evaluation.api import evaluate as evaluate
from ringyard_agents.learning.agent import AgentScheduler as AgentScheduler
from ringyard_agents.learning.agent import load as load
from ringyard_agents.learning.jct_callback import JctCallback as JctCallback
from ringyard_agents.learning.job_policy import JobAttentionPolicy as JobAttentionPolicy
from ringyard_agents.learning.policies import GreedyPolicy as GreedyPolicy
from ringyard_agents.learning.policies import PointerPolicy as PointerPolicy
from ringyard_agents.learning.vec_env import RingyardVecEnv as RingyardVecEnv
