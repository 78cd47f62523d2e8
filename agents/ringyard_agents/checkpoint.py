"""Trained agents on disk: Stable-Baselines3's zip and, beside it, what the agent sees and can do."""

import os
import zipfile
from pathlib import Path
from typing import Any

from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from ringyard.errors import CheckpointError
from ringyard_agents.configuration import plain

__all__ = ["AGENT", "LAST", "agent_spec", "find_checkpoint", "load_model", "save_model", "write_spec"]

AGENT = "agent.zip"  # best on the evaluation workloads
LAST = "last.zip"  # newest, to go on from
_SPEC = "agent.yaml"


def agent_spec(config: DictConfig) -> DictConfig:
    """What is needed to use an agent again: its class, observation and actions, resolved."""
    return OmegaConf.create(
        {
            "model_class": str(config.agent.model._target_),
            "observation": {**plain(config.observation), "flat": config.agent.flat_observation},
            "action": plain(config.action),
        }
    )


def write_spec(folder: Path, spec: DictConfig) -> None:
    """Write the spec into a run folder."""
    OmegaConf.save(spec, folder / _SPEC)


def save_model(model: BaseAlgorithm, file: Path) -> None:
    """Save so that an interruption leaves the old file or the new one."""
    partial = file.with_name(file.stem + "_partial.zip")
    model.save(partial)
    os.replace(partial, file)


def find_checkpoint(checkpoint: str | None, runs: Path = Path("runs")) -> Path:
    """The agent file meant by `checkpoint`: a file, a run folder, or the newest under `runs`.

    Raises:
        CheckpointError: there is none.
    """
    if checkpoint is None:
        found = sorted(runs.glob(f"**/{AGENT}"), key=lambda file: file.stat().st_mtime)
        if not found:
            raise CheckpointError(
                f"no trained agent under {runs}/; run `ringyard train` first, or give checkpoint=FILE"
            )
        return found[-1]
    file = Path(checkpoint).expanduser()
    if file.is_dir():
        file = file / AGENT
    if not file.is_file():
        raise CheckpointError(f"there is no checkpoint {file}; give an agent.zip or its run folder")
    return file


def load_model(file: Path) -> tuple[OnPolicyAlgorithm, Any, Any]:
    """(model, observation, actions) of a checkpoint.

    Raises:
        CheckpointError: damaged, or without its agent.yaml.
    """
    spec_file = file.with_name(_SPEC)
    if not spec_file.is_file():
        raise CheckpointError(f"{spec_file} is missing; an agent needs it to know what it sees")
    try:
        spec = OmegaConf.load(spec_file)
        model_class: Any = get_class(spec.model_class)
        model = model_class.load(file, device="cpu")
        return model, instantiate(spec.observation), instantiate(spec.action, _convert_="all")
    except (zipfile.BadZipFile, OmegaConfBaseException, ValueError, KeyError, EOFError) as error:
        raise CheckpointError(f"{file} is not a usable checkpoint: {error}") from error
