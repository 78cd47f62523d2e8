"""The environments' ids."""

from gymnasium.envs.registration import register, registry

__all__ = ["register_environments"]


def register_environments() -> None:
    """Register `ringyard/Cluster-v0`, once."""
    if "ringyard/Cluster-v0" not in registry:
        register(
            id="ringyard/Cluster-v0",
            entry_point="ringyard.mdp.env:ClusterEnv",
            vector_entry_point="ringyard.mdp.vector:ClusterVectorEnv",
        )
