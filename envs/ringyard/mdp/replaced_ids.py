"""Environments of the ids `ringyard/NAME-v1`, which those of the three forms replace."""

import warnings
from typing import Any

from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.experiments import require_experiment
from ringyard.mdp.vector import ClusterVectorEnv


class _Replaced:
    """Warns that an id will be removed, with a DeprecationWarning."""

    def __init__(self, experiment: str, **arguments: Any) -> None:
        require_experiment(experiment)
        name = "".join(word.capitalize() for word in experiment.split("_"))
        warnings.warn(
            f"ringyard/{name}-v1 will be removed in version 0.3; use ringyard/{name}-Weights-v0, -Jobs-v0 or"
            " -Queue-v0 (docs/forms.md says which to choose)",
            DeprecationWarning,
            stacklevel=3,
        )
        super().__init__(experiment=experiment, **arguments)  # type: ignore[call-arg]


class ReplacedClusterEnv(_Replaced, ClusterEnv):
    """`ClusterEnv` of an id that will be removed."""


class ReplacedClusterVectorEnv(_Replaced, ClusterVectorEnv):
    """`ClusterVectorEnv` of an id that will be removed."""
