"""What TensorBoard shows of a training run: scalars (also as a CSV), settings, results, plots, a schedule."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter, summary

from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.learner import Policy
from ringyard_agents.report.tensorboard import add_images, record_text
from ringyard_agents.runs.atomic_write import atomic_write

__all__ = ["ScalarLog", "gantt", "tell_beginning", "tell_end", "tell_settings"]


_STEP = "decisions"


class ScalarLog:
    """Values by decisions learnt from, in a folder's TensorBoard events and its progress.csv.

    Args:
        folder: for both; made if missing.
        after: a run goes on from this many decisions: later rows are of a future that was lost, and go.
            None: a new run, whatever is there goes.

    Attributes:
        events: the writer, for what is no curve.
    """

    def __init__(self, folder: Path, after: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "progress.csv"
        self._rows: list[dict[str, str]] = []
        self._names = [_STEP]
        if after is None:
            for old in folder.glob("events.out.tfevents.*"):
                old.unlink()
        else:
            rows = (row for row in self._written() if row.get(_STEP, "").isdigit())
            self._rows = [row for row in rows if int(row[_STEP]) <= after]
            self._names = list(dict.fromkeys([_STEP, *(name for row in self._rows for name in row)]))
        self._rewrite()
        self.events = SummaryWriter(str(folder), purge_step=None if after is None else after + 1)

    def _written(self) -> list[dict[str, str]]:
        """The rows of the file; a last one that was cut short is none."""
        if not self._file.is_file():
            return []
        with self._file.open(newline="") as stream:
            lines = [line for line in stream if line.endswith("\n")]
        rows = csv.DictReader(lines)
        return [{name: value for name, value in row.items() if value} for row in rows]

    def _rewrite(self) -> None:
        with atomic_write(self._file) as partial, partial.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, self._names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self._rows)

    def add(self, decisions: int, values: Mapping[str, float]) -> None:
        """Values of one row, in which there may be some already; nothing if there are none."""
        if not values:
            return
        row = {_STEP: str(decisions), **{name: repr(float(value)) for name, value in values.items()}}
        again = bool(self._rows) and self._rows[-1][_STEP] == row[_STEP]
        self._rows[-1:] = [self._rows[-1] | row] if again else [*self._rows[-1:], row]
        new = [name for name in row if name not in self._names]
        self._names += new
        if new or again:
            self._rewrite()
        else:
            with self._file.open("a", newline="") as stream:
                csv.DictWriter(stream, self._names, lineterminator="\n").writerow(row)
        for name, value in values.items():
            self.events.add_scalar(name, value, decisions)

    def flush(self) -> None:
        """Hand all of it to the file system."""
        self.events.flush()

    def close(self) -> None:
        """No more rows."""
        self.events.close()


#: words of a command line that make no other run
_NO_SETTINGS = ("name", "overwrite", "plots", "save_minutes", "trust", "num_threads")


def tell_beginning(writer: SummaryWriter, folder: Path, metric: str) -> None:
    """The command with its surroundings as text, and the charts of the page CUSTOM SCALARS.

    Args:
        writer: of the run.
        folder: of the run; has its run.json.
        metric: that evaluations measure.
    """
    writer.add_text("run", record_text(folder))
    writer.add_custom_scalars(
        {
            "evaluation": {
                f"{metric} of the agent and of schedulers, by decisions": [
                    "Multiline",
                    [f"^eval/{metric}$", "^baselines/.*$"],
                ],
                f"{metric} of the agent / of schedulers, by decisions": [
                    "Multiline",
                    [f"^eval/{metric}_ratio_to_.*$"],
                ],
            }
        }
    )


def tell_settings(writer: SummaryWriter, words: Sequence[str]) -> None:
    """The run's own settings for the page HPARAMS, which finds the metrics among the curves.

    Args:
        writer: of the run.
        words: overrides as Hydra gives them to this run, or to this job of a sweep.
    """
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


def tell_end(
    writer: SummaryWriter,
    reached: Mapping[str, Any],
    images: Sequence[Path],
    schedule: NDArray[np.uint8] | None,
) -> None:
    """What was reached as a table, and as images plots and a schedule.

    Args:
        writer: of the run.
        reached: as in training.json.
        images: PNG files.
        schedule: [height, width, 3] pixels.
    """
    metric, best = reached["metric"], reached["best"]
    rows = [("the best agent", best), *reached["baselines"].items()]
    lines = [f"| | {metric} | best agent / it |", "|---|---:|---:|"]
    lines += [f"| {name} | {value:,.6g} | {best / value if value else np.nan:.3f} |" for name, value in rows]
    writer.add_text("result", "\n".join(lines), reached["decisions"])
    add_images(writer, images, reached["decisions"])
    if schedule is not None:
        writer.add_image("schedule/gantt", schedule, reached["decisions"], dataformats="HWC")


def gantt(policy: Policy, setting: EnvConfig, workload: int = 0) -> NDArray[np.uint8] | None:
    """[height, width, 3] pixels: who held which GPUs when a policy played a workload.

    Args:
        policy: of a learner.
        setting: as the learner reads it.
        workload: its number.
    """
    env = ClusterEnv(setting, render_mode="rgb_array")
    observation, info = env.reset(options={"workload": workload})
    over = False
    while not over:
        several = (
            {name: block[None] for name, block in observation.items()}
            if isinstance(observation, Mapping)
            else observation[None]
        )
        actions = policy.act(several, np.asarray(info["action_mask"])[None].astype(np.bool_))
        observation, _, ended, truncated, info = env.step(actions[0])
        over = ended or truncated
    image = env.render()
    env.close()
    return image
