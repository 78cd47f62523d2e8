"""Registration of the Gymnasium ids: `ringyard/Cluster-v0` and those in `conf/experiment`."""

from gymnasium.envs.registration import register, registry

from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError

_KEY = "environment_id:"


def experiment_ids() -> dict[str, str]:
    """{environment id: experiment} by the lines `environment_id: ID`, without the time of parsing yamls."""
    found: dict[str, str] = {}
    files = (config_folder() / "experiment").glob("*.yaml")
    for file in sorted(file for file in files if file.is_file()):
        for line in file.read_text().splitlines():
            if line.startswith(_KEY):
                name = line.removeprefix(_KEY).partition("#")[0].strip().strip("'\"")
                if name not in ("", "null") and found.setdefault(f"ringyard/{name}", file.stem) != file.stem:
                    raise ConfigurationError(
                        f"conf/experiment has {found[f'ringyard/{name}']}.yaml and {file.name}, both with"
                        f" environment_id: {name}; expected ids of their own"
                    )
    return found


def register_environments() -> None:
    """Register all ids with Gymnasium, once."""
    if "ringyard/Cluster-v0" in registry:
        return
    for name, experiment in {"ringyard/Cluster-v0": None, **experiment_ids()}.items():
        register(
            id=name,
            entry_point="ringyard.mdp.env:ClusterEnv",
            vector_entry_point="ringyard.mdp.vector:ClusterVectorEnv",
            kwargs={"experiment": experiment} if experiment else {},
        )
