"""Imitation of allocators: fit a network to allocators with options tuned for each environment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
import torch

from ringyard.allocator import Allocator, attained, predicted
from ringyard.allocator.target_sizes import set_weights
from ringyard.checks import Positive, PositiveInt, checked, shown
from ringyard.errors import ConfigurationError
from ringyard.mdp.actions import Scores
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning import score_networks
from ringyard_agents.learning.episodes import EpisodeRunner
from ringyard_agents.learning.learner import EnvConfigs
from ringyard_agents.learning.process_group import to_device
from ringyard_agents.learning.score_networks import Floats, Ids, Masks, PolicyInput, ScoreNetwork

#: features of the jobs [jobs, F], features of the cluster [C] and target scores [jobs] of a decision
_Decision = tuple[Floats, Floats, Floats]

_CLUSTERS = 16  #: clusters simulated at once

#: options of an allocator that change the priorities of jobs
_OPTIONS = ("gamma", "running_factor", "unknown_seconds")

#: estimates of remaining time that have the option `unknown_seconds`
_ESTIMATES = {"predicted": predicted, "attained": attained}


@checked("agent.teacher")
@dataclass(frozen=True)
class ImitateAllocator:
    """Fits a network to scores that turn the environment's allocator into one with other options.

    Each environment has its own options, for instance from `ringyard tune`, so that one network starts from
    the best known allocator of each. The target score of a job is the difference of the logarithms of its two
    weights, over the allocator's score scale and centred over jobs. GPU types are not scored. Where jobs
    share GPUs the imitation is not exact, because scores there also act on a job's speed next to others.
    """

    #: {label of an environment: {gamma: ..., running_factor: ..., unknown_seconds: ...}}, arguments of
    #: `ringyard.allocator.Allocator` and its estimates. The label `own` is the environment of the run's
    #: settings. Missing options are those of `action.allocator`.
    options: Mapping[str, Mapping[str, float]] | None = None
    episodes: PositiveInt = 48  #: episodes of the teacher in each environment, rounded up to a multiple of 16
    sample_fraction: Annotated[float, "(0, 1]"] = 0.15  #: fraction of their decisions to fit to
    gradient_steps: PositiveInt = 4000  #: gradient steps of the fit
    batch_size: PositiveInt = 24  #: decisions of each environment in a gradient step
    learning_rate: Positive = 3e-3  #: initial learning rate of Adam. It decays linearly to 0.

    def check(self, environments: EnvConfigs) -> None:
        """Raise a ConfigurationError unless the options fit the allocators of {label: environment}."""
        unknown = [label for label in self.options or {} if label not in environments]
        if unknown:
            raise ConfigurationError(
                f"agent.teacher.options has {shown(unknown)}"
                f"; expected environments of the run: {', '.join(environments)}"
            )
        for label, config in environments.items():
            try:
                self._teacher(label, config)
            except ConfigurationError as error:
                raise ConfigurationError(f"agent.teacher.options, environment {label}: {error}") from None
            actions = config.actions
            if isinstance(actions, Scores) and actions.allocator.start_only is not None:
                raise ConfigurationError(
                    f"agent.teacher cannot be imitated in the environment {label}, where the allocator only"
                    " starts jobs (action=scores_start) and low scores make them wait; expected"
                    " action=scores or scores_attained, or agent=evolution"
                )

    def _teacher(self, label: str, config: EnvConfig) -> Allocator:
        """Return the allocator to imitate in an environment."""
        assert isinstance(config.actions, Scores)  # `EvolutionStrategies.setup` has checked it
        options = (self.options or {}).get(label, {})
        if not isinstance(options, Mapping) or not set(options) <= set(_OPTIONS):
            raise ConfigurationError(
                f"agent.teacher.options.{label} is {shown(options)}; expected"
                " {gamma: NUMBER, running_factor: NUMBER, unknown_seconds: NUMBER}"
            )
        own = config.actions.allocator
        estimate = own.estimate
        if "unknown_seconds" in options:
            if estimate.name not in _ESTIMATES:
                raise ConfigurationError(
                    f"agent.teacher.options.{label} has unknown_seconds; action.allocator.estimate is"
                    f" {estimate.name}, without that option; expected one of {', '.join(_ESTIMATES)}"
                )
            estimate = _ESTIMATES[estimate.name](options["unknown_seconds"])
        others: dict[str, Any] = {name: value for name, value in options.items() if name != "unknown_seconds"}
        return replace(own, **others, estimate=estimate)

    def fit(self, network: ScoreNetwork, environments: EnvConfigs, seed: int) -> dict[str, float]:
        """Fit the network by least squares to a sample of decisions, and return {TensorBoard tag: value}.

        `imitation/rmse` is the root mean squared error of the scores in the last tenth of the gradient steps.
        """
        device = next(network.parameters()).device
        rng = np.random.default_rng(seed)
        sampled = [self._sample_decisions(label, config, rng) for label, config in environments.items()]
        demonstrations = [decisions for decisions in sampled if decisions]
        if not demonstrations:
            return {"imitation/decisions": 0.0, "imitation/rmse": float("nan")}
        optimizer = torch.optim.Adam(network.parameters(), self.learning_rate)
        errors = []
        for step in range(self.gradient_steps):
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate * (1.0 - step / self.gradient_steps)
            rows = [rng.integers(len(one), size=self.batch_size) for one in demonstrations]
            batch = [one[i] for one, some in zip(demonstrations, rows, strict=True) for i in some]
            jobs, cluster, scores = zip(*batch, strict=True)
            counts = np.array([len(one) for one in scores])
            padded_jobs, mask = score_networks.pad_decisions(np.concatenate(jobs), counts)
            targets, _ = score_networks.pad_decisions(np.concatenate(scores), counts)
            inputs = PolicyInput(padded_jobs, mask, np.stack(cluster))
            present = to_device(device, mask).float()
            found = score_networks.score_tensor(network, inputs)[..., 0]
            residuals = (found - to_device(device, targets)) * present
            loss = ((residuals**2).sum(1) / present.sum(1)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            errors.append(float(loss.detach()))
        last = errors[-max(1, self.gradient_steps // 10) :]
        num_decisions = float(sum(map(len, demonstrations)))
        return {"imitation/decisions": num_decisions, "imitation/rmse": float(np.sqrt(np.mean(last)))}

    def _sample_decisions(self, label: str, config: EnvConfig, rng: np.random.Generator) -> list[_Decision]:
        """Run the teacher of an environment and sample its decisions, as scores for the own allocator."""
        runner, actions = EpisodeRunner(config, min(_CLUSTERS, self.episodes)), config.actions
        assert isinstance(actions, Scores)  # `EvolutionStrategies.setup` has checked it
        state, plan = runner.batch.state, runner.batch.episode.plan
        teacher, sampled = self._teacher(label, config), list[_Decision]()

        def act(observations: Any, masks: Masks, clusters: Ids) -> Any:
            inputs = score_networks.read_observations(observations, masks)
            all_scores = np.zeros((*inputs.present.shape, 1 + len(actions.type_scores)), np.float32)
            scores = all_scores[..., 0]
            for i, b in enumerate(clusters.tolist()):
                count = int(inputs.present[i].sum())
                plan.score[b] = 0.0
                logarithms = []
                for allocator in (actions.allocator, teacher):
                    set_weights(state, b, plan, allocator.config)
                    logarithms.append(np.log(plan.weight[b, runner.batch.episode.live[b, :count]]))
                targets = (logarithms[1] - logarithms[0]) / actions.allocator.score_scale
                scores[i, :count] = np.clip(targets - targets.mean(), -1.0, 1.0)
                if count > 1 and rng.random() < self.sample_fraction:
                    jobs, cluster = inputs.jobs[i, :count].copy(), inputs.cluster[i].copy()
                    sampled.append((jobs, cluster, scores[i, :count].copy()))
            return score_networks.scores_to_action(all_scores, inputs, masks.shape[1])

        for first in range(0, self.episodes, runner.batch.num_clusters):
            workloads = np.arange(first, first + runner.batch.num_clusters)
            runner.run_episodes(workloads % config.num_workloads, act)
        return sampled
