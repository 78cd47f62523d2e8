"""Registration of the Gymnasium ids: `ringyard/Cluster-v0` and those in `conf/experiment`."""

import re

from gymnasium.envs.registration import register, registry

from ringyard.config_folder import config_folder
from ringyard.errors import ConfigurationError

_KEY = "environment_id:"
_BENCHMARK = "benchmark: true"
_VERSIONED = re.compile(r".*-v\d+").fullmatch


def environment_arguments() -> dict[str, dict[str, str]]:
    """{id: arguments of `ClusterEnv`} by the lines `environment_id: ID`, without the time of parsing yamls.

    An experiment with an id without a version has an id `NAME-FORM-v0` for each yaml in `conf/form` instead.
    With the line `benchmark: true` it has both.
    """
    forms = sorted(file.stem for file in (config_folder() / "form").glob("*.yaml"))
    found: dict[str, dict[str, str]] = {}
    variants: dict[str, dict[str, str]] = {}
    for file in sorted((config_folder() / "experiment").glob("*.yaml")):
        lines = file.read_text().splitlines() if file.is_file() else []
        given = next((line for line in lines if line.startswith(_KEY)), _KEY)
        name = given.removeprefix(_KEY).partition("#")[0].strip(" '\"")
        if name in ("", "null"):
            continue
        made = {"experiment": file.stem}
        if found.setdefault(f"ringyard/{name}", made) != made:
            first = found[f"ringyard/{name}"]["experiment"]
            raise ConfigurationError(
                f"conf/experiment has {first}.yaml and {file.name}, both with environment_id: {name};"
                " expected ids of their own"
            )
        if not _VERSIONED(name) or _BENCHMARK in lines:
            base = re.sub(r"-v\d+$", "", name)
            variants |= {f"ringyard/{base}-{form.capitalize()}-v0": {**made, "form": form} for form in forms}
    return {name: made for name, made in found.items() if _VERSIONED(name)} | variants


def register_environments() -> None:
    """Register all ids with Gymnasium, once."""
    if "ringyard/Cluster-v0" in registry:
        return
    found = {"ringyard/Cluster-v0": {}, **environment_arguments()}
    have_forms = {made["experiment"] for made in found.values() if "form" in made}
    for name, made in found.items():
        replaced = made.get("experiment") in have_forms and "form" not in made
        single, vector = "ringyard.mdp.env:", "ringyard.mdp.vector:"
        if replaced:
            single = vector = "ringyard.mdp.vector:Replaced"
        register(name, f"{single}ClusterEnv", vector_entry_point=f"{vector}ClusterVectorEnv", kwargs=made)
