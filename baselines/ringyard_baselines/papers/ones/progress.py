"""What ONES knows of a job's progress: features, their history, and the predictor's interface."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["History", "ProgressPredictor", "SameAgain"]


class ProgressPredictor(Protocol):
    """Predicts how many epochs a job still needs; progress is then Beta(epochs done, that number)."""

    def reset(self, rng: np.random.Generator) -> None:
        """Forget everything."""
        ...

    def fit(
        self, features: NDArray[np.float64], epochs: NDArray[np.float64], progress: NDArray[np.float64]
    ) -> None:
        """Learn from jobs that have finished.

        Args:
            features: [rows, 5] log epoch size, initial loss, epochs done, 1 - loss / initial loss,
            validation metric.
            epochs: [rows] epochs done.
            progress: [rows] their share of all the job's epochs.
        """
        ...

    def beta(self, features: NDArray[np.float64], epochs: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] b of Beta(epochs done, b), at least 1."""
        ...


class SameAgain:
    """Without learning: as many epochs are left as are done."""

    def reset(self, rng: np.random.Generator) -> None:
        """Nothing to forget."""

    def fit(
        self, features: NDArray[np.float64], epochs: NDArray[np.float64], progress: NDArray[np.float64]
    ) -> None:
        """Nothing to learn."""

    def beta(self, features: NDArray[np.float64], epochs: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] the epochs done, at least 1."""
        return np.maximum(epochs, 1.0)


class History:
    """Feature rows of each job, and those of finished jobs with the progress they turned out to be."""

    ROWS_PER_JOB = 40

    def __init__(self) -> None:
        self._open: dict[int, list[NDArray[np.float64]]] = {}
        self.rows: list[NDArray[np.float64]] = []

    def note(self, job: int, row: NDArray[np.float64]) -> None:
        """Keep the features [5] of a running job, once an epoch at most, thinned out as they grow many."""
        rows = self._open.setdefault(job, [])
        if not rows or row[2] >= rows[-1][2] + 1.0:
            rows.append(row)
            if len(rows) > self.ROWS_PER_JOB:
                del rows[1::2]

    def finish(self, job: int, epochs: float) -> None:
        """The job ended after so many epochs: its rows become [6], the last the progress it had made."""
        for row in self._open.pop(job, []):
            self.rows.append(np.append(row, min(row[2] / max(epochs, 1e-9), 1.0)))
