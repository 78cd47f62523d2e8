"""One TensorBoard run per scheduler, so that their curves lie on each other."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ringyard.sim.metrics import LOSSES
from ringyard_agents.files import replaced_folder
from ringyard_agents.measuring.evaluate import RunResult

__all__ = ["Curves", "curves", "write_tensorboard"]

POINTS = 200


class Curves:
    """Means over workloads on a common time axis.

    Attributes:
        seconds: [points] simulated time.
        running_jct: [points] mean JCT of the jobs finished so far, NaN before the first.
        waiting: [points] mean jobs waiting.
        utilisation: [points] mean share of busy GPUs.
    """

    def __init__(self, results: Sequence[RunResult], seconds: NDArray[np.float64]) -> None:
        self.seconds = seconds
        served = [result.times.served() for result in results]
        ends = np.concatenate([times.end_seconds for times in served])
        jcts = np.concatenate([times.jct for times in served])
        order = np.argsort(ends, kind="stable")
        finished = np.searchsorted(ends[order], seconds, side="right")
        totals = np.concatenate([[0.0], np.cumsum(jcts[order])])
        with np.errstate(invalid="ignore"):
            self.running_jct = np.where(finished > 0, totals[finished] / np.maximum(finished, 1), np.nan)
        self.waiting = self._mean(results, 1)
        self.utilisation = self._mean(results, 2)

    def _mean(self, results: Sequence[RunResult], column: int) -> NDArray[np.float64]:
        """Mean over workloads; a run that has ended counts as 0."""
        total = np.zeros(len(self.seconds))
        for result in results:
            ends, values = result.timeline[0], result.timeline[column]
            bins = np.searchsorted(ends, self.seconds)
            total += np.where(bins < len(ends), values[np.minimum(bins, len(ends) - 1)], 0.0)
        return total / len(results)


def curves(results: Sequence[RunResult]) -> dict[str, Curves]:
    """{label: curves} for all schedulers on one time axis.

    The axis reaches to where 99 % of all jobs have ended: the last ones would stretch it too far.
    """
    ends = np.concatenate([result.times.end_seconds for result in results])
    most = float(np.percentile(ends, 99))
    seconds = np.linspace(most / POINTS, most, POINTS)
    labels = list(dict.fromkeys(result.label for result in results))
    return {label: Curves([r for r in results if r.label == label], seconds) for label in labels}


def write_tensorboard(results: Sequence[RunResult], folder: Path) -> None:
    """Scalars over simulated seconds, JCT percentiles (the step is the percentile), and the mean JCT's parts.

    Args:
        results: of every scheduler on every workload.
        folder: gets one run per scheduler; those of an earlier comparison go.
    """
    with replaced_folder(folder) as partial:
        _write(results, partial)


def _write(results: Sequence[RunResult], folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for label, curve in curves(results).items():
        writer = SummaryWriter(str(folder / label))
        for i, second in enumerate(curve.seconds.astype(np.int64).tolist()):
            if np.isfinite(curve.running_jct[i]):
                writer.add_scalar("simulated_time/running_mean_jct", curve.running_jct[i], second)
            writer.add_scalar("simulated_time/waiting_jobs", curve.waiting[i], second)
            writer.add_scalar("simulated_time/utilisation", curve.utilisation[i], second)
        jcts = np.concatenate([result.times.served().jct for result in results if result.label == label])
        for percentile in range(1, 100) if len(jcts) else ():
            writer.add_scalar("jct/percentile", float(np.percentile(jcts, percentile)), percentile)
        writer.add_scalar("jct/mean", float(jcts.mean()) if len(jcts) else float("nan"), 0)
        metrics = [result.metrics for result in results if result.label == label]
        for name in ("mean_queueing", *(f"lost_to_{name}" for name in LOSSES), "mean_work"):
            writer.add_scalar(f"losses/{name}", float(np.mean([getattr(one, name) for one in metrics])), 0)
        writer.close()
