"""Presets: settings that one `conf/experiment/NAME.yaml` describes whole, read when an environment is made.

gymnasium.make("ringyard/Sharing-v1")                                         the preset
gymnasium.make("ringyard/Sharing-v1", setting=replace(preset("sharing"), ...))  anything else
"""

from typing import TYPE_CHECKING

from gymnasium.vector import AutoresetMode

from ringyard.checks import require
from ringyard.config_folder import config_files, config_folder
from ringyard.errors import ConfigurationError
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.setting import Setting
from ringyard.mdp.user_config import hydra_configs
from ringyard.mdp.vector import ClusterVectorEnv

if TYPE_CHECKING:
    from omegaconf import DictConfig

__all__ = ["make", "make_vector", "preset", "require_preset", "setting_of"]

#: groups of conf/ that a setting is made of
_PARTS = ("cluster", "workload", "performance", "restart", "failures", "action", "observation", "reward")


def require_preset(experiment: str) -> None:
    """Raise a ConfigurationError unless there is a conf/experiment/NAME.yaml."""
    require("preset", experiment, str)
    names = config_files("experiment")
    if experiment not in names:
        raise ConfigurationError(
            f"unknown preset {experiment!r}; expected one of {', '.join(names)}; a new one is a new"
            f" {experiment}.yaml in {config_folder() / 'experiment'}"
        )


def preset(experiment: str, **parts: str) -> Setting:
    """What `ringyard train experiment=NAME` learns on, with as many job tables as `Setting` has by default.

    Args:
        experiment: name of a file in conf/experiment or of RINGYARD_CONF, without its ending.
        parts: other parts than its own, as on the command line: action="scores", observation="live_jobs".

    Raises:
        ConfigurationError: there is no such file.
    """
    from hydra import compose

    require_preset(experiment)
    for group, name in parts.items():
        known = config_files(group)
        if group not in _PARTS or name not in known:
            raise ConfigurationError(
                f"preset has no part {group}={name!r}; expected one of {', '.join(_PARTS)}, and for {group}"
                f" one of {', '.join(known) or 'nothing'}"
            )
    with hydra_configs():
        config = compose(
            "train", [f"experiment={experiment}", *(f"{group}={name}" for group, name in parts.items())]
        )
    return setting_of(config, Setting.num_workloads, Setting.workload_seed)


def setting_of(config: "DictConfig", num_workloads: int, workload_seed: int) -> Setting:
    """The decision process of a composed config.

    Args:
        config: with what `conf/setting.yaml` lists, and `restart`.
        num_workloads: how many different job tables episodes draw from.
        workload_seed: of these tables.
    """
    from hydra.utils import instantiate

    parts = {name: instantiate(config[name], _convert_="all") for name in _PARTS}
    return Setting(
        actions=parts.pop("action"),
        **parts,
        limit_seconds=config.limit_seconds,
        num_workloads=num_workloads,
        workload_seed=workload_seed,
    )


def make(experiment: str, setting: Setting | None = None, render_mode: str | None = None) -> ClusterEnv:
    """The environment of a preset, or of another setting."""
    return ClusterEnv(preset(experiment) if setting is None else setting, render_mode)


def make_vector(
    experiment: str,
    num_envs: int = 1,
    setting: Setting | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    render_mode: str | None = None,
) -> ClusterVectorEnv:
    """The vector environment of a preset, or of another setting."""
    chosen = preset(experiment) if setting is None else setting
    return ClusterVectorEnv(num_envs, chosen, autoreset_mode, copy, render_mode)
