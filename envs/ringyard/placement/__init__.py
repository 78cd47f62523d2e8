"""Rules that turn "GPUs for job j" into GPU ids; heuristics and agents share them."""

from ringyard.placement.draft import Draft
from ringyard.placement.rule import PLACE, PlacementRule
from ringyard.placement.rules import (
    consolidate,
    first_fit,
    least_contended,
    lwf,
    pack,
    random_gpus,
    spread,
)

__all__ = [
    "PLACE",
    "Draft",
    "PlacementRule",
    "consolidate",
    "first_fit",
    "least_contended",
    "lwf",
    "pack",
    "random_gpus",
    "spread",
]
