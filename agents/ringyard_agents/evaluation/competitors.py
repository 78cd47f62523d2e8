"""Whom an agent is held against where nobody names them: every published scheduler of its class."""

from collections.abc import Mapping

from omegaconf import DictConfig

from ringyard.information import Information
from ringyard_agents.configuration import Entry, plain, scheduler_config, scheduler_names
from ringyard_agents.evaluation.compare import SEED_OFFSET, best_name
from ringyard_agents.evaluation.evaluate import build
from ringyard_agents.evaluation.selection import supported_schedulers, worlds_of
from ringyard_agents.evaluation.tuned_configs import Best, TunedConfig, at_best, read_best
from ringyard_baselines.scheduler import Powers, Scheduler

__all__ = ["alternatives", "competitors"]

#: to know how long a job will run, or a guess of it
_HOW_LONG = Information.DURATIONS | Information.PREDICTIONS


def competitors(rule: Entry, config: DictConfig) -> list[Entry]:
    """Published schedulers of the class of a rule that can serve a world's jobs; Hydra must be initialised.

    They are told how long jobs will run only if the rule is, and only start jobs if the rule does. All else
    that they know or do is theirs: an agent must be better in spite of it.
    Each has the best of the rules and options tried with which it is of the class: a placement rule that goes
    by predictions makes a scheduler know them, too.

    Args:
        rule: what the agent's scores go through; it knows and may what the agent knows and may.
        config: of `ringyard compare`, of one world; each scheduler is taken at the best that it names.

    Raises:
        RingyardError: bad input.
    """
    [world] = worlds_of(config).values()
    name = best_name(config, world)
    best = {} if name is None else read_best(name)
    [at_its_best] = at_best({rule.label: rule}, best).values()
    agent = _built(at_its_best)
    known = {one: _tried(one, best) for one in scheduler_names()}
    at_their_best = {one: plain(scheduler_config(tried[0])) for one, tried in known.items()}
    fit, _ = supported_schedulers(at_their_best, world, config.seed + SEED_OFFSET)
    found = (next((one for one in known[name] if _is_rival(_built(one), agent)), None) for name in fit)
    return [one for one in found if one is not None]


def alternatives(best: Best) -> tuple[TunedConfig, ...]:
    """The other configurations that `competitors` may take in place of the best; Hydra must be initialised.

    These are the first that are not told how long jobs will run where all better ones are, or that only start
    jobs where all better ones preempt.

    Args:
        best: a scheduler with everything that was tried, the best first.

    Raises:
        RingyardError: a configuration cannot be built.
    """
    seen, found = [_class_of(_built(best.entry))], []
    for one in best.others:
        if _says_how(one.entry):
            told, only_starts = _class_of(_built(one.entry))
            if not any(before[0] <= told and before[1] >= only_starts for before in seen):
                seen.append((told, only_starts))
                found.append(one)
    return tuple(found)


def _says_how(entry: Entry) -> bool:
    """Whether it names a rule or options; one that does not stands for the scheduler at its best."""
    return bool(entry.options) or "@" in entry.scheduler


def _class_of(scheduler: Scheduler) -> tuple[bool, bool]:
    """Whether it is told how long jobs will run, and whether it only starts jobs."""
    return bool(scheduler.knows & _HOW_LONG), scheduler.may == Powers.STARTS


def _tried(name: str, best: Mapping[str, Best]) -> list[Entry]:
    """What was tried with a scheduler, the best first; one that was not tuned is as its yaml says."""
    if name not in best:
        return [Entry.read(name)]
    return [best[name].entry, *(one.entry for one in best[name].others if _says_how(one.entry))]


def _built(entry: Entry) -> Scheduler:
    return build(plain(scheduler_config(entry)))


def _is_rival(scheduler: Scheduler, agent: Scheduler) -> bool:
    told, only_starts = _class_of(scheduler)
    return (
        scheduler.published
        and (not told or bool(agent.knows & _HOW_LONG))
        and (only_starts or agent.may != Powers.STARTS)
    )
