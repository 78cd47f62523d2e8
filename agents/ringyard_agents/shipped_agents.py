"""Pretrained agents, `zoo:NAME`: those of the package and those in folders that RINGYARD_CONF names.

mine/zoo/NAME.safetensors replaces a pretrained agent of that name if its recipe mine/zoo/NAME.yaml is there.
"""

from pathlib import Path

from ringyard.checks import shown, suggest
from ringyard.config_folder import user_config_folders
from ringyard.errors import CheckpointError
from ringyard_agents.config.safe_load import read_plain

ZOO_PREFIX = "zoo:"  #: prefix of the names of pretrained agents


def zoo_folders() -> list[Path]:
    """Return the folders of weights and records: that of the package, then those of RINGYARD_CONF."""
    return [Path(__file__).parent / "zoo", *(folder / "zoo" for folder in reversed(user_config_folders()))]


def shipped_agents() -> dict[str, Path]:
    """Return {name: file of the weights} of all pretrained agents, in order of name.

    A user's agent of the name of a pretrained one, without a recipe next to it, is a CheckpointError.
    """
    shipped, *own = ({file.stem: file for file in folder.glob("*.safetensors")} for folder in zoo_folders())
    files = dict(shipped)
    for agents in own:
        for name, file in agents.items():
            if name in shipped and not file.with_suffix(".yaml").is_file():
                raise CheckpointError(
                    f"{file} has the name of a pretrained agent; expected another name, or its recipe"
                    f" {name}.yaml next to it, which replaces that agent"
                )
        files.update(agents)
    return dict(sorted(files.items()))


def agents_evaluated_in(experiment: str) -> list[str]:
    """Return `zoo:NAME` of agents with results of an experiment in their record, in order of name."""
    records = {name: file.with_suffix(".json") for name, file in shipped_agents().items()}
    return [ZOO_PREFIX + name for name, one in records.items() if experiment in _environments_of(one)]


def _environments_of(record: Path) -> list[str]:
    """Return the labels of the environments in a record, none if there is no such file."""
    try:
        environments = read_plain(record)["worlds"] if record.is_file() else []
        return [str(environment["label"]) for environment in environments]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{record} is not the record of an agent; expected a file that `python -m tools.agents` writes:"
            f" {shown(error)}"
        ) from error


def agent_path(checkpoint: str) -> Path:
    """Return the file of `zoo:NAME`, which must exist, or the given path, which need not."""
    if not checkpoint.startswith(ZOO_PREFIX):
        return Path(checkpoint).expanduser()
    agents = shipped_agents()
    name = checkpoint.removeprefix(ZOO_PREFIX)
    if name not in agents:
        known = suggest(checkpoint, [ZOO_PREFIX + one for one in agents])
        raise CheckpointError(f"there is no agent {checkpoint!r} in the zoo; expected {known}")
    return agents[name]
