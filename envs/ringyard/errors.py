"""Every error Ringyard raises on purpose; catch `RingyardError` to catch them all."""


class RingyardError(ValueError):
    """Base of all errors; its message says what, got, expected and what to do."""


class ConfigurationError(RingyardError):
    """A parameter is out of range, unknown or contradicts another."""


class WorkloadError(RingyardError):
    """A job list cannot be simulated."""


class PlacementError(RingyardError):
    """An allocation names GPUs that are busy, missing or of the wrong number."""


class SchedulerError(RingyardError):
    """A scheduler leaves jobs waiting for ever, or cannot serve a workload."""


class ObservabilityError(SchedulerError):
    """A scheduler looks at what it did not declare to know."""


class ActionError(RingyardError):
    """An action that is none (a fraction, one too many), outside the space, or masked."""


class EpisodeError(RingyardError):
    """A step where no episode is on: before reset, after the end, after close."""


class PluginError(RingyardError):
    """A function plugged in (a placement rule, performance model, observation, key, ...) breaks its promise.

    The message names the function, the job, what it returned and what was expected. The simulation in which
    it happened cannot go on; the process and other simulations can.
    """


class CheckpointError(RingyardError):
    """A checkpoint is missing, damaged or made for another policy."""


class ConfigurationWarning(UserWarning):
    """A command was given settings that change nothing of what it runs; says which and why."""


class WorkloadWarning(UserWarning):
    """A reader left rows of a trace out, or took something for granted; says how many and why."""
