"""Errors and warnings of Ringyard. `except RingyardError` catches all of its errors."""


class RingyardError(ValueError):
    """Base class of all errors. The message names what is wrong, its value and what was expected."""


class ConfigurationError(RingyardError):
    """A parameter is unknown, out of range or contradicts another."""


class WorkloadError(RingyardError):
    """A job table cannot be simulated."""


class PlacementError(RingyardError):
    """An allocation has GPUs that are busy, do not exist, or are not as many as the job needs."""


class SchedulerError(RingyardError):
    """A scheduler leaves jobs waiting forever, or cannot schedule a workload."""


class ObservabilityError(SchedulerError):
    """A scheduler reads what its declared `Observability` does not show."""


class ActionError(RingyardError):
    """An action is outside of the action space, or masked."""


class EpisodeError(RingyardError):
    """A step is taken before `reset`, after the end of an episode, or after `close`."""


class PluginError(RingyardError):
    """A function of the user (placement rule, performance model, observation, key, ...) breaks its contract.

    The message names the function, the job, what it returned and what was expected. The simulation in which
    it happened cannot go on. The process and other simulations can.
    """


class CheckpointError(RingyardError):
    """A checkpoint is missing, damaged or made for another policy."""


class ConfigurationWarning(UserWarning):
    """A setting has no effect on what a command runs. The message says which and why."""


class WorkloadWarning(UserWarning):
    """A trace reader left rows out or made an assumption. The message says how many and why."""
