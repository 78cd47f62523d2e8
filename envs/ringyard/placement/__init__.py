"""Rules that turn "GPUs for job j" into GPU ids; heuristics and agents share them."""

from ringyard.placement.fragments import least_fragmenting
from ringyard.placement.rule import FindGpus, PlacementRule, place
from ringyard.placement.rules import (
    consolidate,
    fastest,
    first_fit,
    least_contended,
    lwf,
    pack,
    random_gpus,
    spread,
)
from ringyard.placement.share import share, share_any

__all__ = [
    "FindGpus",
    "PlacementRule",
    "consolidate",
    "fastest",
    "first_fit",
    "least_contended",
    "least_fragmenting",
    "lwf",
    "pack",
    "place",
    "random_gpus",
    "share",
    "share_any",
    "spread",
]
