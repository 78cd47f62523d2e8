"""Networks for Stable-Baselines3: a pointer network and a bfloat16 MLP. The policy that uses a network."""

import itertools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor, nn

from ringyard.checks import require
from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.observations import queue_cluster_and_resources
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.learner import restore_network, restore_spaces, weights_with_spaces

_BLOCKS = queue_cluster_and_resources().blocks
_MASKS = [block.name for block in _BLOCKS if block.is_mask]
_FEATURES = {block.name: len(block.features) for block in _BLOCKS}
#: {first block of a kind of item: all blocks that describe it}. Only the first is required.
_ITEMS: dict[str, list[str]] = {}
for _each in dict.fromkeys(block.axis for block in _BLOCKS):
    _names = [block.name for block in _BLOCKS if block.axis == _each and not block.is_mask]
    _ITEMS[_names[0]] = _names
_REQUIRED = [*_ITEMS, *_MASKS]
_SUPPORTED = [*itertools.chain(*_ITEMS.values()), *_MASKS]


class IdentityExtractor(BaseFeaturesExtractor, nn.Identity):
    """Features extractor that passes the blocks of an observation on unchanged."""

    def __init__(self, observation_space: spaces.Space[Any]) -> None:
        super().__init__(observation_space, features_dim=1)


#: arguments of a policy of Stable-Baselines3 with a network that reads blocks and keeps its initial weights
READS_BLOCKS: dict[str, Any] = {"features_extractor_class": IdentityExtractor, "ortho_init": False}


def items_of(blocks: dict[str, Tensor], name: str, *shape: int) -> Tensor:
    """Concatenate the blocks [B, ...] of items of the kind `name` to `[B, *shape, features]`."""
    parts = [blocks[part] for part in _ITEMS[name] if part in blocks]
    shaped = [part.reshape(part.shape[0], *shape, -1) for part in parts]
    return shaped[0] if len(shaped) == 1 else torch.cat(shaped, -1)


class _Items(NamedTuple):
    """The items of one kind that are present in a batch of B observations, without empty slots."""

    values: Tensor  #: [items, features] features
    places: Tensor  #: [items] index of the slot among all slots of the batch
    rows: Tensor  #: [items] index of the observation
    shares: Tensor  #: [B, 1] 1 / number of items of each observation

    @classmethod
    def of(cls, blocks: dict[str, Tensor], name: str) -> "_Items":
        """Return the items that are present in `blocks` of the kind `name`, which has a mask."""
        mask = blocks[f"{name}_mask"]
        places = mask.flatten().nonzero()[:, 0]
        values = items_of(blocks, name, mask.shape[1]).flatten(0, 1).index_select(0, places)
        shares = mask.sum(1, keepdim=True).clamp(min=1.0).reciprocal()
        return cls(values, places, places // mask.shape[1], shares)

    def mean(self, values: Tensor) -> Tensor:
        """Return [B, width] means of values [items, width] in each observation, 0 without items."""
        total = values.new_zeros(len(self.shares), values.shape[1]).index_add(0, self.rows, values)
        return total * self.shares


class PointerNetwork(nn.Module):
    """Network with a logit per (waiting job, template), per (running job, adjustment), and for waiting.

    A permutation of waiting jobs permutes their logits. Servers and running jobs enter as means. No weight
    depends on the numbers of jobs and servers, so that trained weights fit any cluster. Empty slots are not
    computed.

    Source: the idea of a pointer network (Vinyals et al. 2015), with feed-forward layers.

    Args:
        space: Dict with the blocks of `ringyard.mdp.observations.queue_and_cluster` or of
            `ringyard.mdp.observations.queue_cluster_and_resources`.
        num_actions: size of the action space: jobs x templates + 1, then adjustments of running jobs.
        width: hidden units.
    """

    def __init__(self, space: spaces.Dict, num_actions: int, width: int) -> None:
        super().__init__()
        size = {name: spaces.flatdim(box) for name, box in space.spaces.items()}
        num_waiting, num_running = size["waiting_mask"], size["running_mask"]
        num_rules = size["placements"] // (num_waiting * _FEATURES["placements"])
        num_items = {"waiting": num_waiting, "placements": num_waiting * num_rules, "running": num_running}
        num_items |= {"servers": size["servers"] // _FEATURES["servers"], "cluster": 1}
        totals = {item: sum(size.get(block, 0) for block in blocks) for item, blocks in _ITEMS.items()}
        features = {item: total // num_items[item] for item, total in totals.items()}
        self.adjustments = (num_actions - num_waiting * num_rules - 1) // num_running
        self.job_features = features["waiting"]
        self.latent_dim_pi = num_actions
        self.latent_dim_vf = width
        narrow = width // 2
        self.job = nn.Sequential(nn.Linear(self.job_features, width), nn.ReLU(), nn.Linear(width, width))
        self.running = nn.Sequential(nn.Linear(features["running"], width), nn.ReLU())
        self.server = nn.Sequential(nn.Linear(features["servers"], narrow), nn.ReLU())
        parts = nn.Linear(2 * width + narrow + features["cluster"], width)
        self.context = nn.Sequential(parts, nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.context_to_job = nn.Linear(width, width)
        self.job_to_rule = nn.Linear(width, narrow)
        self.placement = nn.Linear(features["placements"], narrow)
        self.rule = nn.Parameter(torch.zeros(num_rules, narrow))
        self.start = nn.Linear(narrow, 1)
        hidden = nn.Linear(2 * width, width)
        self.stop = nn.Sequential(hidden, nn.ReLU(), nn.Linear(width, max(self.adjustments, 1)))
        self.wait = nn.Linear(width, 1)
        for head in (self.start, self.stop[-1], self.wait):
            nn.init.orthogonal_(head.weight, 0.01)  # type: ignore[arg-type]
            nn.init.zeros_(head.bias)  # type: ignore[arg-type]

    def _encode(self, blocks: dict[str, Tensor]) -> tuple[_Items, Tensor, _Items, Tensor, Tensor]:
        """Return (waiting, their encodings [jobs, width], running, theirs, that of the whole [B, width])."""
        waiting, running = _Items.of(blocks, "waiting"), _Items.of(blocks, "running")
        jobs, running_jobs = self.job(waiting.values), self.running(running.values)
        num_servers = blocks["servers"].flatten(1).shape[1] // _FEATURES["servers"]
        servers = self.server(items_of(blocks, "servers", num_servers)).sum(1) / num_servers
        means = waiting.mean(torch.relu(jobs)), running.mean(running_jobs)
        pooled = (*means, servers, items_of(blocks, "cluster"))
        return waiting, jobs, running, running_jobs, self.context(torch.cat(pooled, 1))

    def forward(self, blocks: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return ([B, actions] logits, 0 in empty slots, and [B, width] input of the value head)."""
        waiting, jobs, running, running_jobs, context = self._encode(blocks)
        job_context = self.context_to_job(context).index_select(0, waiting.rows)
        per_job = self.job_to_rule(torch.relu(jobs + job_context))
        slots, rules = blocks["waiting_mask"].shape[1], len(self.rule)
        placements = (
            items_of(blocks, "placements", slots, rules).flatten(0, 1).index_select(0, waiting.places)
        )
        hidden = (self.placement(placements) + self.rule).add_(per_job.unsqueeze(1)).relu_()
        starts = context.new_zeros(len(context) * slots, rules)
        starts = starts.index_copy(0, waiting.places, self.start(hidden).squeeze(-1))
        logits = [starts.view(len(context), -1)]
        if self.adjustments:
            changes = context.new_zeros(blocks["running_mask"].numel(), self.adjustments)
            values = self.stop(torch.cat((running_jobs, context.index_select(0, running.rows)), 1))
            logits.append(changes.index_copy(0, running.places, values).view(len(context), -1))
        logits.append(self.wait(context))
        return torch.cat(logits, 1), context

    def forward_actor(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, actions] logits."""
        return self.forward(blocks)[0]

    def forward_critic(self, blocks: dict[str, Tensor]) -> Tensor:
        """Return [B, width] input of the value head."""
        return self._encode(blocks)[-1]


class PointerPolicy(MaskableActorCriticPolicy):
    """A policy around `PointerNetwork`, for MaskablePPO and plain PPO.

    Args:
        observation_space: Dict space of the environment.
        action_space: Discrete space of the environment.
        lr_schedule: learning rate as a function of the remaining progress, from 1 to 0.
        use_sde: must be False. PPO of Stable-Baselines3 passes it.
        width: hidden units.
        optimizer_kwargs: arguments of Adam.
    """

    network_class: Any = PointerNetwork  #: class of its network

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Any,
        use_sde: bool = False,
        width: int = 64,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if use_sde:
            raise ConfigurationError("use_sde is True; expected False, because actions are discrete")
        require("width", width, Annotated[int, "[2, 65536]"])
        blocks = observation_space.spaces if isinstance(observation_space, spaces.Dict) else {}
        if set(_REQUIRED) - set(blocks):
            raise ConfigurationError(
                f"the pointer policy needs a Dict observation with {', '.join(_REQUIRED)}"
                f"; got {observation_space} (with flat=true, use another policy)"
            )
        for name in blocks:
            if name not in _SUPPORTED:
                raise ConfigurationError(
                    f"the pointer policy does not support the observation's block {name!r}; it reads"
                    f" {', '.join(_SUPPORTED)}; choose an observation with these blocks only, or add the"
                    " block to ringyard_agents/learning/policies.py"
                )
        self.width = width
        options = {"optimizer_kwargs": optimizer_kwargs, **READS_BLOCKS}
        super().__init__(observation_space, action_space, lr_schedule, **options)

    def _build_mlp_extractor(self) -> None:
        assert isinstance(self.observation_space, spaces.Dict)
        assert isinstance(self.action_space, spaces.Discrete)
        self.mlp_extractor = self.network_class(self.observation_space, int(self.action_space.n), self.width)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()
        optimizer: Any = self.optimizer_class
        self.optimizer = optimizer(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        data: dict[str, Any] = super()._get_constructor_parameters()
        known = ("observation_space", "action_space", "lr_schedule", "optimizer_kwargs")
        return {name: data[name] for name in known} | {"width": self.width}


class NetworkLearner(ABC):
    """Base class of learners with a policy network of Stable-Baselines3.

    Subclasses set `_network`, the network being trained, in `setup`, and implement `_build_network`.
    """

    flat: bool
    masked: bool
    _network: Any

    @abstractmethod
    def _build_network(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> BasePolicy:
        """Return a new network for these spaces."""

    @property
    def policy(self) -> "GreedyPolicy":
        """The current policy."""
        return GreedyPolicy(self._network, self.flat, self.masked)

    def load_weights(self, weights: Checkpoint) -> None:
        """Start from these weights. See `Learner.load_weights`."""
        restore_network(self._network, weights)

    def weights(self) -> Checkpoint:
        """Copy the weights of the network, and its spaces."""
        return weights_with_spaces(self._network)

    def load(self, saved: Checkpoint) -> "GreedyPolicy":
        """Make the policy of saved `weights`."""
        network = self._build_network(*restore_spaces(saved.metadata["spaces"]))
        restore_network(network, saved)
        return GreedyPolicy(network, self.flat, self.masked)


@dataclass(eq=False)
class GreedyPolicy:
    """Policy that takes the most likely action of a network.

    A pointer network runs on any cluster. A network on flat rows needs rows as long as in training.
    """

    network: BasePolicy  #: a policy network of Stable-Baselines3 or sb3-contrib
    flat: bool  #: True if it reads one row of numbers per cluster, False if it reads blocks
    masked: bool  #: True if it chooses among valid actions only, which needs a maskable network

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        self.network.set_training_mode(False)

    def act(self, observations: Any, masks: NDArray[np.bool_]) -> NDArray[Any]:
        """Return [clusters] actions, or [clusters, (1 + T) N] scores.

        Args:
            observations: [clusters, size] if flat, else {block: [clusters, length]}.
            masks: [clusters, actions] True where an action is valid. For scores: [clusters, N] True where
                there is a job.

        Raises:
            CheckpointError: rows or actions have other lengths than in training, or an output of the network
                is not finite.
        """
        if self.flat and observations.shape[1:] != self.network.observation_space.shape:
            raise CheckpointError(
                f"the agent reads rows of {spaces.flatdim(self.network.observation_space)} numbers and got"
                f" {observations.shape[1]}; expected the cluster and actions of its training (experiment=NAME"
                " as in its run.json), or an agent that fits any cluster (agent=maskable_pointer)"
            )
        space = self.network.action_space
        slots = masks.shape[1]
        fits = space.n == slots if isinstance(space, spaces.Discrete) else spaces.flatdim(space) % slots == 0
        if not fits:
            raise CheckpointError(
                f"the agent's action space is {space} and there are {slots} actions or jobs to score"
                "; its weights and its actions are not of the same training"
            )
        tensors = obs_as_tensor(observations, self.network.device)
        network: Any = self.network
        with torch.no_grad():
            options = {"action_masks": masks} if self.masked else {}
            try:
                actions = network._predict(tensors, deterministic=True, **options)
            except (RuntimeError, ValueError) as error:  # other blocks than in training, or huge weights
                raise CheckpointError(f"the agent's network cannot choose an action: {error}") from error
        array = actions.cpu().numpy().astype(space.dtype)
        if network.squash_output:  # SAC's actor gives numbers in [-1, 1]
            array = network.unscale_action(array)
        return np.clip(array, space.low, space.high) if isinstance(space, spaces.Box) else array
