"""Names in agents and run folders of earlier versions, and what they are called today."""

from collections.abc import Mapping
from typing import Any

#: {`_target_` in a file: its full name today}
RENAMED_TARGETS: dict[str, str] = {
    "ringyard.allocator.Starts": "ringyard.allocator.StartOnly",
    "ringyard.performance.composed": "ringyard.performance.composite",
}

_LEARNING = "ringyard_agents.learning"
_ALLOCATOR, _TEACHER = "ringyard.allocator.Allocator", f"{_LEARNING}.imitation.ImitateAllocator"
_SCORE_LEARNERS = ("evolution.EvolutionStrategies", "score_ppo.GroupNoise", "score_ppo.ForkAndCompare")
_OF_SCORE_LEARNERS = {"averaging": "ema_decay", "spread": "noise_std", "noise": "noise_std"}
_OF_SCORE_LEARNERS |= {"workloads": "workloads_per_round", "events": "noisy_decisions"}
_OF_SCORE_LEARNERS |= {"arrivals": "remaining_arrivals"}

#: {`_target_` today: {argument in a file: its name today}}
RENAMED_ARGUMENTS: dict[str, dict[str, str]] = {
    _ALLOCATOR: {
        "stay": "running_factor",
        "stop_price": "preemption_price",
        "move_price": "migration_price",
        "stay_bonus": "same_type_bonus",
        "starts": "start_only",
    },
    "ringyard.allocator.StartOnly": {"hold": "min_score"},
    "ringyard.placement.share": {"most_harm": "max_interference"},
    "ringyard.workloads.Elastic": {"least": "min_ratio", "most": "max_ratio"},
    "ringyard.workloads.OnesJobs": {"longest_gap": "max_gap_seconds"},
    "ringyard.workloads.PartitionedJobs": {"most_workers": "max_workers"},
    **{f"{_LEARNING}.{name}": _OF_SCORE_LEARNERS for name in _SCORE_LEARNERS},
    _TEACHER: {"batches": "gradient_steps", "share": "sample_fraction"},
    f"{_LEARNING}.cloning.CloneTeacher": {
        "batches": "gradient_steps",
        "steps": "demonstration_steps",
        "teacher": "policy",
    },
}

#: {group of settings of `ringyard train`, "" for those outside groups: {setting in a file: its name today}}
RENAMED_SETTINGS: dict[str, dict[str, str]] = {
    "": {"gym": "environment_id", "worlds": "environments"},
    "constraint": {"most": "bound", "step": "multiplier_learning_rate"},
}

#: {scheduler in a run folder that has the setting `gym`: its name today}
RENAMED_SCHEDULERS = {"fifo": "fifo_backfill", "fifo_strict": "fifo"}


def _rename_keys(config: Mapping[Any, Any], names: Mapping[str, str]) -> dict[Any, Any]:
    return {names.get(key, key): value for key, value in config.items()}


def update_names(config: Any) -> Any:
    """Return a plain config with today's names of classes, functions and arguments."""
    if isinstance(config, list):
        return [update_names(item) for item in config]
    if not isinstance(config, dict):
        return config
    updated = {key: update_names(value) for key, value in config.items()}
    if not isinstance(target := config.get("_target_"), str):
        return updated
    updated["_target_"] = RENAMED_TARGETS.get(target, target)
    updated = _rename_keys(updated, RENAMED_ARGUMENTS.get(updated["_target_"], {}))
    if updated["_target_"] == _TEACHER and isinstance(updated.get("options"), dict):
        # The teacher's options are arguments of the allocator, by label of the environment.
        updated["options"] = {
            label: _rename_keys(one, RENAMED_ARGUMENTS[_ALLOCATOR]) if isinstance(one, dict) else one
            for label, one in updated["options"].items()
        }
    return updated


def update_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the plain config of a training run with today's names of settings, classes and arguments."""
    updated = update_names(config)
    for group, names in RENAMED_SETTINGS.items():
        if not group:
            updated = _rename_keys(updated, names)
        elif isinstance(updated.get(group), dict):
            updated[group] = _rename_keys(updated[group], names)
    evaluate = updated.get("evaluate")
    if "gym" in config and isinstance(evaluate, dict) and isinstance(evaluate.get("schedulers"), list):
        schedulers = [_update_scheduler(entry) for entry in evaluate["schedulers"]]
        updated["evaluate"] = {**evaluate, "schedulers": schedulers}
    return updated


def _update_scheduler(entry: Any) -> Any:
    """Return an entry of `evaluate.schedulers` with today's name of the scheduler."""
    if isinstance(entry, str):
        name, at, rule = entry.partition("@")
        return RENAMED_SCHEDULERS.get(name, name) + at + rule
    if isinstance(entry, dict):
        return {key: _update_scheduler(value) if key != "options" else value for key, value in entry.items()}
    return entry
