"""Hooks into training: one protocol for all learners, ours and those of Stable-Baselines3."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.utils import instantiate

from ringyard.checks import Positive, checked
from ringyard.errors import ConfigurationError
from ringyard_agents.learning.training_run import TrainingRun


class TrainingCallback:
    """Base class of callbacks, whose methods do nothing until a subclass overrides them.

    Callbacks are made anew when a run is resumed. With several processes, only the first calls them.
    """

    def on_training_start(self, run: TrainingRun) -> None:
        """Before the first round, also of a run that goes on.

        Args:
            run: has the attributes `folder`, `learner`, which has been set up, and `evaluation`, with the
                metric's name, the baselines, and the best and latest value.
        """

    def on_evaluation(self, metrics: Mapping[str, float]) -> bool:
        """After every evaluation.

        Args:
            metrics: as TensorBoard shows them, such as `eval/mean_jct`, and `decisions`.

        Returns:
            True to stop the training.
        """
        return False

    def on_checkpoint(self, path: Path) -> None:
        """After `agent.safetensors` (the best so far) or `last.safetensors` (to resume from) is written."""

    def on_training_end(self) -> None:
        """After the training has ended, was stopped or has failed, and everything is saved."""


_METHODS = ("on_training_start", "on_evaluation", "on_checkpoint", "on_training_end")


def callbacks_of(config: Mapping[str, Any]) -> list[TrainingCallback]:
    """The callbacks of a run.

    Args:
        config: {name: config with a `_target_`}.

    Raises:
        ConfigurationError: an object that lacks a method of `TrainingCallback`.
    """
    callbacks: list[TrainingCallback] = []
    for name, given in config.items():
        one = instantiate(given, _convert_="all")
        missing = [method for method in _METHODS if isinstance(one, type) or not hasattr(one, method)]
        if missing:
            raise ConfigurationError(
                f"callbacks.{name} is {one!r}, which lacks {', '.join(missing)}; expected an object with the"
                " methods of ringyard_agents.learning.callbacks.TrainingCallback, which it may inherit"
            )
        callbacks.append(one)
    return callbacks


@checked("callbacks")
@dataclass
class StopAtTarget(TrainingCallback):
    """Stops as soon as an evaluation reaches a target.

    Attributes:
        target: of the metric of the run's reward on the evaluation workloads, less is better.
    """

    target: Positive
    _curve: str = field(default="", init=False)

    def on_training_start(self, run: TrainingRun) -> None:
        """Store the curve of the metric."""
        self._curve = f"eval/{run.evaluation.metric}"

    def on_evaluation(self, metrics: Mapping[str, float]) -> bool:
        """Whether the target is reached."""
        return metrics[self._curve] <= self.target
