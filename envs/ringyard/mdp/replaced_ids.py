"""Environments of the ids `ringyard/NAME-v1`, which those of the three forms replace."""

import warnings
from typing import Any

from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.vector import ClusterVectorEnv


def _warn(experiment: str) -> None:
    name = "".join(word.capitalize() for word in experiment.split("_"))
    warnings.warn(
        f"ringyard/{name}-v1 will be removed in version 0.3; use ringyard/{name}-Weights-v0, -Jobs-v0 or"
        " -Queue-v0 (docs/forms.md says which to choose)",
        DeprecationWarning,
        stacklevel=4,
    )


class ReplacedClusterEnv(ClusterEnv):
    """`ClusterEnv` of an id that will be removed. It warns with a DeprecationWarning."""

    def __init__(self, experiment: str, **arguments: Any) -> None:
        _warn(experiment)
        super().__init__(experiment=experiment, **arguments)


class ReplacedClusterVectorEnv(ClusterVectorEnv):
    """`ClusterVectorEnv` of an id that will be removed. It warns with a DeprecationWarning."""

    def __init__(self, experiment: str, **arguments: Any) -> None:
        _warn(experiment)
        super().__init__(experiment=experiment, **arguments)
