"""Traces do not say what a job trains: give every row a model, seeded, by its GPU count."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol

import numpy as np

from ringyard.checks import Amount, Count, Positive, Weights, checked
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.profiles import model_id


class Assignment(Protocol):
    """Fills a table's compute seconds and gradient bytes."""

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """The same jobs with costs per iteration."""
        ...


_FOUR = {"vgg16": 1.0, "resnet50": 1.0, "inception_v3": 1.0, "lstm": 1.0}


@checked("models")
@dataclass(frozen=True)
class ModelMix:
    """Draws a model for each job from weights that depend on its GPU count.

    Attributes:
        by_gpus: {smallest GPU count: {model: weight}}; a job uses the largest key not above its count.
            Default: the four models of Ada-SRSF's public simulator, equally likely at every size.
        by_job: see `EachOf`.
    """

    by_job = True
    by_gpus: Mapping[Count, Weights] = field(default_factory=lambda: {1: _FOUR})

    def __post_init__(self) -> None:
        if 1 not in self.by_gpus:
            raise ConfigurationError(f"models.by_gpus has keys {sorted(self.by_gpus)}; expected one to be 1")
        for weights in self.by_gpus.values():
            for name in weights:
                model_id(name)

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """The same jobs, each with a model."""
        draws = rng.random(len(jobs))
        ids = np.zeros(len(jobs), dtype=np.int64)
        for gpus in sorted(self.by_gpus):
            weights = self.by_gpus[gpus]
            chosen = np.array([model_id(name) for name in weights])
            edges = np.cumsum(list(weights.values())) / sum(weights.values())
            here = jobs.num_gpus >= gpus
            ids[here] = chosen[np.searchsorted(edges, draws[here], side="right").clip(max=len(chosen) - 1)]
        return jobs.with_models(ids)


@checked("models")
@dataclass(frozen=True)
class UniformCosts:
    """Costs drawn uniformly, for papers that print ranges instead of models.

    Attributes:
        compute_seconds: (low, high) of the GPU seconds of one iteration.
        gradient_bytes: (low, high) of the gradient size.
        by_job: see `EachOf`.
    """

    by_job = True
    compute_seconds: Annotated[tuple[Positive, Positive], "ascending"]
    gradient_bytes: Annotated[tuple[Amount, Amount], "ascending"]

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """The same jobs, each with its own costs."""
        return replace(
            jobs,
            compute_seconds=rng.uniform(self.compute_seconds[0], self.compute_seconds[1], len(jobs)),
            gradient_bytes=rng.uniform(self.gradient_bytes[0], self.gradient_bytes[1], len(jobs)),
        )
