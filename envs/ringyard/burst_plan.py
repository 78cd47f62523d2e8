"""Burst-parallel plans of DeepPool (Park et al., MLSys 2022): a number of GPUs for each group of layers."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringyard.checks import NonNegative, Positive, checked
from ringyard.errors import ConfigurationError

#: bandwidth between GPUs of one server, bytes per second, and seconds of a transfer's start (public code)
_BANDWIDTH, _LATENCY = 2.66e11, 40e-6
_SHORT_SECONDS = 300e-6  #: groups that take less on one GPU may run on any number of GPUs (public code)


@checked("profile.layer_groups")
@dataclass(frozen=True)
class LayerGroup:
    """Layers of a model that follow one another, and that a job runs on the same GPUs."""

    gradient_bytes: NonNegative  #: bytes of its gradients
    input_bytes: NonNegative  #: bytes that it reads of each sample
    seconds: Mapping[Positive, Positive]  #: {samples: forward and backward seconds on one GPU}

    def seconds_on(self, num_gpus: int, batch_size: int) -> float:
        """Return its seconds on `num_gpus` GPUs: of their share of the samples, and of the gradients."""
        if batch_size / num_gpus not in self.seconds:
            raise ConfigurationError(
                f"layer groups have seconds for {', '.join(f'{n:g}' for n in self.seconds)} samples on a GPU"
                f", and a plan asks for {batch_size / num_gpus:g}; expected another batch or number of GPUs"
            )
        gradients = self.gradient_bytes / _BANDWIDTH if num_gpus > 1 else 0.0
        return self.seconds[batch_size / num_gpus] + gradients


@dataclass(frozen=True)
class BurstPlan:
    """How a job runs an iteration."""

    num_gpus: tuple[int, ...]  #: [groups] GPUs
    seconds: float  #: of the iteration
    idle_share: float  #: mean over the job's GPUs of the share of the iteration in which they do not compute


def burst_plan(
    groups: Sequence[LayerGroup], num_gpus: int, batch_size: int, amplification_limit: float | None
) -> BurstPlan:
    """Return the plan with the shortest iteration on up to `num_gpus` GPUs (a power of two).

    FOUND (public code): a group runs on 1, 2, 4, ... GPUs. Their GPU time must be at most
    `amplification_limit` times that on one GPU, unless the group is short. From a to b GPUs the activations
    of |batch / a - batch / b| samples move, forward and backward. None: plain data parallelism, every group
    on all GPUs. Not as published: branches are not planned, a transfer does not count as GPU time.
    """
    counts = [num_gpus] if amplification_limit is None else [2**n for n in range(num_gpus.bit_length())]

    def allowed(group: LayerGroup, count: int) -> bool:
        alone = group.seconds_on(1, batch_size)
        if amplification_limit is None or count == 1 or alone <= _SHORT_SECONDS:
            return True
        return group.seconds_on(count, batch_size) * count <= amplification_limit * alone

    def plan(chosen: Sequence[int]) -> BurstPlan:
        seconds = sum(group.seconds_on(n, batch_size) for group, n in zip(groups, chosen, strict=True))
        for group, (a, b) in zip(groups[1:], itertools.pairwise(chosen), strict=True):
            if a != b:
                moved = abs(batch_size / a - batch_size / b) * group.input_bytes
                seconds += 2.0 * (moved / _BANDWIDTH + _LATENCY)
        busy = sum(group.seconds[batch_size / n] * n for group, n in zip(groups, chosen, strict=True))
        return BurstPlan(tuple(chosen), seconds, 1.0 - busy / (num_gpus * seconds))

    options = [[count for count in counts if allowed(group, count)] for group in groups]
    return min((plan(chosen) for chosen in itertools.product(*options)), key=lambda one: one.seconds)
