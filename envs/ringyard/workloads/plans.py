"""Jobs with execution plans: their models, and the plans that their users ask for."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import PositiveInt, Weights, checked
from ringyard.errors import ConfigurationError
from ringyard.jobs import JobTable
from ringyard.performance.plan_table import PlanTable, plan_table


@checked("models")
@dataclass(frozen=True)
class PlanMix:
    """Models and execution plans drawn by weights that depend on a job's number of GPUs.

    Jobs may hold from the fewest GPUs that one of their plans fits on to `Transformer.most_gpus`.
    """

    draws_per_job = True  # see `GeneratorBatch`
    #: {GPUs: {model/plan: weight}}, such as {2: {bert/ga: 1}}
    by_gpus: Annotated[Mapping[PositiveInt, Weights], "not empty"]
    gpu_type: str = "a800"  #: these three as in `performance=plans`
    servers: PositiveInt = 8  #: of the cluster
    gpus_per_server: PositiveInt = 8  #: of its largest server
    elastic: bool = True  #: whether jobs may hold other numbers of GPUs than they ask for

    @cached_property
    def _table(self) -> PlanTable:
        return plan_table(self.servers, self.gpus_per_server, self.gpu_type)

    def _numbers(self, gpus: int, name: str) -> tuple[int, int]:
        """Return the numbers of the model and of the plan of model/plan, which fits on so many GPUs."""
        model, _, plan = name.partition("/")
        for position, known in enumerate(self._table.models):
            if known.name == model and plan in known.plans:
                number = known.plans.index(plan) + 1
                if self._table.fits[self._table.row(position, number), gpus]:
                    return position, number
        raise ConfigurationError(
            f"models.by_gpus[{gpus}] has {name}; expected model/plan, a model of conf/plan_models and"
            f" one of its plans, which fits on {gpus} GPUs"
        )

    @cached_property
    def _choices(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """{GPUs: ([choices, 2] numbers of models and plans, [choices] ends of their shares)}."""
        found = {}
        for gpus, weights in self.by_gpus.items():
            edges = np.cumsum(list(weights.values())) / sum(weights.values())
            found[gpus] = np.array([self._numbers(gpus, name) for name in weights]), edges
        return found

    def assign(self, jobs: JobTable, rng: Any) -> JobTable:
        """Return the same `jobs`, each with a model and a plan drawn from `rng`.

        Raises:
            ConfigurationError: a job asks for a number of GPUs without weights, or a plan does not fit.
        """
        draws, chosen = rng.random(len(jobs)), np.zeros((len(jobs), 2), dtype=np.int64)
        for gpus in np.unique(jobs.num_gpus).tolist():
            if gpus not in self.by_gpus:
                raise ConfigurationError(
                    f"models.by_gpus has {list(self.by_gpus)}; expected {gpus} GPUs, too"
                )
            (numbers, edges), here = self._choices[gpus], jobs.num_gpus == gpus
            last = len(edges) - 1
            chosen[here] = numbers[np.searchsorted(edges, draws[here], side="right").clip(max=last)]
        table, (model, plan) = self._table, chosen.T
        rows = table.first[model]
        place = table.column[jobs.num_gpus, -(-jobs.num_gpus // self.gpus_per_server), 0]
        gradients, batch, most = np.array(
            [(one.parameters * one.value_bytes, one.batch, one.most_gpus) for one in table.models]
        )[model].T
        found = replace(
            jobs,
            plan_model=model,
            plan=plan,
            compute_seconds=table.seconds[rows + plan, place, 0],
            gradient_bytes=gradients,
            **dict.fromkeys(("batch_size", "min_batch", "max_batch"), batch),
        )
        if not self.elastic:
            return found
        least, largest = (
            np.argmax(table.fits[rows], axis=1),
            np.minimum(most.astype(np.int64), table.fits.shape[1] - 1),
        )
        return replace(found, min_gpus=least, max_gpus=np.maximum(largest, jobs.num_gpus))
