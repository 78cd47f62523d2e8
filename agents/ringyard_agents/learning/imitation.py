"""Score networks that begin as the allocator with the options that suit each world."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ringyard.allocator import Allocator, attained, predicted
from ringyard.allocator.sizes import weigh
from ringyard.checks import Count, Positive, checked, shown
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning.episodes import ScoreWorld
from ringyard_agents.learning.process_group import on
from ringyard_agents.learning.score_networks import PolicyInput, ScoreNetwork, scores_of

__all__ = ["ImitateAllocator"]

#: played at once
_CLUSTERS = 16

#: what says how much a job matters to an allocator
_OPTIONS = ("gamma", "stay", "unknown_seconds")

#: estimates of which `unknown_seconds` can be another
_ESTIMATES = {"predicted": predicted, "attained": attained}


class _Watched(NamedTuple):
    """One decision: [jobs, F], [C] and the scores [jobs] to give."""

    jobs: NDArray[np.float32]
    cluster: NDArray[np.float32]
    scores: NDArray[np.float32]


class _Playing:
    """Scores at which an allocator weighs jobs as another one does; some of its decisions are kept."""

    def __init__(self, world: ScoreWorld, teacher: Allocator, share: float, rng: np.random.Generator) -> None:
        actions = world.setting.actions
        assert isinstance(actions, Scores)  # `ScoreLearner.setup` sees to it
        self._kinds = 1 + len(actions.type_scores)
        self._batch, self._scale = world.batch, actions.allocator.score_scale
        self._own, self._teacher = actions.allocator.rules, teacher.rules
        self._share, self._rng = share, rng
        self.kept: list[_Watched] = []

    def __call__(
        self, seen: PolicyInput, clusters: NDArray[np.int64], rows: NDArray[np.int32]
    ) -> NDArray[np.float32]:
        """See `ScorePlayer`."""
        state, plan = self._batch.state, self._batch.episode.plan
        given = np.zeros((*seen.present.shape, self._kinds), np.float32)
        scores = given[..., 0]
        for i, b in enumerate(clusters.tolist()):
            jobs = rows[i, : seen.present[i].sum()]
            plan.score[b] = 0.0
            weigh(state, b, plan, self._own)
            own = np.log(plan.weight[b, jobs])
            weigh(state, b, plan, self._teacher)
            wanted = (np.log(plan.weight[b, jobs]) - own) / self._scale
            scores[i, : len(jobs)] = np.clip(wanted - wanted.mean(), -1.0, 1.0)
            if len(jobs) > 1 and self._rng.random() < self._share:
                parts = seen.jobs[i, : len(jobs)], seen.cluster[i], scores[i, : len(jobs)]
                self.kept.append(_Watched(*(one.copy() for one in parts)))
        return given


@checked("agent.teacher")
@dataclass(frozen=True)
class ImitateAllocator:
    """Before anything else is learnt, a network is fitted to the scores that make the allocator another one.

    In each world another: that with the options which were found for it (`ringyard tune`), so that what one
    network learns in several worlds begins where each of them has been left by search. The scores are the
    difference of logarithms of the two weights; types of GPUs are not scored. Where GPUs take several jobs,
    a score also says what a job's speed beside others counts, which none of these options does: there the
    scores do not make quite the other allocator, and the fewer options differ the better.

    Attributes:
        options: {label of a world: {gamma: ..., stay: ..., unknown_seconds: ...}}, see
            `ringyard.allocator.Allocator` and its `predicted` and `attained`; `own` is the run's world;
            what is not named is as `action` has it, None: all is.
        episodes: watched in each world, 16 at once: rounded up to a multiple of that.
        share: of their decisions that are kept.
        batches: gradient steps.
        batch_size: decisions of each world in a gradient step.
        learning_rate: of Adam, falls linearly to 0.
    """

    options: Mapping[str, Mapping[str, float]] | None = None
    episodes: Count = 48
    share: Annotated[float, "(0, 1]"] = 0.15
    batches: Count = 4000
    batch_size: Count = 24
    learning_rate: Positive = 3e-3

    def check(self, worlds: Mapping[str, EnvConfig]) -> None:
        """Raise a ConfigurationError unless the options are of these worlds' allocators."""
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
            if isinstance(actions, Scores) and actions.allocator.starts is not None:
                raise ConfigurationError(
                    f"agent.teacher is to be imitated in the world {label}, where jobs are only started"
                    " (action=scores_start) and low scores make them wait; expected action=scores or"
                    " scores_attained, or agent=evolution"
                )

    def _teacher(self, label: str, setting: EnvConfig) -> Allocator:
        """Whom to imitate in a world."""
        assert isinstance(setting.actions, Scores)  # `ScoreLearner.setup` sees to it
        options = (self.options or {}).get(label, {})
        if not isinstance(options, Mapping) or not set(options) <= set(_OPTIONS):
            raise ConfigurationError(
                f"agent.teacher.options.{label} is {shown(options)}; expected"
                " {gamma: NUMBER, stay: NUMBER, unknown_seconds: NUMBER}"
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
            stay=options.get("stay", own.stay),
            estimate=estimate,
        )

    def fit(self, network: ScoreNetwork, worlds: Mapping[str, EnvConfig], seed: int) -> dict[str, float]:
        """Fit the network; curves to plot.

        Args:
            network: learns.
            worlds: where the teachers play.
            seed: of what is kept, and of the minibatches.

        Returns:
            clone/decisions, how many were kept, and clone/error, the root mean square of what the network's
            scores are off in the last tenth of the gradient steps.
        """
        device = next(network.parameters()).device
        rng = np.random.default_rng(seed)
        watched = [self._watch(label, setting, rng) for label, setting in worlds.items()]
        watched = [kept for kept in watched if kept]
        if not watched:
            return {"clone/decisions": 0.0, "clone/error": float("nan")}
        optimizer = torch.optim.Adam(network.parameters(), self.learning_rate)
        errors = []
        for step in range(self.batches):
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * (1.0 - step / self.batches)
            rows = [rng.integers(len(kept), size=self.batch_size) for kept in watched]
            chosen = [kept[i] for kept, some in zip(watched, rows, strict=True) for i in some]
            seen, scores = _together(chosen)
            present = on(device, seen.present).float()
            off = (scores_of(network, seen)[..., 0] - on(device, scores)) * present
            loss = ((off**2).sum(1) / present.sum(1)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            errors.append(float(loss.detach()))
        last = errors[-max(1, self.batches // 10) :]
        kept_decisions = float(sum(map(len, watched)))
        return {"clone/decisions": kept_decisions, "clone/error": float(np.sqrt(np.mean(last)))}

    def _watch(self, label: str, setting: EnvConfig, rng: np.random.Generator) -> list[_Watched]:
        """Decisions of a world's teacher."""
        world = ScoreWorld(setting, min(_CLUSTERS, self.episodes))
        playing = _Playing(world, self._teacher(label, setting), self.share, rng)
        for first in range(0, self.episodes, world.batch.num_clusters):
            entries = np.arange(first, first + world.batch.num_clusters)
            world.play(entries % setting.num_workloads, playing)
        return playing.kept


def _together(chosen: list[_Watched]) -> tuple[PolicyInput, NDArray[np.float32]]:
    """(what is seen, scores [decisions, slots]) of some decisions in one."""
    slots = max(len(one.jobs) for one in chosen)
    jobs = np.zeros((len(chosen), slots, chosen[0].jobs.shape[1]), np.float32)
    present = np.zeros((len(chosen), slots), np.bool_)
    scores = np.zeros((len(chosen), slots), np.float32)
    for i, one in enumerate(chosen):
        count = len(one.jobs)
        jobs[i, :count], present[i, :count], scores[i, :count] = one.jobs, True, one.scores
    return PolicyInput(jobs, present, np.stack([one.cluster for one in chosen])), scores
