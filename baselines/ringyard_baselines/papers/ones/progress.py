"""Progress of jobs in ONES: features, their history, and the predictor of how far a job is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import Positive, PositiveInt, checked
from ringyard.compiled import FloatMatrix, FloatVector, IntMatrix, kernel
from ringyard.learning_curves import DEFAULT_HALF, hyperbola
from ringyard.profiles import catalogue, model_id
from ringyard.workloads.papers import ONES_TASKS

_INPUTS, _UNITS = 5, 64

#: positions of the first bias and the first output weight among the network's parameters
_BIAS, _OUT = _INPUTS * _UNITS, (_INPUTS + 1) * _UNITS


@kernel
def _digamma(x: float) -> float:
    """Return the derivative of ln Gamma at x > 0: recurrence up to 6, then the asymptotic series (1e-10)."""
    below = 0.0
    while x < 6.0:
        below += 1.0 / x
        x += 1.0
    f = 1.0 / (x * x)
    series = f * (1.0 / 12.0 - f * (1.0 / 120.0 - f * (1.0 / 252.0 - f * (1.0 / 240.0 - f / 132.0))))
    return np.log(x) - 0.5 / x - series - below


@kernel
def _tanh(x: float) -> float:
    """Return tanh x within 1e-14. exp 2x is (Taylor's series at x / 32)^64, which compilers vectorise."""
    y = min(max(x, -20.0), 20.0) * (1.0 / 32.0)
    power = 1.0
    for k in range(12, 0, -1):
        power = 1.0 + y * (1.0 / k) * power
    for _ in range(6):
        power *= power
    return 1.0 - 2.0 / (1.0 + power)


@kernel
def _gradient(row: FloatVector, network: FloatVector, change: FloatVector) -> None:
    """Add one row's gradient of -ln Beta(done, b) at its progress, by each parameter, to `change`.

    `row` is [7], five inputs, epochs done, progress. `network` and `change` are as in `_fit`.
    """
    done, share = row[_INPUTS], row[_INPUTS + 1]
    hidden = change[len(network) :]
    for u in range(_UNITS):
        hidden[u] = network[_BIAS + u]
    for i in range(_INPUTS):
        for u in range(_UNITS):
            hidden[u] += network[i * _UNITS + u] * row[i]
    for u in range(_UNITS):
        hidden[u] = _tanh(hidden[u])
    out = network[-1]
    for u in range(_UNITS):
        out += network[_OUT + u] * hidden[u]
    if out <= 0.0:
        return
    b = 1.0 + out
    slope = _digamma(b) - _digamma(done + b) - np.log(1.0 - share)
    change[len(network) - 1] += slope
    for u in range(_UNITS):
        change[_OUT + u] += slope * hidden[u]
        hidden[u] = slope * network[_OUT + u] * (1.0 - hidden[u] * hidden[u])
        change[_BIAS + u] += hidden[u]
    for i in range(_INPUTS):
        for u in range(_UNITS):
            change[i * _UNITS + u] += hidden[u] * row[i]


@kernel
def _fit(
    rows: FloatMatrix,
    orders: IntMatrix,
    batch_size: int,
    rate: float,
    decay: float,
    network: FloatVector,
    scratch: FloatMatrix,
) -> None:
    """Fit by Adam on the mean negative log likelihood, with weight decay added to the gradient.

    `rows` [rows, 7] are five inputs, epochs done and progress, `orders` [epochs, rows] their orders.
    `network` [parameters] holds each input's weights, the biases, the output weights, of [units] each, and
    last the output's bias. It changes in place. `scratch` [3, parameters + units] is zeros.
    """
    change, first, second = scratch[0], scratch[1], scratch[2]
    step = 0
    for epoch in range(len(orders)):
        for begin in range(0, len(rows), batch_size):
            end = min(begin + batch_size, len(rows))
            for k in range(len(network)):
                change[k] = 0.0
            for i in range(begin, end):
                _gradient(rows[orders[epoch, i]], network, change)
            step += 1
            known, known_square = 1.0 - 0.9**step, 1.0 - 0.999**step
            for k in range(len(network)):
                g = change[k] / (end - begin) + decay * network[k]
                first[k] = 0.9 * first[k] + 0.1 * g
                second[k] = 0.999 * second[k] + 0.001 * g * g
                mean = first[k] / known
                network[k] -= rate * mean / (np.sqrt(second[k] / known_square) + 1e-8)


@checked("predictor")
@dataclass(eq=False)
class BetaProgress:
    """Predictor b = 1 + ReLU(MLP(features)), refitted by maximum likelihood on finished jobs.

    FOUND (ONES' artifact): 5 inputs, 64 tanh units, 1 output. Loss -log Beta(a, b) at the final progress.
    Adam 1e-4 with weight decay 1e-4, 60 epochs, at most 2000 random rows. Weights drawn from N(0, 1) at every
    fit. Not as published: batches of 64 rows and a learning rate of 1e-3 (8 and 1e-4 there), standardised
    inputs, and refits when a tenth more jobs have finished. (There a network of unit weights gets losses up
    to 100 and, to predict, D instead of log D, so that its units saturate and its output hardly depends on
    the job.) Before the first fit b is the epochs done, at least 1.
    """

    rows: PositiveInt = 2000  #: largest number of rows of a fit
    epochs: PositiveInt = 60  #: passes over the rows
    batch_size: PositiveInt = 64  #: rows of one step
    learning_rate: Positive = 1e-3  #: learning rate of Adam
    weight_decay: Positive = 1e-4  #: weight decay of Adam

    def __post_init__(self) -> None:
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Forget everything. Fits draw from `rng` from now on."""
        self._rng = rng
        self._network: NDArray[np.float64] | None = None
        self._mean = np.zeros(_INPUTS)
        self._scale = np.ones(_INPUTS)

    def fit(
        self, features: NDArray[np.float64], epochs: NDArray[np.float64], progress: NDArray[np.float64]
    ) -> None:
        """Fit to [rows] of jobs that have finished, with the share of the job's epochs that was done.

        `features` [rows, 5]: log epoch size, initial loss, epochs done, 1 - loss / initial loss, validation
        metric.
        """
        chosen = self._rng.permutation(len(features))[: self.rows]
        self._mean = features[chosen].mean(axis=0)
        self._scale = features[chosen].std(axis=0) + 1e-6
        done = np.maximum(epochs[chosen], 1e-3)
        share = np.clip(progress[chosen], 1e-4, 1 - 1e-4)
        rows = np.column_stack([self._inputs(features[chosen]), done, share])
        orders = self._rng.permuted(np.tile(np.arange(len(rows)), (self.epochs, 1)), axis=1)
        drawn = self._rng.standard_normal(_UNITS * (_INPUTS + 2) + 1)  # in order of units
        network = np.append(drawn[:-1].reshape(_UNITS, _INPUTS + 2).T, drawn[-1])
        scratch = np.zeros((3, len(network) + _UNITS))
        rates = (float(self.learning_rate), float(self.weight_decay))
        _fit(rows, orders, self.batch_size, *rates, network, scratch)
        self._network = network

    def beta(self, features: NDArray[np.float64], epochs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return [rows] b of Beta(epochs done, b), at least 1: the number of epochs that jobs still need."""
        if self._network is None:
            return np.maximum(epochs, 1.0)
        weights = self._network[:-1].reshape(_INPUTS + 2, _UNITS)
        hidden = np.tanh(self._inputs(features) @ weights[:_INPUTS] + weights[_INPUTS])
        return 1.0 + np.maximum(hidden @ weights[-1] + self._network[-1], 0.0)

    def _inputs(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        return (features - self._mean) / self._scale


class ProgressHistory:
    """Feature rows of running jobs, and of finished jobs with the progress that these rows turned out to be.

    It begins with the `rows` [rows, 6] of earlier jobs.
    """

    ROWS_PER_JOB = 40

    def __init__(self, rows: NDArray[np.float64], num_jobs: int) -> None:
        self._running_rows: dict[int, list[NDArray[np.float64]]] = {}
        self._recorded_epochs = np.zeros(num_jobs)  # epochs done when a job was last recorded
        self.rows = list(rows)

    def record(self, jobs: NDArray[np.int64], features: NDArray[np.float64]) -> None:
        """Record `features` [n, 5] of running jobs, at most once an epoch, thinned out if they grow many."""
        due = features[:, 2] >= self._recorded_epochs[jobs] + 1.0
        self._recorded_epochs[jobs[due]] = features[due, 2]
        for job, row in zip(jobs[due].tolist(), features[due], strict=True):
            rows = self._running_rows.setdefault(job, [])
            rows.append(row)
            if len(rows) > self.ROWS_PER_JOB:
                del rows[1::2]

    def finish(self, job: int, epochs: float) -> None:
        """Complete the rows of `job`, which ended after so many `epochs`, with the progress made by then."""
        for row in self._running_rows.pop(job, []):
            self.rows.append(np.append(row, min(row[2] / max(epochs, 1e-9), 1.0)))


def earlier_job_rows() -> NDArray[np.float64]:
    """Return [590, 6] a row for each epoch but the last of the artifact's earlier jobs.

    FOUND (its job history): epoch sizes and epochs. Curves are those of profiles, without scatter.
    """
    rows = []
    for task in ONES_TASKS:
        model = catalogue()[model_id(task.like)]
        half = np.array(DEFAULT_HALF if model.metric_half is None else model.metric_half)
        start, end = (np.nan if one is None else one for one in (model.metric_start, model.final_metric))
        for size, runs in task.runs.items():
            for epochs in runs:
                done = np.arange(1.0, epochs)
                way = hyperbola(done / epochs, np.zeros(1), np.ones(1), half)
                metric = np.nan_to_num(start + (end - start) * way)
                same = np.ones(len(done))
                rows.append(np.stack([np.log(size) * same, same, done, way, metric, done / epochs], axis=1))
    return np.concatenate(rows)
