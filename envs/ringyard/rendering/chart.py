"""A whole schedule as a Gantt chart of GPUs over time, drawn with matplotlib: images and vector graphics."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ringyard.rendering import style
from ringyard.rendering.history import Bars, Rings, ScheduleHistory, bars_of, rings_of

PICTURES = (".png", ".pdf", ".svg")  #: suffixes of files that `save_gantt` writes

_INCHES = (12.8, 7.2)


def _boxes(left: Any, right: Any, low: Any, high: Any) -> NDArray[np.float64]:
    """Return the corners [boxes, 4, 2] of rectangles."""
    corners = np.stack(np.broadcast_arrays(left, low, right, low, right, high, left, high), axis=-1)
    return np.asarray(corners, np.float64).reshape(-1, 4, 2)


class Chart:
    """A figure of the schedule `history`, 12.8 x 7.2 inches: a line for each GPU, a colour for each job."""

    def __init__(self, history: ScheduleHistory) -> None:
        self.figure = Figure(figsize=_INCHES)
        self._history = history
        cluster = history.cluster
        self._servers = np.asarray(cluster.server_of_gpu)
        gaps = style.GAP * np.arange(1, cluster.num_servers + 1)
        self._tops = np.asarray(cluster.first_gpu_of_server) + gaps
        self._bottoms = self._tops + np.asarray(cluster.gpus_per_server)
        self._size, unit = style.time_unit(history.now - history.begins)
        edges = {"left": 0.075, "right": 0.985, "top": 0.925, "bottom": 0.075, "hspace": 0.1}
        ratios = {"height_ratios": [5, 1.15], **edges}
        gantt, counts = self.figure.subplots(2, 1, sharex=True, gridspec_kw=ratios)
        self.figure.text(0.012, 0.972, style.summary(history), va="center", size=11, weight="bold")
        rings = rings_of(history)
        self._draw_servers(gantt)
        self._draw_bars(gantt, bars_of(history))
        self._draw_rings(gantt, rings)
        self._draw_counts(counts, rings)
        right = max(history.now, history.begins + 1e-6)
        gantt.set_xlim(history.begins / self._size, right / self._size)
        counts.set_xlabel(f"time ({unit})", size=9, labelpad=1)

    def _add(self, axes: Any, boxes: Any, faces: Any, hatch: str | None = None) -> None:
        collection = PolyCollection(boxes, facecolors=faces, linewidths=0.0, hatch=hatch)
        axes.add_collection(collection, autolim=False)

    def _draw_servers(self, axes: Any) -> None:
        cluster, history = self._history.cluster, self._history
        axes.set_ylim(self._bottoms[-1] + style.GAP / 2, 0)
        every = max(1, round(len(self._tops) / 32))
        types = cluster.gpu_types if len(self._tops) <= 20 else ()
        shown = range(0, len(self._tops), every)
        names = [f"server {s}" + (f"\n{types[s]}" if types else "") for s in shown]
        axes.set_yticks((self._tops + self._bottoms)[::every] / 2, names, size=8)
        axes.tick_params(length=0, labelbottom=False)
        axes.spines[:].set_visible(False)
        right = max(history.now, history.begins + 1e-6) / self._size
        self._add(axes, _boxes(history.begins / self._size, right, self._line(0), self._line(1)), style.FREE)
        down = history.segments[history.segments["job"] < 0]
        stop = np.minimum(down["stop_seconds"], history.now)
        tops, bottoms = self._tops[down["server"]], self._bottoms[down["server"]]
        boxes = _boxes(down["start_seconds"] / self._size, stop / self._size, tops, bottoms)
        self._add(axes, boxes, style.DOWN, hatch="////")

    def _line(self, depth: float, gpu: Any = None) -> NDArray[np.float64]:
        """Return the vertical positions [gpus], `depth` line heights below the tops of GPUs' lines."""
        gpus = np.arange(len(self._servers)) if gpu is None else gpu
        return np.asarray(gpus + style.GAP * (self._servers[gpus] + 1) + 0.06 + 0.88 * depth, np.float64)

    def _draw_bars(self, axes: Any, bars: Bars) -> None:
        count = int(bars.job.max(initial=-1)) + 1
        colours = np.array([style.job_colour(j) for j in range(count)]).reshape(-1, 3)
        high = self._line(0, bars.gpu) + 0.88 * bars.lane / bars.lanes
        low = high + 0.88 / bars.lanes
        left, right, far = bars.start / self._size, bars.stop / self._size, bars.spans
        self._add(axes, _boxes(left, right, high, low), colours[bars.job])
        self._add(axes, _boxes(left[far], right[far], high[far], high[far] + 0.14), style.EDGE)

    def _draw_rings(self, axes: Any, rings: Rings) -> None:
        shown = (rings.rings > 1) & (rings.link < len(self._tops))
        tops = self._tops[rings.link[shown]]
        left, right = rings.start[shown] / self._size, rings.stop[shown] / self._size
        faces = [style.SHARED_LINK[min(n, 4) - 2] for n in rings.rings[shown].tolist()]
        self._add(axes, _boxes(left, right, tops - 0.62, tops - 0.12), faces)

    def _draw_counts(self, axes: Any, rings: Rings) -> None:
        history = self._history
        busiest_times, busiest = _busiest_link(rings, history)
        held = history.segments
        events = (history.submit_seconds, history.end_seconds, held["start_seconds"], held["stop_seconds"])
        times = np.unique(np.concatenate([*events, [history.begins, history.now]]))
        times = times[(times >= history.begins) & (times <= history.now)]
        waiting = history.waiting_at(times)
        steps = {"drawstyle": "steps-post"}
        axes.plot(times / self._size, waiting, color=style.WAITING, label="jobs waiting", **steps)
        label = "rings on the busiest link"
        axes.plot(busiest_times / self._size, busiest, color=style.RINGS, lw=1.0, label=label, **steps)
        axes.set_ylim(-0.2, max(4.0, 1.35 * max(waiting.max(initial=0), busiest.max(initial=0))))
        axes.legend(loc="upper left", fontsize=8, frameon=False, ncols=2)
        axes.grid(alpha=0.25)
        axes.tick_params(labelsize=8)
        axes.locator_params(axis="y", integer=True, nbins=4)


def _busiest_link(rings: Rings, history: ScheduleHistory) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (times, rings from each time on, on the link that has most then)."""
    times = np.unique(np.concatenate([rings.start, rings.stop, [history.begins, history.now]]))
    most = np.zeros(len(times), np.int64)
    first, last = np.searchsorted(times, rings.start), np.searchsorted(times, rings.stop)
    for begin, end, count in zip(first.tolist(), last.tolist(), rings.rings.tolist(), strict=True):
        most[begin:end] = np.maximum(most[begin:end], count)
    return times, most


def save_gantt(file: Path, history: ScheduleHistory) -> None:
    """Write a schedule, `history`, to a `file` with suffix .png, .pdf or .svg."""
    Chart(history).figure.savefig(file, dpi=150)
