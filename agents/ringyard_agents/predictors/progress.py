"""ONES' progress predictor: Beta(epochs done, b) with b from a small network."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

__all__ = ["BetaProgress"]


class BetaProgress:
    """b = 1 + ReLU(MLP(features)), refitted by maximum likelihood on finished jobs.

    FOUND (ONES' artifact): 5 inputs, 64 tanh units, 1 output; loss -log Beta(a, b) at the progress it turned
    out to be; Adam 1e-4 with weight decay 1e-4, 60 epochs, at most 2000 random rows; weights drawn N(0, 1)
    anew at every fit. Not as published: batches of 64 rows and a learning rate of 1e-3 (8 and 1e-4 there:
    eight times as long), inputs standardised, and a caller that refits when a tenth more jobs have finished.
    Before the first fit b is the epochs done, at least 1.

    Args:
        rows: most rows of a fit.
        epochs: over them.
        batch_size: rows of one step.
        learning_rate: of Adam.
        weight_decay: of Adam.
    """

    def __init__(
        self,
        rows: int = 2000,
        epochs: int = 60,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
    ) -> None:
        self._rows = rows
        self._epochs = epochs
        self._batch_size = batch_size
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """Forget everything; fits draw from `rng` from now on."""
        self._rng = rng
        self._network: nn.Sequential | None = None
        self._mean = np.zeros(5)
        self._scale = np.ones(5)

    def fit(
        self, features: NDArray[np.float64], epochs: NDArray[np.float64], progress: NDArray[np.float64]
    ) -> None:
        """Learn from rows of finished jobs; see `papers.ones.progress.ProgressPredictor`."""
        chosen = self._rng.permutation(len(features))[: self._rows]
        self._mean = features[chosen].mean(axis=0)
        self._scale = features[chosen].std(axis=0) + 1e-6
        x = self._inputs(features[chosen])
        a = torch.as_tensor(np.maximum(epochs[chosen], 1e-3), dtype=torch.float64)
        target = torch.as_tensor(np.clip(progress[chosen], 1e-4, 1 - 1e-4), dtype=torch.float64)
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**31)))
        network = nn.Sequential(
            nn.Linear(5, 64, dtype=torch.float64), nn.Tanh(), nn.Linear(64, 1, dtype=torch.float64)
        )
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        optimiser = torch.optim.Adam(
            network.parameters(), lr=self._learning_rate, weight_decay=self._weight_decay
        )
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # steps are tiny, and comparisons run a process per core
        for _ in range(self._epochs):
            for rows in torch.randperm(len(x), generator=generator).split(self._batch_size):  # type: ignore[no-untyped-call]
                b = 1.0 + torch.relu(network(x[rows])[:, 0])
                density = torch.distributions.Beta(a[rows], b, validate_args=False)
                log_density = density.log_prob(target[rows])  # type: ignore[no-untyped-call]
                optimiser.zero_grad()
                (-log_density.mean()).backward()
                optimiser.step()
        torch.set_num_threads(threads)
        self._network = network

    def beta(self, features: NDArray[np.float64], epochs: NDArray[np.float64]) -> NDArray[np.float64]:
        """[rows] b, at least 1."""
        if self._network is None or not len(features):
            return np.maximum(epochs, 1.0)
        with torch.no_grad():
            b = 1.0 + torch.relu(self._network(self._inputs(features))[:, 0])
        result: NDArray[np.float64] = b.numpy()
        return result

    def _inputs(self, features: NDArray[np.float64]) -> torch.Tensor:
        return torch.as_tensor((features - self._mean) / self._scale, dtype=torch.float64)
