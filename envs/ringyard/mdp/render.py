"""What `ClusterEnv.render` gives: pictures as arrays, or a window."""

import importlib.util
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.rendering.history import history_of
from ringyard.state.arrays import State

MODES = ("human", "rgb_array")

#: seconds that a window is left to draw itself
_PAUSE = 1e-3


class Screen:
    """Draws an environment. The figure is made with the first picture.

    Copies and pickles make figures of their own.

    Args:
        mode: one of `MODES`.
        cluster: to be drawn.

    Raises:
        ConfigurationError: matplotlib is not installed, or "human" finds no display.
    """

    def __init__(self, mode: str, cluster: Cluster) -> None:
        if importlib.util.find_spec("matplotlib") is None:
            raise ConfigurationError(
                f"render_mode={mode!r} needs matplotlib, which is not installed: pip install"
                ' "ringyard[render]"'
            )
        #: MPLBACKEND=agg asks for windows that are not seen, as tests do
        self._shows = mode == "human" and os.environ.get("MPLBACKEND", "").lower() != "agg"
        if self._shows:
            _require_display()
        self.mode = mode
        self._cluster = cluster
        self._chart: Any = None

    def draw(self, state: State, b: int) -> NDArray[np.uint8] | None:
        """[720, 1280, 3] of cluster b in "rgb_array" mode; "human" shows it and gives None."""
        from ringyard.rendering.chart import Chart

        if self._chart is None:
            self._chart = Chart(self._cluster, figure=self._window())
        self._chart.draw(history_of(state, b, self._cluster))
        if self.mode == "rgb_array":
            return np.asarray(self._chart.pixels())
        canvas = self._chart.figure.canvas
        canvas.draw()
        if self._shows:
            canvas.start_event_loop(_PAUSE)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._chart is not None and self._shows:
            from matplotlib import pyplot

            pyplot.close(self._chart.figure)
        self._chart = None

    def _window(self) -> Any:
        if not self._shows:
            return None
        from matplotlib import pyplot

        figure = pyplot.figure("Ringyard", figsize=(12.8, 7.2), dpi=100)
        figure.show()
        return figure

    def __getstate__(self) -> dict[str, Any]:
        """Without the figure."""
        return {**self.__dict__, "_chart": None}


def _require_display() -> None:
    """Raise a ConfigurationError if matplotlib can open no window here."""
    import matplotlib
    from matplotlib import backends, pyplot

    registry: Any = vars(backends)["backend_registry"]
    backend = matplotlib.get_backend()  # chooses one that works here, if none is chosen
    why = f"matplotlib's backend is {backend}, which opens none"
    try:
        pyplot.switch_backend(backend)
        if registry.resolve_backend(backend)[1] is not None:
            return
    except ImportError as error:
        why = str(error)
    raise ConfigurationError(
        f"render_mode='human' needs a window, but {why}; give render_mode='rgb_array', or use a display with"
        " MPLBACKEND=tkagg (qtagg, ...), or set MPLBACKEND=agg to draw without a window"
    )
