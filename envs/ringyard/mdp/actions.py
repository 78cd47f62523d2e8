"""What one action does: start a visible job by a placement rule, stop a running one, or wait."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ringyard.errors import ConfigurationError
from ringyard.placement import PlacementRule, least_contended, pack

__all__ = ["Actions"]


@dataclass(frozen=True)
class Actions:
    """The action space: `Discrete(num_waiting x templates [+ num_running] + 1)`.

    Action i * T + t starts visible job i by template t; with `preemptive`, action V * T + r stops
    running slot r; the last action waits for the next decision point.

    Attributes:
        num_waiting: V, visible waiting jobs.
        num_running: R, visible running jobs.
        templates: T placement rules.
        preemptive: offer stop actions.
        on_invalid: what a masked action does: "raise" an ActionError, or "wait" (or the first valid
            action where waiting is masked too) and set info["invalid_action"].
        queue_order: which waiting jobs are visible first: by "submit" time, "duration", "work" (GPU
            seconds) or "gpus"; ties by row. "duration" and "work" use durations.
    """

    num_waiting: int = 16
    num_running: int = 16
    templates: Sequence[PlacementRule] = field(default_factory=lambda: (pack(), least_contended()))
    preemptive: bool = False
    on_invalid: Literal["raise", "wait"] = "wait"
    queue_order: Literal["submit", "duration", "work", "gpus"] = "submit"

    def __post_init__(self) -> None:
        if self.num_waiting < 1 or self.num_running < 1:
            raise ConfigurationError(
                f"action.num_waiting and num_running are {self.num_waiting} and {self.num_running};"
                " expected 1 or more"
            )
        if len(self.templates) < 1:
            raise ConfigurationError("action.templates is empty; expected 1 or more placement rules")
        if self.on_invalid not in ("raise", "wait"):
            raise ConfigurationError(f"action.on_invalid is {self.on_invalid!r}; expected 'raise' or 'wait'")
        if self.queue_order not in ("submit", "duration", "work", "gpus"):
            raise ConfigurationError(
                f"action.queue_order is {self.queue_order!r}; expected submit, duration, work or gpus"
            )

    @property
    def num_starts(self) -> int:
        """V x T, the start actions."""
        return self.num_waiting * len(self.templates)

    @property
    def num_actions(self) -> int:
        """Size of the action space."""
        return self.num_starts + (self.num_running if self.preemptive else 0) + 1

    @property
    def wait(self) -> int:
        """The action that waits."""
        return self.num_actions - 1
