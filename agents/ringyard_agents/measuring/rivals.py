"""Whom an agent is held against where nobody names them: every published scheduler of its class."""

from omegaconf import DictConfig

from ringyard.information import Information
from ringyard_agents.configuration import Entry, plain, scheduler_config, scheduler_names
from ringyard_agents.measuring.best import Best, at_best, read_best
from ringyard_agents.measuring.compare import SEED_OFFSET, best_name
from ringyard_agents.measuring.evaluate import build
from ringyard_agents.measuring.selection import able, worlds_of
from ringyard_baselines.scheduler import Powers, Scheduler

__all__ = ["rivals"]

#: to know how long a job will run, or a guess of it
_HOW_LONG = Information.DURATIONS | Information.PREDICTIONS


def rivals(rule: Entry, config: DictConfig) -> list[str]:
    """Published schedulers of the class of a rule that can serve a world's jobs; Hydra must be initialised.

    They are told how long jobs will run only if the rule is, and only start jobs if the rule does. All else
    that they know or do is theirs: an agent must be better in spite of it.
    Each counts as it is at its best: with a placement rule that goes by predictions it is told, too.

    Args:
        rule: what the agent's scores go through; it knows and may what the agent knows and may.
        config: of `ringyard compare`, of one world; each scheduler is taken at the best that it names.

    Raises:
        RingyardError: bad input.
    """
    [world] = worlds_of(config).values()
    name = best_name(config, world)
    best = {} if name is None else read_best(name)
    agent = build(_at_best(rule, best))
    known = {one: _at_best(Entry.read(one), best) for one in scheduler_names()}
    fit, _ = able(known, world, config.seed + SEED_OFFSET)
    return [one for one in fit if _is_rival(build(known[one]), agent)]


def _at_best(entry: Entry, best: dict[str, Best]) -> dict[str, object]:
    [chosen] = at_best({entry.label: entry}, best).values()
    config: dict[str, object] = plain(scheduler_config(chosen))
    return config


def _is_rival(scheduler: Scheduler, agent: Scheduler) -> bool:
    told = bool(scheduler.knows & _HOW_LONG)
    only_starts = scheduler.may == Powers.STARTS
    return (
        scheduler.published
        and (not told or bool(agent.knows & _HOW_LONG))
        and (only_starts or agent.may != Powers.STARTS)
    )
