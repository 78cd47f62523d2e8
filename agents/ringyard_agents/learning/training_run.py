"""What a training run leaves in its folder, so that it can be stopped at any time and goes on the same."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ringyard.errors import CheckpointError
from ringyard_agents.learning.agent_file import AGENT, LAST, save_agent
from ringyard_agents.learning.callbacks import TrainingCallback
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.evaluation import Evaluation, ratio
from ringyard_agents.learning.learner import Learner
from ringyard_agents.learning.tensorboard_logging import (
    ScalarLog,
    gantt,
    tell_beginning,
    tell_end,
    tell_settings,
)
from ringyard_agents.report.learning_curves import draw_learning_curves
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.run_index import find_runs

__all__ = ["ProgressBar", "TrainingRun", "read_last", "remove_run"]


class ProgressBar:
    """A progress bar with the latest evaluation; use it in a `with` block.

    Args:
        total: decisions to learn from.
        evaluation: whose result is shown.
        console: where.
    """

    def __init__(self, total: int, evaluation: Evaluation, console: Console) -> None:
        self.evaluation = evaluation
        self._bar = Progress(
            TextColumn("learning"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f} decisions"),
            TextColumn("{task.fields[latest]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
        )
        self._total = total
        self._task = self._bar.add_task("learning", total=total, latest="")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._bar.stop()

    def show(self) -> None:
        """Show how far learning is."""
        found = self.evaluation
        ratios = [f"{ratio(found.latest, value):.3f} x {name}" for name, value in found.baselines.items()]
        self._bar.update(
            self._task,
            completed=min(found.learner.decisions, self._total),
            latest=f"{found.metric} " + ", ".join(ratios),
        )


_SUMMARY = "training.json"

#: no network that has learnt something comes near
_LARGEST_WEIGHT = 1e6


def read_last(folder: Path) -> tuple[Checkpoint, Mapping[str, Any]]:
    """(state of the learner, state of the evaluation) of an interrupted or finished run.

    Raises:
        CheckpointError: there is none, or it or the best agent so far is missing or damaged.
    """
    file = folder / LAST
    saved = Checkpoint.read(file)
    if set(saved.facts) != {"learner", "evaluation"}:
        raise CheckpointError(f"{file} is not what a training run saves; it cannot go on from there")
    if math.isfinite(saved.facts["evaluation"]["best"]):
        Checkpoint.read(folder / AGENT)  # only a better one replaces it: it has to be there
    return Checkpoint(saved.arrays, saved.facts["learner"]), saved.facts["evaluation"]


def remove_run(folder: Path) -> None:
    """Remove what a training run has saved, before another begins in its folder."""
    for name in (LAST, AGENT, _SUMMARY):
        (folder / name).unlink(missing_ok=True)


class TrainingRun:
    """Curves, evaluations and checkpoints of a run, and the callbacks that are told of them.

    Between rounds of learning its state is noted. It is written at every evaluation, every `save_minutes`,
    and when the run ends in any way: `last.safetensors` to go on from, `training.json` to read.
    `agent.safetensors` is written whenever an evaluation is the best so far.

    Args:
        folder: of the run.
        learner: who learns; it has begun.
        evaluation: says how well.
        parts: what the agent is made of besides weights, see `agent_file.parts_of`.
        save_minutes: between saves.
        going_on: the folder's curves and checkpoints are of the same run.
        callbacks: of the user.

    Attributes:
        stopped_by: class of a callback that wants the training to stop; None: none does.
    """

    def __init__(
        self,
        folder: Path,
        learner: Learner,
        evaluation: Evaluation,
        parts: dict[str, Any],
        save_minutes: float,
        going_on: bool,
        callbacks: Sequence[TrainingCallback] = (),
    ) -> None:
        self.folder = folder
        self.learner = learner
        self.evaluation = evaluation
        self.stopped_by: str | None = None
        self._parts, self._callbacks = parts, callbacks
        self._save_seconds, self._saved_at = 60.0 * save_minutes, time.monotonic()
        self._curves = ScalarLog(folder / "tensorboard", learner.decisions if going_on else None)
        tell_beginning(self._curves.events, folder, evaluation.metric)
        self._note()
        for one in callbacks:
            one.on_training_start(self)
        if not going_on:
            tell_settings(self._curves.events, HydraConfig.get().overrides.task)
            self.save()  # an interruption while a teacher is cloned begins there

    def between_rounds(self, measured: Mapping[str, float]) -> None:
        """Between rounds: write the curves, evaluate and save if it is time."""
        self._keep(measured, evaluate=self.evaluation.due)

    def finish(self) -> None:
        """Evaluate what has been learnt in the end."""
        self._keep({}, evaluate=not self.evaluation.up_to_date)

    def draw(self) -> list[Path]:
        """Write the learning curve as an image, and it, the results and a schedule into TensorBoard.

        The schedule is of the agent as it is now, on the first evaluation workload.
        """
        files = draw_learning_curves(find_runs([str(self.folder)]).trained, self.folder)
        world = next(iter(self.evaluation.worlds.values()))
        tell_end(self._curves.events, self._summary(), files, gantt(self.learner.policy, world))
        return files

    @property
    def diverged(self) -> bool:
        """The network's weights are no numbers any more, or so large that its answers are none."""
        weights = self.learner.weights().arrays.values()
        return not all((np.abs(array) < _LARGEST_WEIGHT).all() for array in weights)

    def _keep(self, measured: Mapping[str, float], evaluate: bool) -> None:
        if evaluate and self.evaluation.evaluate():
            save_agent(self.learner.weights(), self._parts, self.folder / AGENT)
            self._written(AGENT)
        if evaluate:
            metrics = {**self.evaluation.curves, "decisions": float(self.learner.decisions)}
            for one in self._callbacks:
                if one.on_evaluation(metrics):
                    self.stopped_by = type(one).__name__
        curves = {**measured, **(self.evaluation.curves if evaluate else {})}
        self._curves.add(self.learner.decisions, curves)
        self._note()
        if evaluate or time.monotonic() - self._saved_at > self._save_seconds:
            self.save()

    def _note(self) -> None:
        """Remember how everything is now, between two rounds; in the middle of one nothing could go on."""
        state = self.learner.state()
        facts = {"learner": dict(state.facts), "evaluation": self.evaluation.state()}
        self._noted = Checkpoint(state.arrays, facts), self._summary()

    def _summary(self) -> dict[str, Any]:
        evaluation = self.evaluation
        return {
            "decisions": self.learner.decisions,
            "metric": evaluation.metric,
            "best": _finite(evaluation.best),
            "last": _finite(evaluation.latest),
            "baselines": dict(evaluation.baselines),
            **self._constraint,
        }

    @property
    def _constraint(self) -> dict[str, Any]:
        constraint = self.evaluation.constraint
        if constraint is None:
            return {}
        bounds = {"metric": constraint.metric, "most": dict(constraint.most)}
        return {"constraint": bounds | {"best_used": _finite(self.evaluation.best_used)}}

    def save(self) -> None:
        """Write the state of the last moment between two rounds."""
        last, summary = self._noted
        self._curves.flush()
        last.write(self.folder / LAST)
        with atomic_write(self.folder / _SUMMARY) as partial:
            partial.write_text(json.dumps(summary, indent=2) + "\n")
        self._saved_at = time.monotonic()
        self._written(LAST)

    def _written(self, name: str) -> None:
        """Tell the callbacks of a file."""
        for one in self._callbacks:
            one.on_checkpoint(self.folder / name)

    def close(self) -> None:
        """Save for the last time."""
        self.save()
        self._curves.close()
        for one in self._callbacks:
            one.on_training_end()


def _finite(value: float) -> float | None:
    """The value, None if there is none yet: JSON has no infinity."""
    return value if math.isfinite(value) else None
