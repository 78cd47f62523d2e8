"""Environments of the experiments in `conf/experiment/NAME.yaml`.

`gymnasium.make("ringyard/Sharing-v1")` creates the environment of the experiment, and
`gymnasium.make("ringyard/Sharing-v1", config=replace(experiment("sharing"), ...))` a changed one.
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

#: groups of `conf` that make up an `EnvConfig`
_GROUPS = ("cluster", "workload", "performance", "restart", "failures", "action", "observation", "reward")


def require_experiment(name: str) -> None:
    """Raise a ConfigurationError unless there is a `conf/experiment/NAME.yaml`."""
    require("experiment", name, str)
    names = config_files("experiment")
    if name not in names:
        raise ConfigurationError(
            f"unknown experiment {name!r}; expected one of {', '.join(names)}; to add one, write"
            f" {name}.yaml in {config_folder() / 'experiment'}"
        )


def experiment(name: str, **parts: str) -> EnvConfig:
    """Return the `EnvConfig` of an experiment, as `ringyard train experiment=NAME` uses it.

    `num_workloads` and `workload_seed` have their defaults.

    Args:
        name: of a yaml in `conf/experiment`, or in the folder `experiment` of a folder in RINGYARD_CONF.
        parts: {group: choice} that replace parts of the experiment, such as `action="scores"`. Groups are
            cluster, workload, performance, restart, failures, action, observation and reward.

    Raises:
        ConfigurationError: no such experiment, group or choice.
    """
    from hydra import compose

    require_experiment(name)
    for group, part in parts.items():
        known = config_files(group)
        if group not in _GROUPS or part not in known:
            raise ConfigurationError(
                f"an experiment has no part {group}={part!r}; expected one of {', '.join(_GROUPS)},"
                f" and for {group} one of {', '.join(known) or 'nothing'}"
            )
    with hydra_initialized():
        config = compose(
            "train", [f"experiment={name}", *(f"{group}={part}" for group, part in parts.items())]
        )
    return build_env_config(config, EnvConfig.num_workloads, EnvConfig.workload_seed)


def build_env_config(config: "DictConfig", num_workloads: int, workload_seed: int) -> EnvConfig:
    """Create the `EnvConfig` of a config that Hydra has composed.

    Args:
        config: with the groups cluster, workload, performance, restart, failures, action, observation and
            reward, and the key `limit_seconds`.
        num_workloads: number of different job tables of the episodes.
        workload_seed: of the job tables.
    """
    from hydra.utils import instantiate

    parts = {name: instantiate(config[name], _convert_="all") for name in _GROUPS}
    return EnvConfig(
        actions=parts.pop("action"),
        **parts,
        limit_seconds=config.limit_seconds,
        num_workloads=num_workloads,
        workload_seed=workload_seed,
    )


def make(name: str, config: EnvConfig | None = None, render_mode: str | None = None) -> ClusterEnv:
    """Create the environment of experiment `name`, or of `config`, with the given `render_mode`."""
    return ClusterEnv(experiment(name) if config is None else config, render_mode)


def make_vector(
    name: str,
    num_envs: int = 1,
    config: EnvConfig | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    render_mode: str | None = None,
) -> ClusterVectorEnv:
    """Create the vector environment of experiment `name`, or of `config`.

    The arguments `num_envs`, `autoreset_mode`, `copy` and `render_mode` are those of `ClusterVectorEnv`.
    """
    chosen = experiment(name) if config is None else config
    return ClusterVectorEnv(num_envs, chosen, autoreset_mode, copy, render_mode)
