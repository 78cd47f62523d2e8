"""Job columns that are derived from the state, for all jobs of a view or for some of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.learning_curves import EPOCHS, training_loss, validation_metric
from ringyard.state.arrays import State
from ringyard.state.records import JobStatus


class DerivedColumns:
    """Columns of n jobs at a decision point, limited to the declared observability."""

    _state: State
    _b: int

    def check(self, name: str) -> None:
        """Raise ObservabilityError unless column `name` is declared (`ringyard.observability.COLUMNS`)."""
        raise NotImplementedError

    def _column(self, name: str) -> NDArray[Any]:
        """[n] a column for reading, without `check`."""
        raise NotImplementedError

    def column(self, name: str) -> NDArray[Any]:
        """Return field `name` of `Job`, if observability shows it, as a read-only [n] array."""
        self.check(name)
        return self._column(name)

    @property
    def _now(self) -> float:
        return float(self._state.clusters["now"][self._b])

    @property
    def _runs(self) -> NDArray[np.bool_]:
        return self._column("status") == JobStatus.RUNNING

    @property
    def attained_service(self) -> NDArray[np.float64]:
        """[n] GPU seconds held so far."""
        service = self.column("attained_service").copy()
        runs = self._runs
        held = self._column("num_gpus")[runs] * (self._now - self._column("updated_seconds")[runs])
        service[runs] += held
        return service

    @property
    def predicted_seconds(self) -> NDArray[np.float64]:
        """[n] predicted remaining isolated run time in seconds. NaN where `predicted_iterations` is."""
        self.check("predicted_seconds")
        return self._predicted * self._column("isolated_iteration_seconds")

    @property
    def predicted_iterations(self) -> NDArray[np.float64]:
        """[n] predicted remaining iterations of the base batch. NaN for jobs not predictable or not live."""
        self.check("predicted_iterations")
        return self._predicted

    @property
    def _predicted(self) -> NDArray[np.float64]:
        status = self._column("status")
        known = (status == JobStatus.WAITING) | (status == JobStatus.RUNNING)
        known &= self._column("predictable") != 0
        return np.where(known, self._left * self._column("prediction_factor"), np.nan)

    @property
    def _left(self) -> NDArray[np.float64]:
        """[n] remaining iterations of the base batch, of jobs with any status."""
        left, runs = self._column("remaining_iterations").copy(), self._runs
        begin = np.maximum(self._column("updated_seconds")[runs], self._column("pause_ends_seconds")[runs])
        ran = np.maximum(self._now - begin, 0.0) / self._column("iteration_seconds")[runs]
        left[runs] = np.maximum(left[runs] - ran, 0.0)
        return left

    @property
    def completed_iterations(self) -> NDArray[np.float64]:
        """[n] iterations of the base batch done so far, as training logs show."""
        self.check("completed_iterations")
        return self._completed

    @property
    def _completed(self) -> NDArray[np.float64]:
        return self._column("total_iterations") - self._left

    @property
    def gpu_activity(self) -> NDArray[np.float64]:
        """[n] fraction of an iteration in which the GPUs compute, as monitors show. 0 if not running."""
        self.check("gpu_activity")
        present = self._column("iteration_seconds") * self._column("progress_per_iteration")
        computing = self._column("compute_seconds") / self._column("gpu_speed")
        return np.where(self._runs, np.minimum(computing / np.maximum(present, 1e-300), 1.0), 0.0)

    @property
    def validation_metric(self) -> NDArray[np.float64]:
        """[n] validation metric at the last full epoch. NaN before the first, and without a curve."""
        self.check("validation_metric")
        return validation_metric(self._column, self._epochs, self._seed)

    @property
    def training_loss(self) -> NDArray[np.float64]:
        """[n] normalised training loss at the last full epoch, 1 at first (`ringyard.learning_curves`)."""
        self.check("training_loss")
        return training_loss(self._column, self._epochs, self._seed)

    @property
    def epochs_logged(self) -> NDArray[np.int64]:
        """[n] number of points in each job's `SchedulingView.loss_log`."""
        self.check("loss_log")
        return self._epochs

    @property
    def _epochs(self) -> NDArray[np.int64]:
        return (self._completed / self._column("total_iterations") * EPOCHS).astype(np.int64)

    @property
    def _seed(self) -> int:
        return int(self._state.clusters["seed"][self._b])


class JobColumns(DerivedColumns):
    """Columns of the job rows `rows` of a view (`SchedulingView.select`), all of them copies.

    `check` raises ObservabilityError for columns that are not declared. `b` is the cluster of `state`.
    """

    def __init__(
        self, state: State, b: int, rows: NDArray[np.integer[Any]], check: Callable[[str], None]
    ) -> None:
        self._state, self._b, self._chosen, self._check = state, b, rows, check

    def check(self, name: str) -> None:
        """Raise ObservabilityError unless column `name` is declared."""
        self._check(name)

    def _column(self, name: str) -> NDArray[Any]:
        return self._state.jobs[self._b][name][self._chosen]
