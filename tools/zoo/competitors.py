"""The published schedulers that an agent is compared with."""

from collections.abc import Mapping

from ringyard_agents.config.compose import SchedulerEntry, scheduler_config, scheduler_names, to_plain
from ringyard_agents.evaluation.selection import (
    COMPARISON_SEED_OFFSET,
    ComparisonRequest,
    supported_schedulers,
)
from ringyard_agents.evaluation.tuned_configs import (
    TunedScheduler,
    build_scheduler,
    capability_class,
    has_explicit_config,
    read_tuned,
    with_tuned_options,
)


def competitors(rule: SchedulerEntry, request: ComparisonRequest) -> list[SchedulerEntry]:
    """Published schedulers of the class of a rule that can serve a world's jobs; Hydra must be initialised.

    They see how long jobs will run only if the rule does, and only start jobs if the rule does. All else that
    they see or do is allowed: an agent must be better in spite of it.
    Each has the best of the rules and options tried with which it is of the class: a placement rule that goes
    by predictions makes a scheduler see them, too.

    Args:
        rule: what the agent's scores go through; it sees and may what the agent sees and may.
        request: of a comparison in one environment; each scheduler is taken at the best that it names.

    Raises:
        RingyardError: bad input.
    """
    [world] = request.environments().values()
    name = request.tuned_name(world)
    best = {} if name is None else read_tuned(name)
    [at_its_best] = with_tuned_options({rule.label: rule}, best).values()
    sees_durations, only_starts = capability_class(build_scheduler(at_its_best))

    def competes(entry: SchedulerEntry) -> bool:
        scheduler = build_scheduler(entry)
        sees, starts_only = capability_class(scheduler)
        return scheduler.published and (sees_durations or not sees) and (starts_only or not only_starts)

    tried = {one: _tried(one, best) for one in scheduler_names()}
    at_their_best = {one: to_plain(scheduler_config(entries[0])) for one, entries in tried.items()}
    fit, _ = supported_schedulers(at_their_best, world, request.seed + COMPARISON_SEED_OFFSET)
    found = (next(filter(competes, tried[one]), None) for one in fit)
    return [one for one in found if one is not None]


def _tried(name: str, best: Mapping[str, TunedScheduler]) -> list[SchedulerEntry]:
    """What was tried with a scheduler, the best first; one that was not tuned is as its yaml says."""
    if name not in best:
        return [SchedulerEntry.read(name)]
    return [best[name].entry, *(one.entry for one in best[name].others if has_explicit_config(one.entry))]
