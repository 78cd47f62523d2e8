"""The command `export`: the policy of an agent as an ONNX graph, from observations to its action."""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ringyard.errors import CheckpointError
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.learning.agent_file import find_checkpoint, load_policy, read_agent
from ringyard_agents.learning.job_policy import JobAttentionPolicy
from ringyard_agents.learning.policies import PointerPolicy
from ringyard_agents.learning.score_networks import ScoreNetwork
from ringyard_agents.runs.atomic_write import atomic_write

_MASK = "action_mask"  # input: `info["action_mask"]` of the environment
_JOBS = 5  # of the example that a network for any number of jobs is traced with


class _Graph(nn.Module):
    """The `act` of a policy without its checks, as a function of tensors [clusters, size] of `sizes`."""

    def __init__(self, policy: Any) -> None:
        super().__init__()
        self.network, self.flat, self.space = policy.network, policy.flat, None
        if isinstance(self.network, ScoreNetwork):
            sizes = (_JOBS * self.network.job_features, self.network.cluster_features, _JOBS)
            self.sizes = dict(zip(("jobs", "cluster", _MASK), sizes, strict=True))
            return
        self.space, seen = self.network.action_space, self.network.observation_space
        seen = {"observation": seen} if self.flat else seen.spaces
        masks = {_MASK: self.space} if policy.masked else {}
        self.sizes = {name: spaces.flatdim(space) for name, space in {**seen, **masks}.items()}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (action) for scores and weights, (action, logits) for discrete actions."""
        blocks: dict[str, Any] = dict(zip(self.sizes, inputs, strict=True))
        mask = blocks.pop(_MASK, None)
        if self.space is None:
            present, jobs = mask.float(), blocks["jobs"].reshape(*mask.shape, -1)
            scores = self.network(jobs, present, blocks["cluster"]).clamp(-1.0, 1.0) * present.unsqueeze(-1)
            return (scores.transpose(1, 2).flatten(1),)
        observation = blocks["observation"] if self.flat else blocks
        features = self.network.extract_features(observation, self.network.pi_features_extractor)
        outputs = self.network.action_net(self.network.mlp_extractor.forward_actor(features))
        if isinstance(self.space, spaces.Box):
            low, high = (torch.as_tensor(one).flatten() for one in (self.space.low, self.space.high))
            return (outputs[:, : len(low)].clamp(low, high),)
        logits = outputs if mask is None else outputs.masked_fill(mask == 0, -1e8)
        return logits.argmax(1), logits


def export(agent: str, file: str, trust: Trust = ()) -> None:
    """Write an agent (run folder, agent.safetensors or zoo:NAME) to an ONNX file and print its inputs.

    Inputs are float32 [clusters, numbers] as the environment gives them, and `action_mask` as int8. The
    numbers of clusters, jobs and servers stay open where the network allows.
    """
    import onnx  # noqa: F401 torch needs both: a missing one is an error that says what to install
    import onnxscript  # noqa: F401

    checkpoint = find_checkpoint(agent)
    policy, observation, _ = load_policy(checkpoint, trust)
    features = {one.name: [feature.name for feature in one.features] for one in observation.blocks}
    network: Any = getattr(policy, "network", None)
    axes: dict[int, Any] = {0: torch.export.Dim("clusters")}
    if isinstance(network, ScoreNetwork | PointerPolicy | JobAttentionPolicy):
        axes[1] = torch.export.Dim.AUTO
    logging.disable(logging.CRITICAL)  # notes on libraries that are not installed
    try:
        graph = _Graph(policy).eval()
        kinds = {_MASK: torch.int8}
        example = [torch.ones(2, size, dtype=kinds.get(name)) for name, size in graph.sizes.items()]
        outputs = ["action", "logits"][: 1 + isinstance(graph.space, spaces.Discrete)]
        names: dict[str, Any] = {"input_names": [*graph.sizes], "output_names": outputs}
        names["dynamic_shapes"] = {"inputs": (axes,) * len(example)}
        with warnings.catch_warnings(action="ignore"):
            program: Any = torch.onnx.export(graph, (*example,), **names, verbose=False)
    except Exception as error:  # of a network of the user
        name, reason = type(network or policy).__name__, f"{error.__cause__ or error}".partition("\n")[0]
        raise CheckpointError(f"{name} cannot be written as an ONNX graph: {reason}") from error
    finally:
        logging.disable(logging.NOTSET)
    about = {"agent": read_agent(checkpoint, trust)[0], "features": features}
    program.model.metadata_props["ringyard"] = json.dumps(about)
    with atomic_write(Path(file).expanduser()) as partial:
        program.save(partial)
    print(f"file: {file}\ninputs: {', '.join(graph.sizes)}\noutputs: {', '.join(outputs)}")
