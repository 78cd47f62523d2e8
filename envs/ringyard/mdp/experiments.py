"""Environments of experiments, `conf/experiment/NAME.yaml`, which is read when an environment is made.

gymnasium.make("ringyard/Sharing-v1")                                             the experiment
gymnasium.make("ringyard/Sharing-v1", config=replace(experiment("sharing"), ...))  anything else
"""

from typing import TYPE_CHECKING

from gymnasium.vector import AutoresetMode

from ringyard.checks import require
from ringyard.config_folder import config_files, config_folder
from ringyard.errors import ConfigurationError
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.user_config import hydra_initialized
from ringyard.mdp.vector import ClusterVectorEnv

if TYPE_CHECKING:
    from omegaconf import DictConfig

#: groups of conf/ that a config is made of
_PARTS = ("cluster", "workload", "performance", "restart", "failures", "action", "observation", "reward")


def require_experiment(name: str) -> None:
    """Raise a ConfigurationError unless there is a conf/experiment/NAME.yaml."""
    require("experiment", name, str)
    names = config_files("experiment")
    if name not in names:
        raise ConfigurationError(
            f"unknown experiment {name!r}; expected one of {', '.join(names)}; a new one is a new"
            f" {name}.yaml in {config_folder() / 'experiment'}"
        )


def experiment(name: str, **parts: str) -> EnvConfig:
    """The environment config of `ringyard train experiment=NAME`, with the default number of job tables.

    Args:
        name: of a yaml in conf/experiment or in such a folder of RINGYARD_CONF.
        parts: {group: choice} that replace parts of the experiment, such as action="scores".

    Raises:
        ConfigurationError: there is no such file.
    """
    from hydra import compose

    require_experiment(name)
    for group, part in parts.items():
        known = config_files(group)
        if group not in _PARTS or part not in known:
            raise ConfigurationError(
                f"an experiment has no part {group}={part!r}; expected one of {', '.join(_PARTS)},"
                f" and for {group} one of {', '.join(known) or 'nothing'}"
            )
    with hydra_initialized():
        config = compose(
            "train", [f"experiment={name}", *(f"{group}={part}" for group, part in parts.items())]
        )
    return build_env_config(config, EnvConfig.num_workloads, EnvConfig.workload_seed)


def build_env_config(config: "DictConfig", num_workloads: int, workload_seed: int) -> EnvConfig:
    """The environment config of a composed config.

    Args:
        config: with the groups of `conf/config.yaml`, and `restart`.
        num_workloads: number of different job tables of the episodes.
        workload_seed: of the job tables.
    """
    from hydra.utils import instantiate

    parts = {name: instantiate(config[name], _convert_="all") for name in _PARTS}
    return EnvConfig(
        actions=parts.pop("action"),
        **parts,
        limit_seconds=config.limit_seconds,
        num_workloads=num_workloads,
        workload_seed=workload_seed,
    )


def make(name: str, config: EnvConfig | None = None, render_mode: str | None = None) -> ClusterEnv:
    """The environment of an experiment, or of another config."""
    return ClusterEnv(experiment(name) if config is None else config, render_mode)


def make_vector(
    name: str,
    num_envs: int = 1,
    config: EnvConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    render_mode: str | None = None,
) -> ClusterVectorEnv:
    """The vector environment of an experiment, or of another config."""
    chosen = experiment(name) if config is None else config
    return ClusterVectorEnv(num_envs, chosen, autoreset_mode, copy, render_mode)
