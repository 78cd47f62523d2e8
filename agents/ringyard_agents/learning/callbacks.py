"""Callbacks of a training run. They work with every learner, those of Stable-Baselines3 included."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.utils import instantiate

from ringyard.checks import Positive, checked
from ringyard.errors import ConfigurationError
from ringyard_agents.learning.training_run import TrainingRun


class TrainingCallback:
    """Base class of callbacks. Its methods do nothing until a subclass overrides them.

    Order of calls: `on_training_start` once, then `on_evaluation` and `on_checkpoint` between rounds of
    learning, then `on_training_end` once. A resumed run makes new callbacks, without the state of earlier
    ones. With several processes, only the first process makes and calls them.
    """

    def on_training_start(self, run: TrainingRun) -> None:
        """Handle the start of a run, new or resumed. Called before the first round.

        Args:
            run: has the attributes `folder`, `learner`, which has been set up, and `evaluation`, with the
                name of the metric, the baselines, and the best and the latest value.
        """

    def on_evaluation(self, metrics: Mapping[str, float]) -> bool:
        """Handle the result of an evaluation. Called after every evaluation.

        Args:
            metrics: {TensorBoard tag: value}, such as `eval/mean_jct`, and `decisions`, the number of
                environment steps learnt from.

        Returns:
            True to stop the training.
        """
        return False

    def on_checkpoint(self, path: Path) -> None:
        """Handle a written checkpoint. Called after every write.

        Args:
            path: `agent.safetensors`, the best agent so far, or `last.safetensors`, to resume from.
        """

    def on_training_end(self) -> None:
        """Handle the end of training. Called once it has ended, was stopped or failed, and is saved."""


_METHODS = ("on_training_start", "on_evaluation", "on_checkpoint", "on_training_end")


def build_callbacks(config: Mapping[str, Any]) -> list[TrainingCallback]:
    """Instantiate {name: config with a `_target_`}; each must have the methods of `TrainingCallback`."""
    callbacks: list[TrainingCallback] = []
    for name, settings in config.items():
        callback = instantiate(settings, _convert_="all")
        is_class = isinstance(callback, type)
        missing = [method for method in _METHODS if is_class or not hasattr(callback, method)]
        if missing:
            raise ConfigurationError(
                f"callbacks.{name} is {callback!r}, which lacks {', '.join(missing)}; expected an object with"
                " the methods of ringyard_agents.learning.callbacks.TrainingCallback, which it may inherit"
            )
        callbacks.append(callback)
    return callbacks


@checked("callbacks")
@dataclass
class StopAtTarget(TrainingCallback):
    """Stops training as soon as an evaluation reaches a target."""

    #: largest value of the metric on the evaluation workloads that stops the training, in the unit of the
    #: metric. The run's reward names the metric: mean JCT in seconds for `reward=jct`.
    target: Positive
    _tag: str = field(default="", init=False)

    def on_training_start(self, run: TrainingRun) -> None:
        """Store the TensorBoard tag of the metric."""
        self._tag = f"eval/{run.evaluation.metric}"

    def on_evaluation(self, metrics: Mapping[str, float]) -> bool:
        """Return True once the target is reached."""
        return metrics[self._tag] <= self.target
