"""Files of a training run: checkpoints and curves, from which it can be resumed at any time."""

import csv
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter, summary

from ringyard.errors import CheckpointError
from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.agent import act
from ringyard_agents.learning.agent_file import AGENT, LAST, save_agent
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.evaluation import Evaluation
from ringyard_agents.learning.learner import Learner, Policy
from ringyard_agents.report.learning_curves import draw_learning_curves
from ringyard_agents.report.tensorboard import add_images, record_text
from ringyard_agents.runs.atomic_write import atomic_write
from ringyard_agents.runs.run_index import find_runs

_SUMMARY = "training.json"
_STEP = "decisions"

#: far beyond the weights of any network that has learnt something
_LARGEST_WEIGHT = 1e6

#: settings that do not change the result of a run
_NO_SETTINGS = ("name", "overwrite", "plots", "save_minutes", "trust", "num_threads")


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
    """Remove a training run's checkpoints and summary, before another begins in its folder."""
    for name in (LAST, AGENT, _SUMMARY):
        (folder / name).unlink(missing_ok=True)


class _ScalarLog:
    """Values by decisions learnt from, in a folder's TensorBoard events and its progress.csv.

    Args:
        folder: for both; made if missing.
        after: decisions of the resumed run, after which earlier rows are dropped. None for a new run, which
            replaces earlier ones.

    Attributes:
        events: the TensorBoard writer.
    """

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
        """Add {curve: value} to the row of a number of decisions."""
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


class TrainingRun:
    """Curves, evaluations and checkpoints of a run, and calls of its callbacks.

    The state between two rounds of learning is written at every evaluation, every `save_minutes`, and when
    the run ends in any way: `last.safetensors` to resume from, `training.json` to read. `agent.safetensors`
    is written whenever an evaluation is the best so far.

    Args:
        folder: of the run.
        learner: has begun.
        evaluation: of the learner.
        parts: configs of the agent, see `agent_file.parts_of`.
        save_minutes: between saves.
        going_on: whether the folder has curves and checkpoints of this run, which is resumed.
        callbacks: of the user, see `callbacks.TrainingCallback`.

    Attributes:
        stopped_by: name of the callback that stops the training, or None.
    """

    def __init__(
        self,
        folder: Path,
        learner: Learner,
        evaluation: Evaluation,
        parts: dict[str, Any],
        save_minutes: float,
        going_on: bool,
        callbacks: Sequence[Any],
    ) -> None:
        self.folder = folder
        self.learner = learner
        self.evaluation = evaluation
        self.stopped_by: str | None = None
        self._parts, self._callbacks = parts, callbacks
        self._save_seconds, self._saved_at = 60.0 * save_minutes, time.monotonic()
        self._curves = _ScalarLog(folder / "tensorboard", learner.decisions if going_on else None)
        _write_beginning(self._curves.events, folder, evaluation.metric)
        self._note()
        for one in callbacks:
            one.on_training_start(self)
        if not going_on:
            _write_settings(self._curves.events, HydraConfig.get().overrides.task)
            self.save()  # an interruption while a teacher is cloned begins there

    def between_rounds(self, measured: Mapping[str, float]) -> None:
        """Write the curves of a round; evaluate and save when due."""
        self._keep(measured, evaluate=self.learner.decisions >= self.evaluation.next)

    def finish(self) -> None:
        """Evaluate the final agent."""
        self._keep({}, evaluate=self.learner.decisions != self.evaluation.evaluated)

    def draw(self) -> list[Path]:
        """Draw the learning curve; write it, the results and a schedule into TensorBoard.

        The schedule is that of the current agent on the first evaluation workload.
        """
        files = draw_learning_curves(find_runs([str(self.folder)])[0], self.folder)
        world = next(iter(self.evaluation.worlds.values()))
        _write_end(self._curves.events, self._summary(), files, _gantt(self.learner.policy, world))
        return files

    @property
    def diverged(self) -> bool:
        """Whether weights of the network are not finite, or far too large."""
        weights = self.learner.weights().arrays.values()
        return not all((np.abs(array) < _LARGEST_WEIGHT).all() for array in weights)

    def _keep(self, measured: Mapping[str, float], evaluate: bool) -> None:
        curves = dict(measured)
        if evaluate:
            if self.evaluation.evaluate():
                save_agent(self.learner.weights(), self._parts, self.folder / AGENT)
                self._written(AGENT)
            curves |= self.evaluation.curves
            for one in self._callbacks:
                if one.on_evaluation({**self.evaluation.curves, _STEP: float(self.learner.decisions)}):
                    self.stopped_by = type(one).__name__
        self._curves.add(self.learner.decisions, curves)
        self._note()
        if evaluate or time.monotonic() - self._saved_at > self._save_seconds:
            self.save()

    def _note(self) -> None:
        """Copy the state between two rounds, from which a run can be resumed."""
        state = self.learner.state()
        facts = {"learner": dict(state.facts), "evaluation": self.evaluation.state()}
        self._noted = Checkpoint(state.arrays, facts), self._summary()

    def _summary(self) -> dict[str, Any]:
        evaluation, constraint = self.evaluation, self.evaluation.constraint
        found = {
            "decisions": self.learner.decisions,
            "metric": evaluation.metric,
            "best": _finite(evaluation.best),
            "last": _finite(evaluation.latest),
            "baselines": dict(evaluation.baselines),
        }
        if constraint is not None:
            bounds = {"metric": constraint.metric, "most": dict(constraint.most)}
            found["constraint"] = bounds | {"best_used": _finite(evaluation.best_used)}
        return found

    def save(self) -> None:
        """Write the state after the last round."""
        last, found = self._noted
        self._curves.flush()
        last.write(self.folder / LAST)
        with atomic_write(self.folder / _SUMMARY) as partial:
            partial.write_text(json.dumps(found, indent=2) + "\n")
        self._saved_at = time.monotonic()
        self._written(LAST)

    def _written(self, name: str) -> None:
        """Call the callbacks for a file."""
        for one in self._callbacks:
            one.on_checkpoint(self.folder / name)

    def close(self) -> None:
        """Save for the last time."""
        self.save()
        self._curves.events.close()
        for one in self._callbacks:
            one.on_training_end()


def _finite(value: float) -> float | None:
    """The value, or None if it is not finite, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def _write_beginning(writer: SummaryWriter, folder: Path, metric: str) -> None:
    """Write the command with its surroundings as text, and the charts of the page CUSTOM SCALARS."""
    writer.add_text("run", record_text(folder))
    charts = {
        f"{metric} of the agent and of schedulers, by decisions": [f"^eval/{metric}$", "^baselines/.*$"],
        f"{metric} of the agent / of schedulers, by decisions": [f"^eval/{metric}_ratio_to_.*$"],
    }
    layout = {title: ["Multiline", tags] for title, tags in charts.items()}
    writer.add_custom_scalars({"evaluation": layout})


def _write_settings(writer: SummaryWriter, words: Sequence[str]) -> None:
    """Write the run's own settings for the page HPARAMS, which finds the metrics among the curves."""
    given = (word.lstrip("+").partition("=") for word in words)
    settings = {name: _number(value) for name, _, value in given if name not in _NO_SETTINGS}
    if settings:
        untyped: Any = summary
        _, begin, _ = untyped.hparams(settings, {})  # of the run alone: TensorBoard itself finds what differs
        file: Any = writer.file_writer
        file.add_summary(begin)


def _number(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def _write_end(
    writer: SummaryWriter,
    reached: Mapping[str, Any],
    images: Sequence[Path],
    schedule: NDArray[np.uint8] | None,
) -> None:
    """Write the results of training.json as a table, PNG files and pixels of a schedule as images."""
    metric, best = reached["metric"], reached["best"]
    rows = [("the best agent", best), *reached["baselines"].items()]
    lines = [f"| | {metric} | best agent / it |", "|---|---:|---:|"]
    lines += [f"| {name} | {value:,.6g} | {best / value if value else np.nan:.3f} |" for name, value in rows]
    writer.add_text("result", "\n".join(lines), reached[_STEP])
    add_images(writer, images, reached[_STEP])
    if schedule is not None:
        writer.add_image("schedule/gantt", schedule, reached[_STEP], dataformats="HWC")


def _gantt(policy: Policy, setting: EnvConfig) -> NDArray[np.uint8] | None:
    """[height, width, 3] pixels: the jobs on each GPU while a policy plays the first workload."""
    env = ClusterEnv(setting, render_mode="rgb_array")
    observation, info = env.reset(options={"workload": 0})
    over = False
    while not over:
        observation, _, ended, truncated, info = env.step(act(policy, observation, info["action_mask"]))
        over = ended or truncated
    image = env.render()
    env.close()
    return image
