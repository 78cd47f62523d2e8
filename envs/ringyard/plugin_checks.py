"""Checks of what plain Python functions of users return."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import shown
from ringyard.errors import PluginError


def qualified_name(function: Any) -> str:
    """Module and name of a function or method, or of an object's class."""
    found = function if hasattr(function, "__qualname__") else type(function)
    return f"{found.__module__}.{found.__qualname__}"


def validate_array(
    answer: Any, count: int, function: Any, what: str, low: float = -np.inf, finite: bool = True
) -> NDArray[np.float64]:
    """[count] the numbers that a function returned, as float64; NaN is refused.

    Args:
        answer: what the function returned; one number that NumPy has broadcast stays one.
        count: how many numbers were asked for.
        function: named in the error.
        what: name of the numbers for the error.
        low: the smallest number that makes sense.
        finite: refuse infinity as well.

    Raises:
        PluginError: another shape, no numbers, or one out of range.
    """
    try:
        values = np.asarray(answer)
    except ValueError:  # some are numbers and some are lists
        values = np.asarray(answer, dtype=object)
    if values.shape != (count,) or values.dtype.kind not in "iufb":
        kind = f"{values.dtype} {values.shape}" if isinstance(answer, np.ndarray) else shown(answer)
        raise PluginError(f"{qualified_name(function)} returned {kind} as {what}; expected {count} numbers")
    if values.strides == (0,) and count > 1:
        return np.broadcast_to(validate_array(values[:1], 1, function, what, low, finite), count)
    values = values.astype(np.float64)
    right = (values >= low) & (np.isfinite(values) if finite else True)
    if not right.all():
        row = int(right.argmin())
        kind = "a finite number" if finite else "a number"
        least = f", {low:g} or more" if low > -np.inf else ""
        raise PluginError(
            f"{qualified_name(function)} returned {values[row]} as {what} of row {row};"
            f" expected {kind}{least}"
        )
    return values
