"""A schedule as people see it: who held which GPUs, who waited, which links were shared."""

from ringyard.drawing.bars import Bars, Rings, bars_of, rings_of
from ringyard.drawing.history import History, history_of

__all__ = ["Bars", "History", "Rings", "bars_of", "history_of", "rings_of"]
