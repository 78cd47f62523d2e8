"""`Feature`, the documentation of a number that an agent sees, and its scaling."""

from dataclasses import dataclass

from ringyard.compiled import kernel


@dataclass(frozen=True)
class Feature:
    """Documentation of one feature, as in `gpus: Annotated[f4, Feature("log2(GPUs)", "GPUs")]`."""

    meaning: str  #: formula. s(x, c) stands for x / (x + c).
    unit: str = ""  #: of the quantity before scaling. "" for shares, ranks and flags.
    name: str = ""  #: of the field


@kernel
def squash(value: float, scale: float) -> float:
    """Return `value` / (`value` + `scale`): 0 at 0, 1/2 at `scale`, 1 at infinity."""
    return value / (value + scale)
