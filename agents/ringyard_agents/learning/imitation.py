"""Imitation of allocators: networks that begin with the options tuned for each environment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.allocator import Allocator, attained, predicted
from ringyard.allocator.target_sizes import set_weights
from ringyard.checks import Positive, PositiveInt, checked, shown
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.episodes import ScoreWorld
from ringyard_agents.learning.process_group import on
from ringyard_agents.learning.score_networks import Floats, Ids, PolicyInput, ScoreNetwork, filled, scores_of

#: (jobs [jobs, F], cluster [C], scores [jobs] to give) of a decision
_Decision = tuple[Floats, Floats, Floats]

#: clusters that play at once
_CLUSTERS = 16

#: options of an allocator that weigh jobs
_OPTIONS = ("gamma", "running_factor", "unknown_seconds")

#: estimates with an option `unknown_seconds`
_ESTIMATES = {"predicted": predicted, "attained": attained}


@checked("agent.teacher")
@dataclass(frozen=True)
class ImitateAllocator:
    """Fits a network to scores that turn the environment's allocator into one with other options.

    Each environment has its own options, such as `ringyard tune` finds, so that one network starts from the
    best known allocator of each. A score is the difference of the logarithms of a job's two weights. GPU
    types are not scored. Where GPUs are shared, the imitation is not exact, because scores there also weigh
    a job's speed beside others.

    Attributes:
        options: {label of an environment: {gamma: ..., running_factor: ..., unknown_seconds: ...}}, arguments
            of `ringyard.allocator.Allocator` and its estimates. `own` is the run's environment. Missing
            options are those of `action`.
        episodes: watched in each environment, rounded up to a multiple of 16.
        share: of their decisions that are kept.
        batches: gradient steps.
        batch_size: decisions of each environment in a gradient step.
        learning_rate: of Adam, decays linearly to 0.
    """

    options: Mapping[str, Mapping[str, float]] | None = None
    episodes: PositiveInt = 48
    share: Annotated[float, "(0, 1]"] = 0.15
    batches: PositiveInt = 4000
    batch_size: PositiveInt = 24
    learning_rate: Positive = 3e-3

    def check(self, worlds: Mapping[str, EnvConfig]) -> None:
        """Raise a ConfigurationError unless the options fit the allocators of these environments."""
        unknown = [label for label in self.options or {} if label not in worlds]
        if unknown:
            raise ConfigurationError(
                f"agent.teacher.options has {shown(unknown)}; expected worlds of the run: {', '.join(worlds)}"
            )
        for label, setting in worlds.items():
            try:
                self._teacher(label, setting)
            except ConfigurationError as error:
                raise ConfigurationError(f"agent.teacher.options, world {label}: {error}") from None
            actions = setting.actions
            if isinstance(actions, Scores) and actions.allocator.start_only is not None:
                raise ConfigurationError(
                    f"agent.teacher is to be imitated in the world {label}, where jobs are only started"
                    " (action=scores_start) and low scores make them wait; expected action=scores or"
                    " scores_attained, or agent=evolution"
                )

    def _teacher(self, label: str, setting: EnvConfig) -> Allocator:
        """The allocator to imitate in an environment."""
        assert isinstance(setting.actions, Scores)  # `ScoreLearner.setup` sees to it
        options = (self.options or {}).get(label, {})
        if not isinstance(options, Mapping) or not set(options) <= set(_OPTIONS):
            raise ConfigurationError(
                f"agent.teacher.options.{label} is {shown(options)}; expected"
                " {gamma: NUMBER, running_factor: NUMBER, unknown_seconds: NUMBER}"
            )
        own = setting.actions.allocator
        estimate = own.estimate
        if "unknown_seconds" in options:
            if estimate.name not in _ESTIMATES:
                raise ConfigurationError(
                    f"agent.teacher.options.{label} has unknown_seconds; action.allocator.estimate is"
                    f" {estimate.name}, which has none, expected one of {', '.join(_ESTIMATES)}"
                )
            estimate = _ESTIMATES[estimate.name](options["unknown_seconds"])
        return replace(
            own,
            gamma=options.get("gamma", own.gamma),
            running_factor=options.get("running_factor", own.running_factor),
            estimate=estimate,
        )

    def fit(self, network: ScoreNetwork, worlds: Mapping[str, EnvConfig], seed: int) -> dict[str, float]:
        """Fit the network.

        Args:
            network: learns.
            worlds: {label: environment} in which the teachers play.
            seed: of the decisions that are kept, and of the minibatches.

        Returns:
            Curves: clone/decisions, the number kept, and clone/error, the root mean squared error of the
            network's scores in the last tenth of the gradient steps.
        """
        device = next(network.parameters()).device
        rng = np.random.default_rng(seed)
        everything = [self._watch(label, setting, rng) for label, setting in worlds.items()]
        watched = [kept for kept in everything if kept]
        if not watched:
            return {"clone/decisions": 0.0, "clone/error": float("nan")}
        optimizer = torch.optim.Adam(network.parameters(), self.learning_rate)
        errors = []
        for step in range(self.batches):
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * (1.0 - step / self.batches)
            rows = [rng.integers(len(kept), size=self.batch_size) for kept in watched]
            chosen = [kept[i] for kept, some in zip(watched, rows, strict=True) for i in some]
            jobs, cluster, scores = zip(*chosen, strict=True)
            counts = np.array([len(one) for one in scores])
            filled_jobs, there = filled(np.concatenate(jobs), counts)
            wanted, _ = filled(np.concatenate(scores), counts)
            seen = PolicyInput(filled_jobs, there, np.stack(cluster))
            present = on(device, there).float()
            off = (scores_of(network, seen)[..., 0] - on(device, wanted)) * present
            loss = ((off**2).sum(1) / present.sum(1)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            errors.append(float(loss.detach()))
        last = errors[-max(1, self.batches // 10) :]
        kept_decisions = float(sum(map(len, watched)))
        return {"clone/decisions": kept_decisions, "clone/error": float(np.sqrt(np.mean(last)))}

    def _watch(self, label: str, setting: EnvConfig, rng: np.random.Generator) -> list[_Decision]:
        """Decisions of an environment's teacher, as scores for the environment's own allocator."""
        world, actions = ScoreWorld(setting, min(_CLUSTERS, self.episodes)), setting.actions
        assert isinstance(actions, Scores)  # `ScoreLearner.setup` sees to it
        state, plan = world.batch.state, world.batch.episode.plan
        teacher, kept = self._teacher(label, setting), list[_Decision]()

        def player(seen: PolicyInput, clusters: Ids, rows: NDArray[np.int32]) -> Any:
            given = np.zeros((*seen.present.shape, 1 + len(actions.type_scores)), np.float32)
            scores = given[..., 0]
            for i, b in enumerate(clusters.tolist()):
                count = int(seen.present[i].sum())
                plan.score[b] = 0.0
                logarithms = []
                for allocator in (actions.allocator, teacher):
                    set_weights(state, b, plan, allocator.config)
                    logarithms.append(np.log(plan.weight[b, rows[i, :count]]))
                wanted = (logarithms[1] - logarithms[0]) / actions.allocator.score_scale
                scores[i, :count] = np.clip(wanted - wanted.mean(), -1.0, 1.0)
                if count > 1 and rng.random() < self.share:
                    kept.append(
                        (seen.jobs[i, :count].copy(), seen.cluster[i].copy(), scores[i, :count].copy())
                    )
            return given

        for first in range(0, self.episodes, world.batch.num_clusters):
            entries = np.arange(first, first + world.batch.num_clusters)
            world.play(entries % setting.num_workloads, player)
        return kept
