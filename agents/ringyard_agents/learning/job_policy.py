"""`JobAttentionPolicy`: a policy of Stable-Baselines3 that gives every job a score."""

from typing import Annotated, Any, Self

import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor, nn

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard_agents.learning.policies import READS_BLOCKS
from ringyard_agents.learning.score_networks import ScoreNetwork

_BLOCKS = ("jobs", "jobs_mask", "cluster")
_SCALE = 0.1  #: factor of the scores, with which the first updates change the order of few jobs. Assumption
_RIDGE = 0.1  #: added to squares of features, where a cluster has fewer jobs than features. Assumption


class _ScoresOfJobs(DiagGaussianDistribution):
    """Independent Gaussian scores of the jobs that there are; slots without a job have score 0."""

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor) -> Self:
        """Set means and presence, both in `mean_actions` [B, 2 N], and one `log_std` for all."""
        means, self.present = mean_actions.chunk(2, -1)
        super().proba_distribution(means, log_std)
        return self

    def sample(self) -> Tensor:
        """Draw [B, N] scores."""
        return super().sample() * self.present

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return [B] log densities of the scores of the jobs that there are."""
        each: Tensor = self.distribution.log_prob(actions)  # type: ignore[no-untyped-call]
        return (each * self.present).sum(-1)

    def entropy(self) -> Tensor:
        """Return [B] entropies."""
        each: Tensor = self.distribution.entropy()  # type: ignore[no-untyped-call]
        return (each * self.present).sum(-1)


class _ScoresWithLastingNoise(DiagGaussianDistribution):
    """Scores with noise that is linear in a job's features, with Gaussian weights that last a rollout.

    Jobs with like features get like noise at each decision, so that noise changes the order of jobs as
    another policy would. Densities are those of the weights [F] that explain the noise best. With fewer jobs
    than features they are shrunk towards 0, so that this is an approximation.

    Source: generalised state-dependent exploration (Raffin et al. 2021), here with the same weights for all
    jobs of a cluster.
    """

    noise: Tensor | None = None  #: [clusters, F] standard normal, of the rollout

    def proba_distribution(self, mean_actions: Tensor, log_std: Tensor) -> Self:
        """Set means [B, N] and centred features [B, N x F], both in `mean_actions`, and a `log_std` [F]."""
        self.means, self.log_std = mean_actions[:, : self.action_dim], log_std
        self.features = mean_actions[:, self.action_dim :].view(len(mean_actions), self.action_dim, -1)
        return self

    def mode(self) -> Tensor:
        """Return the [B, N] means."""
        return self.means

    def sample(self) -> Tensor:
        """Return [B, N] scores with the noise of the rollout, or new noise for another number of clusters."""
        noise = self.noise
        if noise is None or len(noise) != len(self.means):
            noise = torch.randn(len(self.means), len(self.log_std), device=self.means.device)
        return self.means + (self.features @ (self.log_std.exp() * noise).unsqueeze(-1)).squeeze(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Return [B] log densities of the noise of [B, N] scores, up to a constant."""
        filled = self.features.any(2).any(0).nonzero()
        used = int(filled.max()) + 1 if len(filled) else 1  # the slots behind are empty in all clusters
        features, noise = self.features[:, :used], (actions - self.means)[:, :used]
        transposed = features.transpose(1, 2)
        squares = transposed @ features + _RIDGE * torch.eye(len(self.log_std), device=actions.device)
        fit = torch.linalg.solve(squares, transposed)
        weights = (fit @ noise.unsqueeze(-1)).squeeze(-1)
        return (-0.5 * (weights / self.log_std.exp()) ** 2 - self.log_std).sum(-1)

    def entropy(self) -> Tensor:
        """Return [B] entropies of the noise, up to a constant."""
        return self.log_std.sum().expand(len(self.means))


class _JobNetwork(nn.Module):
    """Scores of jobs by attention among them, and the input of the value head."""

    def __init__(self, space: spaces.Dict, width: int, lasting_noise: bool) -> None:
        super().__init__()
        slots, cluster = spaces.flatdim(space["jobs_mask"]), spaces.flatdim(space["cluster"])
        features = spaces.flatdim(space["jobs"]) // slots
        self.num_noise_weights = features if lasting_noise else 0
        self.scores = ScoreNetwork(features, cluster, width, "attention")
        self.job = nn.Sequential(nn.Linear(features + cluster, width), nn.Tanh())
        self.whole = nn.Sequential(nn.Linear(width + cluster, width), nn.Tanh())
        self.latent_dim_pi, self.latent_dim_vf = slots * (1 + (self.num_noise_weights or 1)), 2 * width

    def _jobs(self, blocks: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return features [B, n, F] and presence [B, n] of the first n slots, and those of the cluster."""
        mask = blocks["jobs_mask"]
        jobs, used = blocks["jobs"].view(*mask.shape, -1), mask.shape[1]
        if not torch.compiler.is_compiling():  # a graph for export has as many slots for every input
            used = max(int(mask.sum(1).max()), 1)  # jobs fill the first slots
        return jobs[:, :used], mask[:, :used], blocks["cluster"]

    def forward_actor(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, N] scores, 0 in empty slots, then what the distribution needs beside the means.

        This is [B, N] 1 where there is a job, or [B, N x F] features less their mean over jobs.
        """
        jobs, present, cluster = self._jobs(blocks)
        scores = _SCALE * self.scores(jobs, present, cluster)[..., 0] * present
        mask = blocks["jobs_mask"]
        empty = mask.shape[1] - jobs.shape[1]
        extra = mask
        if self.num_noise_weights:
            own = jobs * present.unsqueeze(-1)
            mean = own.sum(1, keepdim=True) / present.sum(1).clamp(min=1.0)[:, None, None]
            extra = nn.functional.pad((own - mean) * present.unsqueeze(-1), (0, 0, 0, empty)).flatten(1)
        return torch.cat((nn.functional.pad(scores, (0, empty)), extra), -1)

    def forward_critic(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, 2 width]: a sum over jobs, because each adds to what is to come, and the whole."""
        jobs, present, cluster = self._jobs(blocks)
        repeated = cluster.unsqueeze(1).expand(-1, jobs.shape[1], -1)
        hidden = self.job(torch.cat((jobs, repeated), -1)) * present.unsqueeze(-1)
        total = hidden.sum(1)
        mean = total / present.sum(1, keepdim=True).clamp(min=1.0)
        return torch.cat((total, self.whole(torch.cat((mean, cluster), -1))), -1)

    def forward(self, blocks: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the outputs of both."""
        return self.forward_actor(blocks), self.forward_critic(blocks)


class JobAttentionPolicy(ActorCriticPolicy):
    """A policy that gives every job a score, for PPO of Stable-Baselines3 on the ids `...-Jobs-v0`.

    `PPO(JobAttentionPolicy, make_vec_env("ringyard/Sharing-Jobs-v0", 8), n_steps=512, batch_size=512,
    n_epochs=4, learning_rate=3e-3)`; with small batches it gets worse. One network scores all
    jobs, each by its own features, those of the cluster and, by attention, those of the other jobs
    (`ScoreNetwork`). It begins with equal scores. No weight depends on the number of jobs.

    Args:
        observation_space: Dict space with the blocks of `ringyard.mdp.observations.live_jobs`.
        action_space: Box space of `ringyard.mdp.actions.Scores` without scores of GPU types.
        lr_schedule: learning rate as a function of the remaining progress, from 1 to 0.
        use_sde: whether noise depends on the features of a job and lasts a rollout, or `sde_sample_freq`
            decisions. Else each score has its own noise at each decision. PPO of Stable-Baselines3 passes it.
        width: hidden units.
        log_std_init: logarithm of the standard deviation of the scores at the beginning, with `use_sde` of
            the weight of each feature. Assumption: -3.
        optimizer_kwargs: arguments of Adam.

    Raises:
        ConfigurationError: other spaces, or an argument out of its range.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Any,
        use_sde: bool = False,
        width: int = 32,
        log_std_init: float = -3.0,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        require("width", width, Annotated[int, "[2, 65536]"])
        require("log_std_init", log_std_init, Annotated[float, "[-20, 2]"])
        names = observation_space.spaces if isinstance(observation_space, spaces.Dict) else ()
        fits = set(names) == set(_BLOCKS) and isinstance(action_space, spaces.Box)
        if not fits or action_space.shape != observation_space["jobs_mask"].shape:  # type: ignore[index]
            raise ConfigurationError(
                f"JobAttentionPolicy got {observation_space} and {action_space}; expected"
                f" a Dict with {', '.join(_BLOCKS)} and a Box with a score for each job, as in"
                " ringyard/Sharing-Jobs-v0"
            )
        self.width = width
        options = {
            "use_sde": use_sde,
            "log_std_init": log_std_init,
            "optimizer_kwargs": optimizer_kwargs,
            **READS_BLOCKS,
        }
        super().__init__(observation_space, action_space, lr_schedule, **options)

    def _build_mlp_extractor(self) -> None:
        assert isinstance(self.observation_space, spaces.Dict)
        self.mlp_extractor = _JobNetwork(self.observation_space, self.width, self.use_sde)  # type: ignore[assignment]

    def _build(self, lr_schedule: Any) -> None:
        distribution: Any = _ScoresWithLastingNoise if self.use_sde else _ScoresOfJobs
        self.action_dist = distribution(spaces.flatdim(self.action_space))
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        network: Any = self.mlp_extractor
        self.log_std = nn.Parameter(torch.full((network.num_noise_weights or 1,), float(self.log_std_init)))
        optimizer: Any = self.optimizer_class
        self.optimizer = optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def reset_noise(self, n_envs: int = 1) -> None:
        """Draw weights of the noise for each of `n_envs` clusters."""
        distribution: Any = self.action_dist
        distribution.noise = torch.randn(n_envs, len(self.log_std), device=self.device)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        data: dict[str, Any] = super()._get_constructor_parameters()
        known = ("observation_space", "action_space", "lr_schedule", "log_std_init", "optimizer_kwargs")
        return {name: data[name] for name in known} | {"width": self.width, "use_sde": self.use_sde}
