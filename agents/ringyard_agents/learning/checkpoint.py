"""Trained agents on disk: what their learner saved and, beside it, the learner, what it sees and can do."""

import os
import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ringyard.errors import CheckpointError, RingyardError
from ringyard.mdp.actions.space import Actions
from ringyard.mdp.observations.observation import Observation
from ringyard_agents.configuration import plain
from ringyard_agents.learning.learner import Learner, Policy

__all__ = ["AGENT", "LAST", "find_checkpoint", "load_policy", "readable", "save_learner", "write_spec"]

AGENT = "agent.zip"  # best on the evaluation workloads
LAST = "last.zip"  # newest, to go on from
_SPEC = "agent.yaml"
_PARTS = ("agent", "observation", "action")

#: what reading a file that is damaged, or another learner's, ends in
_UNREADABLE = (
    zipfile.BadZipFile, pickle.UnpicklingError, OmegaConfBaseException, HydraException,
    ValueError, KeyError, AttributeError, RuntimeError, EOFError,
)  # fmt: skip


def write_spec(folder: Path, config: DictConfig) -> None:
    """Write what is needed to use an agent again, of a training config, into a run folder."""
    parts = {part: plain(config[part]) for part in _PARTS}
    OmegaConf.save(OmegaConf.create(parts), folder / _SPEC)


def save_learner(learner: Learner, file: Path) -> None:
    """Save so that an interruption leaves the old file or the new one."""
    partial = file.with_name(file.stem + "_partial.zip")
    learner.save(partial)
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
                f"no trained agent under {runs}/; run `ringyard train`, or give scheduler.checkpoint=FILE"
            )
        return found[-1]
    file = Path(checkpoint).expanduser()
    if file.is_dir():
        file = file / AGENT
    if not file.is_file():
        raise CheckpointError(f"there is no checkpoint {file}; give an agent.zip or its run folder")
    return file


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Raise a CheckpointError for what reading `file` ends in, should it be damaged or another learner's."""
    try:
        yield
    except RingyardError:
        raise
    except _UNREADABLE as error:
        raise CheckpointError(f"{file} is not a usable checkpoint: {error}") from error


def load_policy(file: Path) -> tuple[Policy, Observation, Actions]:
    """(policy, observation, actions) of a checkpoint.

    Raises:
        CheckpointError: damaged, or without its agent.yaml.
    """
    spec_file = file.with_name(_SPEC)
    if not spec_file.is_file():
        raise CheckpointError(f"{spec_file} is missing; an agent needs it to know what it sees")
    with readable(file):
        spec: Any = OmegaConf.load(spec_file)
        learner, observation, actions = (instantiate(spec[part], _convert_="all") for part in _PARTS)
        return learner.load(file), observation, actions
