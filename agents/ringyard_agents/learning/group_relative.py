"""Group-relative policy optimisation (GRPO): PPO with advantages within groups of episodes, no critic."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from ringyard.checks import NonNegative, PositiveInt, checked
from ringyard.errors import ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard_agents.learning import ppo
from ringyard_agents.learning.cloning import CloneTeacher
from ringyard_agents.learning.episodes import EpisodeBatch, EpisodeRunner, concatenate_rows
from ringyard_agents.learning.learner import random_state, restore_random_state
from ringyard_agents.learning.process_group import to_device

Credit = Literal["episode", "time_aligned"]


def group_advantages(episodes: EpisodeBatch, group_size: int, credit: Credit) -> NDArray[np.float32]:
    """Return [steps, envs] advantages of decisions relative to the other episodes of their group.

    Returns differ more between workloads than between policies, so the episodes of a group share a workload.

    * "episode": a decision in episode i of group G has the advantage (R_i - mean R_G) / std R_G, where R are
      undiscounted returns (GRPO with outcome supervision: Shao et al. 2024, section 4.1.2).
    * "time_aligned": a decision at time t has the advantage (Q_i(t) - mean_G Q(t)) / std, where Q(t) is the
      reward to go from t on, linear between the decisions of an episode, and std is over all decisions of the
      group. The mean is an input-dependent baseline (Mao et al. 2019).

    Episodes must last until all jobs have ended. `group_size` neighbouring ones share a workload. Advantages
    have standard deviation 1 within each group, and are 0 where not valid.
    """
    rewards, times, valid, ends = episodes
    to_go = np.cumsum((rewards * valid)[::-1].astype(np.float64), axis=0)[::-1]
    advantages = np.zeros_like(to_go)
    for first in range(0, rewards.shape[1], group_size):
        group = slice(first, first + group_size)
        own, at, in_episode = to_go[:, group], times[:, group], valid[:, group]
        if credit == "episode":
            centered = np.broadcast_to(own[0] - own[0].mean(), own.shape)
            std = centered[0].std()
        else:
            interpolated = [
                np.interp(at, np.append(at[mask, b], ends[first + b]), np.append(own[mask, b], 0.0))
                for b, mask in enumerate(in_episode.T)
            ]
            centered = own - np.mean(interpolated, axis=0)
            std = centered[in_episode].std()
        rounding = 1e-6 * np.abs(own).max()  # rewards are float32: smaller differences are rounding errors
        advantages[:, group] = centered / (std + rounding + 1e-12)
    return (advantages * valid).astype(np.float32)


@checked("agent")
@dataclass(kw_only=True)
class GroupRelative(ppo.ClippedLearner):
    """PPO's clipped objective without a critic, for discrete actions with masks or scores of jobs.

    In each round, every cluster runs one whole episode, and the clusters of a group run the same workload.
    It differs from `ppo.PPO` in the advantages: a decision is compared with the other episodes of its group,
    and not with what a critic expects.

    Source: PPO (Schulman et al. 2017), advantages within groups (Shao et al. 2024).
    """

    group_size: Annotated[int, "[2, 2147483647]"] = 8  #: episodes of each workload in a round
    credit: Credit = "time_aligned"  #: how decisions share their episode's return, see `group_advantages`
    n_epochs: PositiveInt = 3
    batch_size: PositiveInt = 4096  #: decisions
    ent_coef: NonNegative = 1e-3
    teacher: CloneTeacher | None = None  #: imitated before learning, needs masks

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.teacher is not None and not self.masked:
            raise ConfigurationError("agent.teacher needs a maskable agent.network; set agent.teacher=null")

    def _make_clusters(self, config: EnvConfig) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        local = self._local_clusters
        self._runner = EpisodeRunner(config, local.stop - local.start)
        return config.observation.space(config.cluster, config.actions), config.actions.space

    @property
    def _local_clusters(self) -> slice:
        """The clusters of this process among those of all processes."""
        if self.num_envs % self.group_size:
            expected = f"expected a multiple of agent.group_size, {self.group_size}"
            raise ConfigurationError(f"agent.num_envs is {self.num_envs}; {expected}")
        groups = self.num_envs // self.group_size
        process_group, size = self.hardware.process_group, self.group_size
        return process_group.local_slice("agent.num_envs / agent.group_size", groups, size)

    def _prepare(self) -> dict[str, float]:
        """Fit the network of a new run to the teacher, in process 0 for all. Returns {tag: value}."""
        begins, teacher = self._round == 0, self.teacher
        self._round = max(self._round, 1)
        if teacher is None or not begins:
            return {}
        process_group, scalars = self.hardware.process_group, {}
        if process_group.rank == 0:
            recorder, steps = teacher.recorder(self._runner.config), teacher.demonstration_steps
            while steps > 0:
                self._begin_round()
                steps -= len(self._runner.continue_episodes(recorder, max_decisions=steps).times)
            scalars = teacher.fit(self._network, recorder, self._seed)
        result = self._network.state_dict(), random_state(), self._round, scalars
        weights, random, self._round, scalars = process_group.broadcast(result)
        if process_group.rank > 0:
            self._network.load_state_dict(weights)
            restore_random_state(random)
        return scalars

    def _begin_round(self) -> None:
        self._runner.reset(self._draw_workloads(self._round))
        self._round += 1
        self._runner.batch.workload_cache.prefetch(self._draw_workloads(self._round))

    def _draw_workloads(self, number: int) -> NDArray[np.int64]:
        """Draw [local clusters] indices of job tables for round `number`. Each group has its own stream."""
        local, num_workloads = self._local_clusters, self._runner.config.num_workloads
        groups = range(local.start // self.group_size, local.stop // self.group_size)
        streams = [np.random.default_rng((self._seed, group)) for group in groups]
        drawn = [stream.integers(num_workloads, size=number + 1)[-1] for stream in streams]
        return np.repeat(drawn, self.group_size)

    def _collect(self) -> tuple[ppo.DecisionBatch, NDArray[np.int64], dict[str, float]]:
        self._network.set_training_mode(False)
        self._begin_round()
        records: list[tuple[Any, ...]] = []

        @torch.inference_mode()
        def act(observations: Any, masks: NDArray[np.bool_], clusters: NDArray[np.int64]) -> Any:
            distribution, _ = ppo.evaluate_network(self._network, observations, masks, with_values=False)
            actions = ppo.sample_actions(distribution, self._noise()[clusters])
            log_probs = distribution.log_prob(to_device(self._network.device, actions)).cpu().numpy()
            records.append((observations, masks, actions, log_probs))
            return ppo.in_bounds(actions, self._runner.config.actions.space)

        # A job starts once, and waiting ends at an arrival or a completion. Longer ones are cut off.
        most = 4 * self._runner.config.workload.num_jobs + 8
        episodes = self._runner.continue_episodes(act, max_decisions=most)
        advantages = group_advantages(episodes, self.group_size, self.credit)[episodes.valid]
        observations, masks, actions, log_probs = map(concatenate_rows, zip(*records, strict=True))
        local_rows = self.hardware.process_group.order_decisions(episodes.valid)
        batch = ppo.DecisionBatch(observations, masks, actions, log_probs, advantages, advantages)
        return batch, local_rows, self._count(episodes)

    def _noise(self) -> NDArray[np.float32]:
        """Draw [local clusters, actions] noise. All processes draw that of all clusters, to stay in step."""
        return ppo.draw_noise(self._runner.config.actions.space, self.num_envs)[self._local_clusters]

    def _count(self, episodes: EpisodeBatch) -> dict[str, float]:
        """Count a round's decisions, and draw noise as often as the longest process. Returns {tag: mean}."""
        process_group, steps = self.hardware.process_group, len(episodes.times)
        for _ in range(int(process_group.gather(np.array([steps])).max()) - steps):
            self._noise()
        sums = [(episodes.rewards * episodes.valid).sum(dtype=np.float64), episodes.valid.sum()]
        returns, decisions = process_group.sum_values(np.array(sums))
        self.decisions += int(decisions)
        clusters = self.num_envs
        return {"rollout/ep_rew_mean": returns / clusters, "rollout/ep_len_mean": decisions / clusters}
