"""Registration of the Gymnasium ids: `ringyard/Cluster-v0` and those in `conf/experiment`."""

from gymnasium.envs.registration import register, registry

from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError

_KEY = "environment_id:"
_BENCHMARK = "benchmark: true"


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


def form_arguments() -> dict[str, dict[str, str]]:
    """{id: arguments of `ClusterEnv`}: `NAME-FORM-v0` of each benchmark and each yaml in `conf/form`."""
    forms = sorted(file.stem for file in (config_folder() / "form").glob("*.yaml"))
    found = {}
    for name, experiment in experiment_ids().items():
        text = (config_folder() / "experiment" / f"{experiment}.yaml").read_text()
        if _BENCHMARK in text.splitlines():
            base = name.rpartition("-v")[0]
            for form in forms:
                found[f"{base}-{form.capitalize()}-v0"] = {"experiment": experiment, "form": form}
    return found


def register_environments() -> None:
    """Register all ids with Gymnasium, once."""
    if "ringyard/Cluster-v0" in registry:
        return
    experiments = {name: {"experiment": one} for name, one in experiment_ids().items()}
    for name, arguments in {"ringyard/Cluster-v0": {}, **experiments, **form_arguments()}.items():
        register(
            id=name,
            entry_point="ringyard.mdp.env:ClusterEnv",
            vector_entry_point="ringyard.mdp.vector:ClusterVectorEnv",
            kwargs=arguments,
        )
