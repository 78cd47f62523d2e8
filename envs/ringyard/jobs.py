"""Jobs as columns (`JobTable`), and one job for people (`JobSpec`)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringyard.cluster import Cluster
from ringyard.errors import WorkloadError
from ringyard.profiles import CATALOGUE

__all__ = ["JobSpec", "JobTable"]


@dataclass(frozen=True)
class JobSpec:
    """One job, written by hand.

    Attributes:
        submit_seconds: when it arrives.
        num_gpus: GPUs (= ring workers) it asks for; all or nothing.
        duration_seconds: run time alone on consolidated GPUs.
        model: a name of `ringyard.profiles.CATALOGUE`.
        job_id: the user's own number; the position in the list if None.
    """

    submit_seconds: float
    num_gpus: int
    duration_seconds: float
    model: str = "resnet50"
    job_id: int | None = None


@dataclass(frozen=True)
class JobTable:
    """Jobs sorted by submit time, one array per attribute; row order breaks ties everywhere.

    Either `duration_seconds` or `iterations` is given for each job, the other is NaN and follows
    from the performance model: alone on consolidated GPUs a job takes `iterations` times its
    isolated seconds per iteration.

    Attributes:
        job_id: [jobs] the user's own numbers.
        submit_seconds: [jobs] arrival times, ascending, >= 0.
        num_gpus: [jobs] GPUs asked for, >= 1.
        duration_seconds: [jobs] run time alone on consolidated GPUs, > 0, or NaN.
        iterations: [jobs] training iterations, > 0, or NaN.
        compute_seconds: [jobs] GPU seconds of one iteration on each worker, > 0.
        gradient_bytes: [jobs] bytes of one all-reduce, >= 0.
        model_ids: [jobs] position in `ringyard.profiles.CATALOGUE`, -1 for none.
        predictable: [jobs] whether schedulers may see the remaining time.
    """

    job_id: NDArray[np.int64]
    submit_seconds: NDArray[np.float64]
    num_gpus: NDArray[np.int64]
    duration_seconds: NDArray[np.float64]
    iterations: NDArray[np.float64]
    compute_seconds: NDArray[np.float64]
    gradient_bytes: NDArray[np.float64]
    model_ids: NDArray[np.int64]
    predictable: NDArray[np.bool_]

    @classmethod
    def from_columns(
        cls,
        submit_seconds: ArrayLike,
        num_gpus: ArrayLike,
        duration_seconds: ArrayLike,
        job_id: ArrayLike | None = None,
    ) -> Self:
        """A table without model data: every job computes 1 s per iteration and sends nothing.

        `ringyard.workloads.assignment` gives rows a model.

        Raises:
            WorkloadError: see `check`.
        """
        submit = np.asarray(submit_seconds, dtype=np.float64)
        count = len(submit)
        gpus = np.asarray(num_gpus)
        if gpus.dtype.kind == "f" and not np.all(np.isfinite(gpus) & (gpus == np.floor(gpus))):
            row = int(np.flatnonzero(~(np.isfinite(gpus) & (gpus == np.floor(gpus))))[0])
            raise WorkloadError(f"job in row {row} asks for {gpus[row]} GPUs; expected a whole number")
        table = cls(
            job_id=np.arange(count) if job_id is None else np.asarray(job_id, dtype=np.int64),
            submit_seconds=submit,
            num_gpus=gpus.astype(np.int64),
            duration_seconds=np.asarray(duration_seconds, dtype=np.float64),
            iterations=np.full(count, np.nan),
            compute_seconds=np.ones(count),
            gradient_bytes=np.zeros(count),
            model_ids=np.full(count, -1, dtype=np.int64),
            predictable=np.ones(count, dtype=np.bool_),
        )
        table.check()
        return table

    @classmethod
    def from_specs(cls, specs: Sequence[JobSpec]) -> Self:
        """A table of hand-written jobs, in the given order (ascending submit times)."""
        names = [candidate.name for candidate in CATALOGUE]
        for spec in specs:
            if spec.model not in names:
                raise WorkloadError(f"unknown model {spec.model!r}; expected one of {', '.join(names)}")
        table = cls.from_columns(
            [spec.submit_seconds for spec in specs],
            [spec.num_gpus for spec in specs],
            [spec.duration_seconds for spec in specs],
            [position if spec.job_id is None else spec.job_id for position, spec in enumerate(specs)],
        )
        return table.with_models(np.array([names.index(spec.model) for spec in specs], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.submit_seconds)

    def with_models(self, model_ids: NDArray[np.int64]) -> Self:
        """The same jobs with the costs of the given catalogue entries.

        Args:
            model_ids: [jobs] positions in `ringyard.profiles.CATALOGUE`.
        """
        return replace(
            self,
            model_ids=model_ids,
            compute_seconds=np.array([CATALOGUE[i].compute_seconds for i in model_ids]),
            gradient_bytes=np.array([CATALOGUE[i].gradient_bytes for i in model_ids]),
        )

    def rows(self, index: Any) -> Self:
        """The jobs at `index` (a slice, mask or index array that keeps the order)."""
        columns = {field.name: getattr(self, field.name)[index] for field in fields(self)}
        return replace(self, **columns)

    def check(self, cluster: Cluster | None = None) -> None:
        """Raise WorkloadError naming the first bad row, if any.

        Args:
            cluster: also check that every job fits it.
        """
        count = len(self)
        if count == 0:
            raise WorkloadError("the workload has no jobs; expected at least 1")
        for field in fields(self):
            shape = getattr(self, field.name).shape
            if shape != (count,):
                raise WorkloadError(f"column {field.name} has shape {shape}; expected ({count},)")
        self._refuse(~np.isfinite(self.submit_seconds), "submit time", self.submit_seconds, "a finite number")
        self._refuse(self.submit_seconds < 0, "submit time", self.submit_seconds, "0 or more")
        unsorted = np.concatenate([[False], np.diff(self.submit_seconds) < 0])
        self._refuse(
            unsorted,
            "submit time",
            self.submit_seconds,
            "ascending submit times (sort the rows first)",
        )
        self._refuse(self.num_gpus < 1, "GPU count", self.num_gpus, "1 or more")
        work = np.where(np.isnan(self.iterations), self.duration_seconds, self.iterations)
        self._refuse(~(np.isfinite(work) & (work > 0)), "duration", work, "a positive finite number")
        compute = self.compute_seconds
        self._refuse(
            ~(np.isfinite(compute) & (compute > 0)),
            "seconds per iteration",
            compute,
            "a positive finite number",
        )
        size = self.gradient_bytes
        self._refuse(~(np.isfinite(size) & (size >= 0)), "gradient size", size, "0 or more bytes")
        if cluster is not None:
            limit = cluster.num_gpus
            self._refuse(
                self.num_gpus > limit,
                "GPU count",
                self.num_gpus,
                f"at most the cluster's {limit} GPUs (enlarge the cluster or drop the job)",
            )

    def _refuse(self, bad: NDArray[np.bool_], what: str, values: NDArray[Any], expected: str) -> None:
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise WorkloadError(
                f"job {self.job_id[row]} (row {row}) has {what} {values[row]}; expected {expected}"
            )
