"""Checks of the values that Python functions of users return."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import shown
from ringyard.errors import PluginError


def qualified_name(function: Any) -> str:
    """Return module and name of a function or method, or of the class of another object."""
    found = function if hasattr(function, "__qualname__") else type(function)
    return f"{found.__module__}.{found.__qualname__}"


def validate_array(
    returned: Any, count: int, function: Any, quantity: str, low: float = -np.inf, finite: bool = True
) -> NDArray[np.float64]:
    """Return the [count] numbers that a function of the user returned as float64, else raise a PluginError.

    A broadcast number stays one. NaN is never valid, infinity unless `finite`. `quantity` is for errors.
    """
    try:
        values = np.asarray(returned)
    except ValueError:  # numbers mixed with lists
        values = np.asarray(returned, dtype=object)
    if values.shape != (count,) or values.dtype.kind not in "iufb":
        kind = f"{values.dtype} {values.shape}" if isinstance(returned, np.ndarray) else shown(returned)
        name = qualified_name(function)
        raise PluginError(f"{name} returned {kind} as {quantity}; expected {count} numbers")
    if values.strides == (0,) and count > 1:
        return np.broadcast_to(validate_array(values[:1], 1, function, quantity, low, finite), count)
    values = values.astype(np.float64)
    valid = (values >= low) & (np.isfinite(values) if finite else True)
    if not valid.all():
        row = int(valid.argmin())
        kind = "a finite number" if finite else "a number"
        least = f", {low:g} or more" if low > -np.inf else ""
        raise PluginError(
            f"{qualified_name(function)} returned {values[row]} as {quantity} of row {row}"
            f"; expected {kind}{least}"
        )
    return values
