"""What plain Python functions of others answer, held to what was asked of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import shown
from ringyard.errors import PluginError


def named(function: Any) -> str:
    """Module and name of a function or method, or of an object's class."""
    found = function if hasattr(function, "__qualname__") else type(function)
    return f"{found.__module__}.{found.__qualname__}"


def numbers(
    answer: Any, count: int, function: Any, what: str, low: float = -np.inf, finite: bool = True
) -> NDArray[np.float64]:
    """[count] what a function answered, as float64.

    Args:
        answer: of the function.
        count: how many numbers were asked for.
        function: to blame.
        what: they are, for the error.
        low: the least that makes sense.
        finite: infinity makes no sense; NaN never does.

    Raises:
        PluginError: anything else.
    """
    try:
        values = np.asarray(answer)
    except ValueError:  # some are numbers and some are lists
        values = np.asarray(answer, dtype=object)
    if values.shape != (count,) or values.dtype.kind not in "iufb":
        kind = f"{values.dtype} {values.shape}" if isinstance(answer, np.ndarray) else shown(answer)
        raise PluginError(f"{named(function)} returned {kind} as {what}; expected {count} numbers")
    if values.strides == (0,) and count > 1:  # one number, given for all
        return np.broadcast_to(numbers(values[:1], 1, function, what, low, finite), count)
    values = values.astype(np.float64)
    right = values >= low
    if finite:
        right &= np.isfinite(values)
    if not right.all():
        row = int(right.argmin())
        kind = "a finite number" if finite else "a number"
        least = f", {low:g} or more" if low > -np.inf else ""
        raise PluginError(
            f"{named(function)} returned {values[row]} as {what} of row {row}; expected {kind}{least}"
        )
    return values
