"""Whom an agent is held against where nobody names them: every published scheduler of its class."""

from collections.abc import Mapping

from ringyard_agents.config.compose import Entry, plain, scheduler_config, scheduler_names
from ringyard_agents.evaluation.evaluate import build
from ringyard_agents.evaluation.selection import SEED_OFFSET, ComparisonRequest, supported_schedulers
from ringyard_agents.evaluation.tuned_configs import Best, at_best, class_of, read_best, says_how
from ringyard_baselines.scheduler import Scheduler

__all__ = ["competitors"]


def competitors(rule: Entry, request: ComparisonRequest) -> list[Entry]:
    """Published schedulers of the class of a rule that can serve a world's jobs; Hydra must be initialised.

    They are told how long jobs will run only if the rule is, and only start jobs if the rule does. All else
    that they know or do is theirs: an agent must be better in spite of it.
    Each has the best of the rules and options tried with which it is of the class: a placement rule that goes
    by predictions makes a scheduler know them, too.

    Args:
        rule: what the agent's scores go through; it knows and may what the agent knows and may.
        request: of a comparison in one environment; each scheduler is taken at the best that it names.

    Raises:
        RingyardError: bad input.
    """
    [world] = request.worlds().values()
    name = request.best_name(world)
    best = {} if name is None else read_best(name)
    [at_its_best] = at_best({rule.label: rule}, best).values()
    agent = _built(at_its_best)
    known = {one: _tried(one, best) for one in scheduler_names()}
    at_their_best = {one: plain(scheduler_config(tried[0])) for one, tried in known.items()}
    fit, _ = supported_schedulers(at_their_best, world, request.seed + SEED_OFFSET)
    found = (next((one for one in known[name] if _is_rival(_built(one), agent)), None) for name in fit)
    return [one for one in found if one is not None]


def _tried(name: str, best: Mapping[str, Best]) -> list[Entry]:
    """What was tried with a scheduler, the best first; one that was not tuned is as its yaml says."""
    if name not in best:
        return [Entry.read(name)]
    return [best[name].entry, *(one.entry for one in best[name].others if says_how(one.entry))]


def _built(entry: Entry) -> Scheduler:
    return build(plain(scheduler_config(entry)))


def _is_rival(scheduler: Scheduler, agent: Scheduler) -> bool:
    told, only_starts = class_of(scheduler)
    agent_is_told, agent_only_starts = class_of(agent)
    return scheduler.published and (agent_is_told or not told) and (only_starts or not agent_only_starts)
