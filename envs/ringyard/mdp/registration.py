"""The environments' ids."""

from gymnasium.envs.registration import register, registry

__all__ = ["PRESET_NAMES", "register_environments"]

#: keys of `ringyard.mdp.presets.PRESETS`, which is imported when one is made
PRESET_NAMES = ("Contention", "Sharing", "CpuGpu", "Elastic", "Full", "Partitioning")


def register_environments() -> None:
    """Register `ringyard/Cluster-v0` and the presets `ringyard/Contention-v0` ..., once."""
    if "ringyard/Cluster-v0" in registry:
        return
    register(
        id="ringyard/Cluster-v0",
        entry_point="ringyard.mdp.env:ClusterEnv",
        vector_entry_point="ringyard.mdp.vector:ClusterVectorEnv",
    )
    for name in PRESET_NAMES:
        register(
            id=f"ringyard/{name}-v0",
            entry_point="ringyard.mdp.presets:make",
            vector_entry_point="ringyard.mdp.presets:make_vector",
            kwargs={"preset": name},
        )
