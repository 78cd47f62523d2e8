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
from ringyard_agents.learning.policies import GreedyPolicy, PointerPolicy
from ringyard_agents.learning.score_networks import ScorePolicy
from ringyard_agents.runs.atomic_write import atomic_write

_MASK = "action_mask"  # input: `info["action_mask"]` of the environment
_JOBS = 5  # of the example that a network for any number of jobs is traced with


class _Graph(nn.Module):
    """The choice of a policy as a function of tensors of the given `sizes`: its `act` without checks."""

    def __init__(self, policy: ScorePolicy | GreedyPolicy) -> None:
        super().__init__()
        self.network: Any = policy.network
        self.flat, self.masked, self.space = policy.flat, getattr(policy, "masked", True), None
        if isinstance(policy, ScorePolicy):
            self.sizes = {
                "jobs": _JOBS * policy.network.job_features,
                "cluster": policy.network.cluster_features,
            }
        else:
            self.space, seen = self.network.action_space, self.network.observation_space
            blocks = {"observation": seen} if self.flat else seen.spaces
            self.sizes = {name: spaces.flatdim(block) for name, block in blocks.items()}
        if self.masked:
            self.sizes[_MASK] = _JOBS if self.space is None else spaces.flatdim(self.space)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return (action) for scores and weights, (action, logits) for discrete actions."""
        blocks = dict(zip(self.sizes, inputs, strict=True))
        mask = blocks.pop(_MASK, None)
        if self.space is None:
            assert mask is not None
            present, jobs = mask.float(), blocks["jobs"].reshape(*mask.shape, -1)
            scores = self.network(jobs, present, blocks["cluster"]).clamp(-1.0, 1.0) * present.unsqueeze(-1)
            return (scores.transpose(1, 2).flatten(1),)
        observation: Any = blocks["observation"] if self.flat else blocks
        features = self.network.extract_features(observation, self.network.pi_features_extractor)
        outputs = self.network.action_net(self.network.mlp_extractor.forward_actor(features))
        if isinstance(self.space, spaces.Box):
            low, high = (torch.as_tensor(one).flatten() for one in (self.space.low, self.space.high))
            return (outputs[:, : len(low)].clamp(low, high),)
        logits = outputs if mask is None else outputs.masked_fill(mask == 0, -1e8)
        return logits.argmax(1), logits


def export_policy(policy: Any, file: Path, metadata: str = "") -> tuple[list[str], list[str]]:
    """Write a policy to an ONNX file, with `metadata`, and return the names of its (inputs, outputs).

    Inputs are float32 [clusters, numbers] as the environment gives them, and `action_mask` as int8. The
    numbers of clusters, jobs and servers stay open where the network allows.
    """
    import onnx  # noqa: F401 torch needs both: a missing one is an error that says what to install
    import onnxscript  # noqa: F401

    graph = _Graph(policy).eval()
    example = {name: torch.ones(2, size) for name, size in graph.sizes.items()}
    if graph.masked:
        example[_MASK] = example[_MASK].to(torch.int8)
    axes: dict[int, Any] = {0: torch.export.Dim("clusters")}
    if graph.space is None or isinstance(policy.network, PointerPolicy | JobAttentionPolicy):
        axes[1] = torch.export.Dim.AUTO
    inputs, outputs = list(example), ["action", "logits"][: 1 + isinstance(graph.space, spaces.Discrete)]
    names: dict[str, Any] = {"input_names": inputs, "output_names": outputs}
    logging.disable(logging.CRITICAL)  # notes on libraries that are not installed
    try:
        with warnings.catch_warnings(action="ignore"):
            dynamic_shapes = {"inputs": (axes,) * len(inputs)}
            program: Any = torch.onnx.export(
                graph, tuple(example.values()), **names, dynamic_shapes=dynamic_shapes, verbose=False
            )
    except Exception as error:  # of a network of the user
        name, reason = type(policy.network).__name__, f"{error.__cause__ or error}".partition("\n")[0]
        raise CheckpointError(f"{name} cannot be written as an ONNX graph: {reason}") from error
    finally:
        logging.disable(logging.NOTSET)
    program.model.metadata_props["ringyard"] = metadata
    with atomic_write(file) as partial:
        program.save(partial)
    return inputs, outputs


def export(agent: str, file: str, trust: Trust = ()) -> None:
    """Write an agent (run folder, agent.safetensors or zoo:NAME) to an ONNX file and print its inputs."""
    checkpoint = find_checkpoint(agent)
    policy, observation, _ = load_policy(checkpoint, trust)
    features = {one.name: [feature.name for feature in one.features] for one in observation.blocks}
    about = {"agent": read_agent(checkpoint, trust)[0], "features": features}
    inputs, outputs = export_policy(policy, Path(file).expanduser(), json.dumps(about))
    print(f"file: {file}\ninputs: {', '.join(inputs)}\noutputs: {', '.join(outputs)}")
