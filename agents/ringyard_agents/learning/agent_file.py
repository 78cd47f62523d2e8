"""Trained agents on disk: weights, and configs of their learner, observation and actions."""

from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig

from ringyard.errors import CheckpointError, RingyardError
from ringyard.mdp.actions import ActionKind
from ringyard.mdp.observations.observation import Observation
from ringyard_agents.command_line import AGENT_LIBRARIES
from ringyard_agents.config.compose import to_plain
from ringyard_agents.config.safe_load import Trust, check_classes
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.learner import Policy
from ringyard_agents.learning.stored_names import update_names
from ringyard_agents.shipped_agents import agent_place

AGENT = "agent.safetensors"  # best on the evaluation workloads
LAST = "last.safetensors"  # newest, to go on from

#: {config of an agent: groups of conf/ whose classes it may name}
PARTS = {"agent": ("agent",), "observation": ("observation",), "action": ("action", "placement")}


def parts_of(config: DictConfig) -> dict[str, Any]:
    """{group of conf/: plain config} of the agent of a training run."""
    return {part: to_plain(config[part]) for part in PARTS}


def save_agent(weights: Checkpoint, parts: dict[str, Any], file: Path) -> None:
    """Write an agent for `load_policy`: weights of its learner, and its `parts_of`."""
    Checkpoint(weights.arrays, {"parts": parts, "weights": dict(weights.facts)}).write(file)


def find_checkpoint(checkpoint: str | None, runs: Path = Path("runs")) -> Path:
    """The file of an agent: that of a file, a run folder or `zoo:NAME`; None: the newest under `runs`.

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
    file = agent_place(checkpoint)
    if file.is_dir():
        file = file / AGENT
    if not file.is_file():
        raise CheckpointError(f"there is no checkpoint {file}; give an {AGENT} or its run folder")
    return file


def load_policy(file: Path, trust: Trust = ()) -> tuple[Policy, Observation, ActionKind]:
    """(policy, observation, actions) of a checkpoint, which may run only Ringyard's and trusted classes.

    Args:
        file: of `find_checkpoint`.
        trust: full names of your own classes that it may name; True trusts any.

    Raises:
        CheckpointError: damaged, not an agent, or not trusted.
    """
    try:
        parts, weights = read_agent(file, trust)
        learner, observation, actions = (instantiate(parts[part], _convert_="all") for part in PARTS)
        if not isinstance(observation, Observation) or not isinstance(actions, ActionKind):
            raise CheckpointError(f"{file} names an observation or actions that are none")
        policy = learner.load(weights)
    except RingyardError as error:
        if str(file) in str(error):
            raise
        raise CheckpointError(f"{file} is not a usable checkpoint: {error}") from error
    except Exception as error:  # a damaged or hostile file ends in anything
        if missing := _missing(error):
            raise CheckpointError(
                f'{file} needs {missing}, which is not installed: pip install "ringyard[agents]"'
            ) from error
        cause = error.__cause__ if isinstance(error.__cause__, RingyardError) else error  # Hydra wraps ours
        said = str(cause) or type(cause).__name__
        raise CheckpointError(f"{file} is not a usable checkpoint: {said}") from error
    return policy, observation, actions


def _missing(error: BaseException | None) -> str | None:
    """The library of `ringyard[agents]` that is not installed and caused an error, if any."""
    while error is not None:
        library = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and library in AGENT_LIBRARIES:
            return library
        error = error.__cause__
    return None


def read_agent(file: Path, trust: Trust = ()) -> tuple[dict[str, Any], Checkpoint]:
    """({group of conf/: plain config} of an agent, its weights).

    Args:
        file: of `save_agent`.
        trust: full names of your own classes that it may name; True trusts any.

    Raises:
        CheckpointError: damaged, no agent, or not trusted.
    """
    saved = Checkpoint.read(file)
    parts, weights = saved.facts.get("parts"), saved.facts.get("weights")
    if not (
        isinstance(parts, dict)
        and all(isinstance(parts.get(part), dict) for part in PARTS)
        and isinstance(weights, dict)
    ):
        raise CheckpointError(f"{file} is no agent; give an {AGENT} or its run folder")
    return checked_parts(update_names(parts), trust, file), Checkpoint(saved.arrays, weights)


def checked_parts(parts: Any, trust: Trust, file: Path) -> dict[str, Any]:
    """The parts of a config that make an agent, after a check of the classes that they name.

    Args:
        parts: {group of conf/: plain config}, among others.
        trust: full names of your own classes that they may name; True trusts any.
        file: they are from.

    Raises:
        CheckpointError: not trusted, or they choose further configs.
    """
    for part, groups in PARTS.items():
        if "defaults" in parts[part]:  # Hydra's word for configs that are chosen besides
            raise CheckpointError(f"{file} would choose other configs by its {part}; expected none")
        check_classes(parts[part], groups, trust, str(file))
    return {part: parts[part] for part in PARTS}
