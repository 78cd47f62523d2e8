"""Names in agents and run folders of earlier versions, and what they are called today."""

from collections.abc import Mapping
from typing import Any

#: {`_target_` in a file: its full name today}
RENAMED_TARGETS: dict[str, str] = {"ringyard.allocator.Starts": "ringyard.allocator.StartOnly"}

#: {`_target_` today: {argument in a file: its name today}}
RENAMED_ARGUMENTS: dict[str, dict[str, str]] = {
    "ringyard.allocator.Allocator": {
        "stay": "running_factor",
        "stop_price": "preemption_price",
        "move_price": "migration_price",
        "stay_bonus": "same_type_bonus",
        "starts": "start_only",
    },
    "ringyard.allocator.StartOnly": {"hold": "min_score"},
    "ringyard.placement.share": {"most_harm": "max_interference"},
    "ringyard_agents.learning.evolution.EvolutionStrategies": {
        "averaging": "ema_decay",
        "spread": "noise_std",
        "workloads": "workloads_per_round",
    },
    "ringyard_agents.learning.score_ppo.GroupNoise": {
        "averaging": "ema_decay",
        "noise": "noise_std",
        "workloads": "workloads_per_round",
    },
    "ringyard_agents.learning.score_ppo.ForkAndCompare": {
        "arrivals": "remaining_arrivals",
        "averaging": "ema_decay",
        "events": "noisy_decisions",
        "noise": "noise_std",
        "workloads": "workloads_per_round",
    },
    "ringyard_agents.learning.imitation.ImitateAllocator": {
        "batches": "gradient_steps",
        "share": "sample_fraction",
    },
    "ringyard_agents.learning.cloning.CloneTeacher": {
        "batches": "gradient_steps",
        "steps": "demonstration_steps",
        "teacher": "policy",
    },
}

#: {group of settings of `ringyard train`, "" for those outside groups: {setting in a file: its name today}}
RENAMED_SETTINGS: dict[str, dict[str, str]] = {
    "": {"worlds": "environments"},
    "constraint": {"most": "bound", "step": "multiplier_learning_rate"},
}


def update_names(config: Any) -> Any:
    """A plain config from a file, with today's names of classes, functions and their arguments.

    Args:
        config: nested dicts, lists and values.

    Returns:
        A new config. Names that are not in the tables stay as they are.
    """
    if isinstance(config, list):
        return [update_names(item) for item in config]
    if not isinstance(config, dict):
        return config
    target = config.get("_target_")
    renamed = dict(config)
    arguments: Mapping[Any, str] = {}
    if isinstance(target, str):
        renamed["_target_"] = RENAMED_TARGETS.get(target, target)
        arguments = RENAMED_ARGUMENTS.get(renamed["_target_"], {})
    return {arguments.get(name, name): update_names(value) for name, value in renamed.items()}


def update_settings(config: dict[str, Any]) -> dict[str, Any]:
    """A plain config of a training run, with today's names of settings, classes and arguments.

    Args:
        config: of a run folder, of any version.

    Returns:
        A new config.
    """
    config = update_names(config)
    for group, names in RENAMED_SETTINGS.items():
        settings = config.get(group) if group else config
        if isinstance(settings, dict):
            renamed = {names.get(name, name): value for name, value in settings.items()}
            config = {**config, group: renamed} if group else renamed
    return config
