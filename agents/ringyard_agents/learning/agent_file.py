"""Files of trained agents: weights, and the configs of their learner, observation and actions."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ringyard.cluster import Cluster
from ringyard.errors import CheckpointError, ConfigurationError, RingyardError
from ringyard.mdp.actions import ActionKind
from ringyard.mdp.observations.observation import Observation
from ringyard_agents.command_line import causes, missing_library
from ringyard_agents.config.compose import plain_groups
from ringyard_agents.config.safe_load import Trust, check_classes, check_plain
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.learner import MAX_SPACE_SIZE, Policy
from ringyard_agents.shipped_agents import agent_path

AGENT_FILE = "agent.safetensors"  #: file in a run folder: the agent that was best on the evaluation workloads

LAST_FILE = "last.safetensors"  #: file in a run folder: the newest state, to resume from

#: largest number of values in the configs and spaces of an agent. Those of Ringyard have under 200
_MAX_VALUES = 2000

#: weights that a network may have beyond those of its file: some are replaced while it is made
_REPLACED_WEIGHTS = 1 << 23

#: {config group of an agent: groups of conf/ that allow its classes}
AGENT_GROUPS = {"agent": ("agent",), "observation": ("observation",), "action": ("action", "placement")}


def agent_parts(config: DictConfig) -> dict[str, Any]:
    """Return {group of `AGENT_GROUPS`: plain config} of a training run's config."""
    return plain_groups(config, AGENT_GROUPS)


def save_agent(weights: Checkpoint, parts: dict[str, Any], file: Path) -> None:
    """Write an agent to `file`: the `weights` of its learner, and its `parts` as of `agent_parts`."""
    Checkpoint(weights.arrays, {"parts": parts, "weights": dict(weights.metadata)}).write(file)


def find_checkpoint(checkpoint: str | None, runs: Path = Path("runs")) -> Path:
    """Return the file of an agent: of a path, run folder or `zoo:NAME`, or the newest under `runs`."""
    if checkpoint is None:
        found = sorted(runs.glob(f"**/{AGENT_FILE}"), key=lambda file: file.stat().st_mtime)
        if not found:
            problem = f"no trained agent under {runs}/"
            raise CheckpointError(f"{problem}; run `ringyard train`, or give scheduler.checkpoint=FILE")
        return found[-1]
    file = agent_path(checkpoint)
    if file.is_dir():
        file = file / AGENT_FILE
    if not file.is_file():
        raise CheckpointError(f"there is no checkpoint {file}; give an {AGENT_FILE}, a run or a model.zip")
    return file


def load_policy(file: Path, trust: Trust = ()) -> tuple[Policy, Observation, ActionKind]:
    """Return (policy, the observation it reads, its actions); classes must be ours, or in `trust`."""
    try:
        parts, weights = read_agent(file, trust)
        learner, observation, actions = (instantiate(parts[group], _convert_="all") for group in AGENT_GROUPS)
        if not isinstance(observation, Observation) or not isinstance(actions, ActionKind):
            raise CheckpointError(f"the `observation` or `action` of {file} has another type")
        if observation.size(Cluster((1,)), actions) + actions.mask_size > MAX_SPACE_SIZE:
            raise CheckpointError(f"its observations and actions have more than {MAX_SPACE_SIZE:,} numbers")
        with _network_no_larger_than(weights):
            policy = learner.load(weights)
    except RingyardError as error:
        if str(file) in str(error):
            raise
        raise CheckpointError(f"{file} is not a usable checkpoint: {error}") from error
    except Exception as error:  # a damaged or hostile file can raise anything
        if reason := next(filter(None, map(missing_library, causes(error))), None):
            raise CheckpointError(f"cannot load {file}, because {reason}") from error
        cause = error.__cause__ if isinstance(error.__cause__, RingyardError) else error  # Hydra wraps ours
        reason = str(cause) or type(cause).__name__
        raise CheckpointError(f"{file} is not a usable checkpoint: {reason}") from error
    return policy, observation, actions


@contextmanager
def _network_no_larger_than(weights: Checkpoint) -> Iterator[None]:
    """Refuse a network with more weights than a file has, before they take memory."""
    left = sum(array.size for array in weights.arrays.values()) + _REPLACED_WEIGHTS

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal left
        left -= 0 if parameter is None else parameter.numel()
        if left < 0:
            raise CheckpointError("its config describes a network with more weights than it has")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def read_agent(file: Path, trust: Trust = ()) -> tuple[dict[str, Any], Checkpoint]:
    """Read ({group of `AGENT_GROUPS`: plain config}, weights for `Learner.load`); see `load_policy`."""
    if file.suffix == ".zip":
        raise CheckpointError(
            f"{file} holds pickles, which run code when they are read; expected an agent of `ringyard train`"
            " (its run folder) or zoo:NAME"
        )
    saved = Checkpoint.read(file)
    parts, weights = saved.metadata.get("parts"), saved.metadata.get("weights")
    if not (
        isinstance(parts, dict)
        and all(isinstance(parts.get(group), dict) for group in AGENT_GROUPS)
        and isinstance(weights, dict)
    ):
        raise CheckpointError(f"{file} is not a trained agent; give an {AGENT_FILE} or its run folder")
    try:
        check_plain([parts, weights], _MAX_VALUES)
    except ConfigurationError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    return validate_agent_parts(parts, trust, file), Checkpoint(saved.arrays, weights)


def validate_agent_parts(parts: Any, trust: Trust, file: Path) -> dict[str, Any]:
    """Check the classes that {group: plain config} of an agent names, before anything is imported.

    Only groups of `AGENT_GROUPS` are returned. A config that would add further configs is refused.
    """
    for group, allowed in AGENT_GROUPS.items():
        if "defaults" in parts[group]:  # Hydra would add the configs that it lists
            raise CheckpointError(f"{file} has `defaults` in its config of {group}; expected none")
        check_classes(parts[group], allowed, trust, str(file))
    return {group: parts[group] for group in AGENT_GROUPS}
