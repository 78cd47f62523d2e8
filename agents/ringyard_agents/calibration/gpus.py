"""Compute seconds by GPU type: measured, or derived from other GPU types by fitted factors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ringyard.errors import ConfigurationError
from ringyard_agents.calibration.fits import ComputeLine


@dataclass(frozen=True)
class ComputeTime:
    """Compute seconds of one model on one GPU type, with their source."""

    line: ComputeLine  #: seconds by number of samples
    source: str  #: the measurement, or how it was derived
    batch: float | None = None  #: samples per GPU if only one batch was measured


@dataclass(frozen=True)
class GpuFactor:
    """Ratio of seconds per sample on two GPU types."""

    kind: str  #: kind of the models. "": every kind.
    factor: float  #: geometric mean over models
    models: tuple[str, ...]  #: models that were measured on both types
    error: float  #: mean relative leave-one-out error, NaN with one model


def fit_gpu_factor(ratios: Mapping[str, float], kind: str = "") -> GpuFactor:
    """Fit the factor between two GPU types to {model: ratio}; all models are of the `kind`."""
    models = sorted(ratios)
    logs = np.log([ratios[model] for model in models])
    error = float("nan")
    if len(logs) > 1:
        others = (logs.sum() - logs) / (len(logs) - 1)
        error = float(np.abs(np.exp(others - logs) - 1.0).mean())
    return GpuFactor(kind, float(np.exp(logs.mean())), tuple(models), error)


def derive_compute_times(
    measured: Mapping[str, ComputeTime],
    kind: str,
    chains: Mapping[str, Mapping[str, Any]],
    factors: Mapping[str, Mapping[str, GpuFactor]],
    types: Sequence[str],
) -> Mapping[str, ComputeTime]:
    """Derive the compute times of GPU `types` that were not measured; measured ones are unchanged.

    Seconds per sample are multiplied by `factors` {GPU type: {kind: factor}} to the type that `chains` names
    under "from". Fixed seconds, which are mostly the host's, are kept, unless a model has fixed seconds only.
    """

    def chain(gpu_type: str) -> list[str]:
        """Return a GPU type, the type that its factor refers to, and so on to the root."""
        way = [gpu_type]
        while way[-1] in chains:
            way.append(chains[way[-1]]["from"])
        return way

    def derived(gpu_type: str) -> ComputeTime:
        """Derive from the measured type with the fewest factors in between, the first among equals."""
        ways: dict[str, list[tuple[str, float]]] = {}  # {measured type: [(type, exponent of its factor)]}
        here = chain(gpu_type)
        for known in measured:
            there = chain(known)
            common = next((step for step in here if step in there), None)
            if common is not None:
                down, up = there[: there.index(common)], here[: here.index(common)]
                ways[known] = [*((step, -1.0) for step in down), *((step, 1.0) for step in reversed(up))]
        if not ways:
            raise ConfigurationError(f"calibration: no factor leads from {', '.join(measured)} to {gpu_type}")
        start = min(ways, key=lambda known: len(ways[known]))
        total, texts = 1.0, []
        for step, exponent in ways[start]:
            factor = factors[step].get(kind) or factors[step][""]
            total *= factor.factor**exponent
            of = f"{len(factor.models)} {factor.kind or 'other'} models".replace("other ", "")
            wrong = "" if np.isnan(factor.error) else f", leave one out {factor.error:.0%}"
            texts.append(f"{step}/{chains[step]['from']} {factor.factor:.3g} ({of}{wrong})")
        fixed, sample = measured[start].line
        source = f"x {total:.3g}; {'; '.join(texts)}"
        if sample > 0:
            return ComputeTime(ComputeLine(fixed, sample * total), f"derived: {start}, per sample {source}")
        return ComputeTime(ComputeLine(fixed * total, 0.0), f"derived: {start} {source}")

    return {gpu_type: measured.get(gpu_type) or derived(gpu_type) for gpu_type in types}
