"""Feature tables of the documentation, written from the blocks."""

import inspect
from collections.abc import Callable, Iterable, Sequence

from ringyard.mdp.observations.blocks import Block
from ringyard.mdp.observations.observation import Observation

__all__ = ["feature_table", "observations_page"]

_INTRODUCTION = """# Observations

What an agent sees, feature by feature. This page is generated from the blocks in `ringyard.mdp.observations`;
`pytest tests/envs/test_observations.py --update-docs` writes it anew.

An observation is a Dict of float32 blocks, or, with `flat=True`, the same numbers in the same order as one
Box. A block has a row of features for each item: V visible waiting jobs, T templates, R running slots, N live
jobs that get a score, S servers. `env.metadata["blocks"]` has each block's shape and the names of its
features. Values are within [-10, 10], most within [0, 1]; `s(x, c)` is x / (x + c). Unused slots are 0 and
have a 0 in the block's mask.
"""


def feature_table(blocks: Sequence[Block]) -> str:
    """A Markdown table with a row for each feature.

    Args:
        blocks: in the order written.
    """
    rows = ["| block | # | feature | meaning | unit before scaling |", "|---|---|---|---|---|"]
    for block in blocks:
        label = f"{block.name} [{block.label}]"
        for number, feature in enumerate(block.features):
            rows.append(f"| {label} | {number} | {feature.name} | {feature.meaning} | {feature.unit} |")
            label = ""
    return "\n".join(rows).replace("|  |", "| |") + "\n"


def observations_page(factories: Iterable[Callable[[], Observation]]) -> str:
    """The page docs/observations.md; a block that an earlier observation has is named, not repeated.

    Args:
        factories: functions that make an observation and say in their docstring's first line what it is.
    """
    page = [_INTRODUCTION]
    described: set[Block] = set()
    for factory in factories:
        blocks = factory().blocks
        new = [block for block in blocks if block not in described]
        old = ", ".join(f"`{block.name}`" for block in blocks if block in described)
        page.append(f"## `{factory.__name__}`\n\n{(inspect.getdoc(factory) or '').splitlines()[0]}\n")
        page += [f"The blocks above ({old}), followed by:\n"] if old else []
        page.append(feature_table(new))
        described.update(new)
    return "\n".join(page)
