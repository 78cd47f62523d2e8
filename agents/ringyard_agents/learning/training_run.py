"""Files of a training run: checkpoints to resume from, and scalars for TensorBoard."""

import csv
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from torch.utils.tensorboard import SummaryWriter, summary

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard_agents.config.safe_load import check_plain
from ringyard_agents.learning.agent_file import AGENT_FILE, LAST_FILE, save_agent
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.evaluation import Evaluation
from ringyard_agents.learning.learner import EnvConfigs, Learner
from ringyard_agents.report.plots import draw_learning_curves
from ringyard_agents.report.tables import markdown
from ringyard_agents.report.tensorboard import add_images, record_text
from ringyard_agents.runs.atomic_write import atomic_write, write_json
from ringyard_agents.runs.run_index import find_runs
from ringyard_agents.runs.sweep_table import override_values

SUMMARY_FILE = "training.json"
_STEP = "decisions"

_LARGEST_WEIGHT = 1e6  #: absolute weight above which training has diverged

#: settings that do not change the result of a run, left out of the page HPARAMS
_NOT_HYPERPARAMETERS = ("name", "overwrite", "plots", "save_minutes", "trust", "num_threads")


def read_last(folder: Path) -> tuple[Checkpoint, Mapping[str, Any]]:
    """Return (state of the learner, state of the evaluation) of an interrupted or finished run."""
    file = folder / LAST_FILE
    saved = Checkpoint.read(file)
    try:
        check_plain(saved.metadata)
        learner, evaluation = dict(saved.metadata["learner"]), saved.metadata["evaluation"]
        finite = {name: math.isfinite(value) for name, value in evaluation.items()}  # all are numbers
        has_agent = finite["best"]
    except (ConfigurationError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{file} is not the saved state of a training run: {error!r}") from error
    if has_agent:
        Checkpoint.read(folder / AGENT_FILE)  # must exist, because only a better agent replaces it
    return Checkpoint(saved.arrays, learner), evaluation


def set_up_learner(
    learner: Learner, environments: EnvConfigs, seed: int, saved: Checkpoint | None, folder: Path
) -> None:
    """Set up a learner from `seed`, or as `saved` in the `folder` of a run. See `Learner.setup`."""
    try:
        learner.setup(environments, seed, saved)
    except Exception as error:  # a damaged or hostile file can raise anything
        if saved is None:
            raise
        raise CheckpointError(f"cannot resume from {folder / LAST_FILE}: {error}") from error


class _ScalarLog:
    """Scalars by decisions in `events` and progress.csv, without those `after` a run resumes (None: new)."""

    def __init__(self, folder: Path, after: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "progress.csv"
        self._rows: dict[int, dict[str, str]] = {}
        if after is None:
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
        elif self._file.is_file():
            with self._file.open(newline="") as stream:
                for row in csv.DictReader(stream):
                    step = row.pop(_STEP, "")
                    if step.isdigit() and int(step) <= after:
                        self._rows[int(step)] = {name: value for name, value in row.items() if value}
        self.events = SummaryWriter(str(folder), purge_step=None if after is None else after + 1)

    def add(self, decisions: int, values: Mapping[str, float]) -> None:
        """Add `values` {TensorBoard tag: value} to the row of a number of `decisions`."""
        if not values:
            return
        row = self._rows.setdefault(decisions, {})
        for name, value in values.items():
            row[name] = repr(float(value))
            self.events.add_scalar(name, value, decisions)

    def flush(self) -> None:
        """Write all rows and events to disk."""
        names = dict.fromkeys(name for row in self._rows.values() for name in row)
        with atomic_write(self._file) as partial, partial.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [_STEP, *names], lineterminator="\n")
            writer.writeheader()
            writer.writerows({_STEP: str(step), **row} for step, row in self._rows.items())
        self.events.flush()


@dataclass(eq=False)
class TrainingRun:
    """Writes the scalars and checkpoints of a run, evaluates its learner and calls its callbacks.

    The state between two rounds of learning is saved at every evaluation, every `save_minutes`, and however
    the run ends: `last.safetensors` to resume from, `training.json` to read. `agent.safetensors` is written
    whenever an evaluation is the best so far.

    Order of calls: `between_rounds` as the callback of `Learner.learn`, then `finish` and `draw` unless
    learning was interrupted, then `close` in any case. The learner has been set up. `parts` are configs of
    the agent, see `agent_file.agent_parts`. `stopped_by` is the class name of the callback that ends the
    training.
    """

    folder: Path
    learner: Learner
    evaluation: Evaluation
    parts: dict[str, Any]
    save_minutes: float
    resumed: bool
    callbacks: Sequence[Any]

    def __post_init__(self) -> None:
        self.stopped_by: str | None = None
        self._saved_at = time.monotonic()
        begin = self.learner.decisions if self.resumed else None
        self._scalars = _ScalarLog(self.folder / "tensorboard", begin)
        events, metric = self._scalars.events, self.evaluation.metric
        events.add_text("run", record_text(self.folder))
        charts = {  # of the page CUSTOM SCALARS
            f"{metric} of the agent and of the baselines, by decisions": [
                f"^eval/{metric}$",
                "^baselines/.*$",
            ],
            f"{metric} of the agent / that of a baseline, by decisions": [f"^eval/{metric}_ratio_to_.*$"],
        }
        layout = {title: ["Multiline", tags] for title, tags in charts.items()}
        events.add_custom_scalars({"evaluation": layout})
        self._copy_state()
        for callback in self.callbacks:
            callback.on_training_start(self)
        if not self.resumed:
            _write_hyperparameters(self._scalars.events, HydraConfig.get().overrides.task)
            self.save()  # so that a run can be resumed that is interrupted while it imitates a teacher

    def between_rounds(self, scalars: Mapping[str, float]) -> None:
        """Write {TensorBoard tag: value} of a round. Evaluate and save when due."""
        self._record(scalars, evaluate=self.learner.decisions >= self.evaluation.next_evaluation)

    def finish(self) -> None:
        """Evaluate the final agent, unless it was evaluated already."""
        self._record({}, evaluate=self.learner.decisions != self.evaluation.last_evaluation)

    def draw(self) -> list[Path]:
        """Write the learning curve and results, and return the curve's files."""
        files = draw_learning_curves(find_runs([str(self.folder)])[0], self.folder)
        writer, decisions = self._scalars.events, self.learner.decisions
        writer.add_text("result", markdown(self.evaluation.rows), decisions)
        add_images(writer, files, decisions)
        return files

    @property
    def diverged(self) -> bool:
        """Whether a weight of the network is not finite or exceeds `_LARGEST_WEIGHT`."""
        weights = self.learner.weights().arrays.values()
        return not all((np.abs(array) < _LARGEST_WEIGHT).all() for array in weights)

    def _record(self, measured: Mapping[str, float], evaluate: bool) -> None:
        scalars = dict(measured)
        if evaluate:
            if self.evaluation.evaluate():
                save_agent(self.learner.weights(), self.parts, self.folder / AGENT_FILE)
                self._call_on_checkpoint(AGENT_FILE)
            scalars |= self.evaluation.scalars
            for callback in self.callbacks:
                if callback.on_evaluation({**self.evaluation.scalars, _STEP: float(self.learner.decisions)}):
                    self.stopped_by = type(callback).__name__
        self._scalars.add(self.learner.decisions, scalars)
        self._copy_state()
        if evaluate or time.monotonic() - self._saved_at > 60.0 * self.save_minutes:
            self.save()

    def _copy_state(self) -> None:
        """Copy the state between two rounds, which `save` writes."""
        state = self.learner.state()
        metadata = {"learner": dict(state.metadata), "evaluation": self.evaluation.state()}
        self._state = Checkpoint(state.arrays, metadata), self._summary()

    def _summary(self) -> dict[str, Any]:
        evaluation, constraint = self.evaluation, self.evaluation.constraint
        summary: dict[str, Any] = {
            "decisions": self.learner.decisions,
            "metric": evaluation.metric,
            "best": evaluation.best,
            "last": evaluation.latest,
            "baselines": dict(evaluation.baselines),
        }
        if constraint is not None:
            summary["constraint"] = {"metric": constraint.metric, "bounds": dict(constraint.bounds)}
            summary["constraint"]["best_ratio_to_bound"] = evaluation.best_bound_ratio
        return summary

    def save(self) -> None:
        """Write the state after the last completed round."""
        last, summary = self._state
        self._scalars.flush()
        last.write(self.folder / LAST_FILE)
        write_json(self.folder / SUMMARY_FILE, summary)
        self._saved_at = time.monotonic()
        self._call_on_checkpoint(LAST_FILE)

    def _call_on_checkpoint(self, name: str) -> None:
        for callback in self.callbacks:
            callback.on_checkpoint(self.folder / name)

    def close(self) -> None:
        """Save a last time, close the files and call `on_training_end`."""
        self.save()
        self._scalars.events.close()
        for callback in self.callbacks:
            callback.on_training_end()


def _write_hyperparameters(writer: SummaryWriter, overrides: Sequence[str]) -> None:
    """Write the overrides of the command line to the page HPARAMS, which finds metrics among the scalars."""
    given = override_values(overrides).items()
    settings = {name: value for name, value in given if name not in _NOT_HYPERPARAMETERS}
    if settings:
        untyped: Any = summary
        _, begin, _ = untyped.hparams(settings, {})  # only of this run: TensorBoard compares runs itself
        file: Any = writer.file_writer
        file.add_summary(begin)
