"""Curves of training: TensorBoard events and a CSV that go on where an interrupted run was saved."""

import csv
from collections.abc import Mapping
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from ringyard_agents.runs.files import atomic_write

__all__ = ["Curves"]

_STEP = "decisions"


class Curves:
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
