"""`Chart`: a schedule as a Gantt chart of GPUs over time, with waiting jobs and shared links."""

import colorsys
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.animation import FFMpegWriter, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.rendering.history import Bars, Rings, ScheduleHistory, bars_of, rings_of

#: suffixes of files that `save_gantt` writes
PICTURES = (".png", ".pdf", ".svg")

_FRAMES_PER_SECOND = 10
_FFMPEG_SUFFIXES = (".mp4", ".mkv", ".mov", ".webm")

_INCHES = (12.8, 7.2)
_GAP = 0.9  # space between two servers, in lines of a GPU
_MAX_LISTED = 18  # waiting jobs in the list
_FREE, _DOWN, _EDGE = "#eceef1", "#b9bec6", "#15181d"
_SHARED_LINK = ("#f6c244", "#ef7d22", "#c81e1e")  # links with 2, 3, and more rings
#: (shortest time in seconds that is shown in the unit, seconds of the unit, its name)
_UNITS = ((172800.0, 86400.0, "d"), (5400.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def colour(job: int) -> tuple[float, float, float]:
    """Return the RGB colour of a row of the job table. Neighbours are far apart on the colour wheel."""
    return colorsys.hsv_to_rgb(
        (job * 0.61803398875) % 1.0, 0.35 + 0.3 * (job % 3) / 2, 0.78 + 0.14 * (job % 2)
    )


def _unit(seconds: float) -> tuple[float, str]:
    """Return (seconds of the unit in which such a time is easy to read, its name)."""
    return next((size, name) for least, size, name in _UNITS if seconds >= least)


def _duration_text(seconds: float) -> str:
    if seconds != seconds:
        return "none yet"
    size, name = _unit(seconds)
    return f"{seconds / size:.{0 if size == 1.0 else 1}f} {name}"


def _boxes(left: Any, right: Any, low: Any, high: Any) -> NDArray[np.float64]:
    """Return the corners [boxes, 4, 2] of rectangles."""
    corners = np.stack(np.broadcast_arrays(left, low, right, low, right, high, left, high), axis=-1)
    return np.asarray(corners, np.float64).reshape(-1, 4, 2)


class Chart:
    """A figure that `draw` updates with one schedule after the other.

    Args:
        cluster: servers and GPUs of the schedules.
        live: whether to list the waiting jobs and the present number of rings on each link. Otherwise the
            time axis takes the whole width.
        figure: matplotlib figure to draw into, such as that of a window. None: a new one, 12.8 x 7.2 inches.
        dpi: pixels per inch of a new figure.
    """

    def __init__(self, cluster: Cluster, live: bool = True, figure: Any = None, dpi: int = 100) -> None:
        self.figure = Figure(figsize=_INCHES, dpi=dpi) if figure is None else figure
        if figure is None:
            FigureCanvasAgg(self.figure)
        self._servers = np.asarray(cluster.server_of_gpu)
        first, counts = np.asarray(cluster.first_gpu_of_server), np.asarray(cluster.gpus_per_server)
        self._tops = first + _GAP * np.arange(cluster.num_servers) + _GAP
        self._bottoms = self._tops + counts
        self._colours = np.zeros((0, 3))
        widths = [11.5, 1.1, 2.6] if live else [1]
        edges = {"left": 0.075, "right": 0.985, "top": 0.925, "bottom": 0.075, "wspace": 0.05, "hspace": 0.1}
        grid = self.figure.add_gridspec(2, len(widths), width_ratios=widths, height_ratios=[5, 1.15], **edges)
        self._title = self.figure.text(0.012, 0.972, "", va="center", size=11, weight="bold")
        self._gantt = self._gantt_axes(self.figure.add_subplot(grid[0, 0]), cluster)
        self._counts = self.figure.add_subplot(grid[1, 0], sharex=self._gantt)
        self._counts_lines()
        self._live = live
        if live:
            self._links = self.figure.add_subplot(grid[0, 1], sharey=self._gantt)
            self._live_axes(self._links, self.figure.add_subplot(grid[:, 2]))

    def _gantt_axes(self, axes: Any, cluster: Cluster) -> Any:
        axes.set_ylim(self._bottoms[-1] + _GAP / 2, 0)
        every = max(1, round(len(self._tops) / 32))
        centres = (self._tops + self._bottoms)[::every] / 2
        names = [
            f"server {s}"
            + (f"\n{cluster.gpu_types[s]}" if cluster.gpu_types and len(self._tops) <= 20 else "")
            for s in range(0, len(self._tops), every)
        ]
        axes.set_yticks(centres, names, size=8)
        axes.tick_params(length=0, labelbottom=False)
        self._free, self._down, self._bars, self._marks, self._rings = (
            axes.add_collection(PolyCollection([], facecolors=face, linewidths=0.0, zorder=z), autolim=False)
            for z, face in enumerate((_FREE, _DOWN, "none", _EDGE, "none"), 1)
        )
        self._down.set_hatch("////")
        axes.spines[:].set_visible(False)
        return axes

    def _counts_lines(self) -> None:
        axes: Any = self._counts
        (self._waiting,) = axes.plot([], [], drawstyle="steps-post", color="#3a5fcd", label="jobs waiting")
        (self._busiest,) = axes.plot(
            [], [], drawstyle="steps-post", color=_SHARED_LINK[1], lw=1.0, label="rings on the busiest link"
        )
        axes.legend(loc="upper left", fontsize=8, frameon=False, ncols=2)
        axes.grid(alpha=0.25)
        axes.tick_params(labelsize=8)
        axes.locator_params(axis="y", integer=True, nbins=4)

    def _live_axes(self, links: Any, queue: Any) -> None:
        links.tick_params(left=False, labelleft=False, bottom=False, labelbottom=False)
        links.set_title("rings on its link", size=8)
        links.spines[:].set_visible(False)
        queue.set(xlim=(0, 1), ylim=(_MAX_LISTED + 0.5, -0.5))
        queue.axis("off")
        self._link_boxes, self._ages = (
            axes.add_collection(PolyCollection([], linewidths=0.0), autolim=False) for axes in (links, queue)
        )
        self._queue_texts = [
            queue.text(0.02, i, "", size=8, va="center", clip_on=True) for i in range(_MAX_LISTED + 1)
        ]

    def draw(self, history: ScheduleHistory) -> None:
        """Draw the schedule `history` until its time `now`."""
        begin, now = history.begins, history.now
        size, unit = _unit(now - begin)
        bars, rings = bars_of(history), rings_of(history)
        right = max(now, begin + 1e-6) / size
        self._gantt.set_xlim(begin / size, right)
        self._counts.set_xlabel(f"time ({unit})", size=9, labelpad=1)
        self._free.set_verts(_boxes(begin / size, right, self._line(0), self._line(1)))
        self._draw_down(history, size)
        self._draw_bars(bars, size)
        self._draw_rings(rings, size)
        self._draw_counts(history, rings, size)
        jobs, running, waiting = map(len, (history.submit_seconds, history.running, history.waiting))
        self._title.set_text(
            f"t = {_duration_text(now)}     {running} running     {waiting} waiting     "
            f"{len(history.finished)} of {jobs} finished     mean JCT {_duration_text(history.mean_jct)}"
        )
        if self._live:
            self._draw_links(rings, now)
            self._draw_queue(history)

    def _line(self, depth: float, gpu: Any = None) -> NDArray[np.float64]:
        """Return the vertical positions [gpus], `depth` line heights below the tops of GPUs' lines."""
        gpus = np.arange(len(self._servers)) if gpu is None else gpu
        return np.asarray(gpus + _GAP * (self._servers[gpus] + 1) + 0.06 + 0.88 * depth, np.float64)

    def _draw_down(self, history: ScheduleHistory, size: float) -> None:
        down = history.segments[history.segments["job"] < 0]
        stop = np.minimum(down["stop_seconds"], history.now)
        tops, bottoms = self._tops[down["server"]], self._bottoms[down["server"]]
        self._down.set_verts(_boxes(down["start_seconds"] / size, stop / size, tops, bottoms))

    def _draw_bars(self, bars: Bars, size: float) -> None:
        if len(bars.job) and bars.job.max() >= len(self._colours):
            self._colours = np.array([colour(j) for j in range(2 * int(bars.job.max()) + 2)])
        high = self._line(0, bars.gpu) + 0.88 * bars.lane / bars.lanes
        low = high + 0.88 / bars.lanes
        left, right = bars.start / size, bars.stop / size
        self._bars.set_verts(_boxes(left, right, high, low))
        self._bars.set_facecolors(self._colours[bars.job])
        far = bars.spans
        self._marks.set_verts(_boxes(left[far], right[far], high[far], high[far] + 0.14))

    def _draw_rings(self, rings: Rings, size: float) -> None:
        shown = (rings.rings > 1) & (rings.link < len(self._tops))
        tops = self._tops[rings.link[shown]]
        left, right = rings.start[shown] / size, rings.stop[shown] / size
        self._rings.set_verts(_boxes(left, right, tops - 0.62, tops - 0.12))
        self._rings.set_facecolors([_SHARED_LINK[min(n, 4) - 2] for n in rings.rings[shown].tolist()])

    def _draw_counts(self, history: ScheduleHistory, rings: Rings, size: float) -> None:
        here = history.submit_seconds <= history.now
        held = history.segments[history.segments["job"] >= 0]
        starts = np.unique(held[["job", "start_seconds", "stop_seconds"]])
        up = (history.submit_seconds[here], starts["stop_seconds"])
        down = (history.end_seconds[here], starts["start_seconds"])
        times, waiting = _running_sum(np.concatenate(up), np.concatenate(down), history.now)
        if not history.is_complete:  # count back from the jobs that wait now
            waiting = waiting - waiting[-1] + len(history.waiting)
        self._waiting.set_data(times / size, waiting)
        busiest_times, busiest = _busiest_link(rings, history)
        self._busiest.set_data(busiest_times / size, busiest)
        since = waiting[times >= history.begins]
        self._counts.set_ylim(-0.2, max(4.0, 1.35 * max(since.max(initial=0), busiest.max(initial=0))))

    def _draw_links(self, rings: Rings, now: float) -> None:
        live = (rings.stop >= now) & (rings.link < len(self._tops))
        link, count = rings.link[live], rings.rings[live]
        most = max(4, int(count.max(initial=0)))
        self._links.set_xlim(0, most)
        middle = (self._tops[link] + self._bottoms[link]) / 2
        self._link_boxes.set_verts(_boxes(np.zeros(len(link)), count, middle - 1.0, middle + 1.0))
        faces = ["#c4cad3" if n == 1 else _SHARED_LINK[min(n, 4) - 2] for n in count.tolist()]
        self._link_boxes.set_facecolors(faces)

    def _draw_queue(self, history: ScheduleHistory) -> None:
        jobs = history.waiting
        ages = history.now - history.submit_seconds[jobs]
        shown = jobs[:_MAX_LISTED].tolist()
        longest = float(ages.max(initial=1e-9))
        rows = np.arange(1, len(shown) + 1)
        self._ages.set_verts(_boxes(0.0 * rows, ages[: len(shown)] / longest, rows - 0.42, rows + 0.42))
        self._ages.set_facecolors([(*colour(j), 0.55) for j in shown])
        more = len(jobs) - len(shown)
        head = f"{len(jobs)} waiting: job, GPUs, time since submission" if len(jobs) else "no job waits"
        lines = [head + (f" ({more} more)" if more else "")]
        lines += [
            f"{j}:  {history.num_gpus[j]} GPUs,  {_duration_text(age)}"
            for j, age in zip(shown, ages.tolist(), strict=False)
        ]
        for text, line in zip(self._queue_texts, lines + [""] * _MAX_LISTED, strict=False):
            text.set_text(line)

    def pixels(self) -> NDArray[np.uint8]:
        """Return the picture [height, width, 3] as RGB."""
        canvas: Any = self.figure.canvas
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _running_sum(
    up: NDArray[np.float64], down: NDArray[np.float64], now: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return (times of `up` and `down` until `now`, number of `up` minus `down` by each time)."""
    events = np.concatenate([up, down, [now]])
    change = np.repeat([1, -1, 0], [len(up), len(down), 1])[events <= now]
    times, which = np.unique(events[events <= now], return_inverse=True)
    return times, np.cumsum(np.bincount(which, change)).astype(np.int64)


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
    chart = Chart(history.cluster, live=False)
    chart.draw(history)
    chart.figure.savefig(file, dpi=150)


def require_video(setting: str, file: Path) -> None:
    """Raise a ConfigurationError unless a video with this suffix can be written.

    Args:
        setting: name of the setting, for the error.
        file: with suffix .gif, or one that needs ffmpeg.
    """
    suffix = file.suffix.lower()
    if suffix != ".gif" and suffix not in _FFMPEG_SUFFIXES:
        raise ConfigurationError(f"{setting} is {str(file)!r}; expected .gif, {', '.join(_FFMPEG_SUFFIXES)}")
    if suffix != ".gif" and not (importlib.util.find_spec("imageio_ffmpeg") or FFMpegWriter.isAvailable()):
        raise ConfigurationError(
            f'{setting} is {str(file)!r}, which needs ffmpeg: pip install "ringyard[render]", or name a .gif'
        )


def _writer(suffix: str) -> Any:
    if suffix == ".gif":
        return PillowWriter(_FRAMES_PER_SECOND)
    if not FFMpegWriter.isAvailable():
        import imageio_ffmpeg

        rcParams["animation.ffmpeg_path"] = imageio_ffmpeg.get_ffmpeg_exe()
    return FFMpegWriter(_FRAMES_PER_SECOND)


def save_video(file: Path, history: ScheduleHistory, frames: int) -> Iterator[int]:
    """Write a video of equally distant moments, from the first arrival to the end.

    Args:
        file: a path that `require_video` accepts.
        history: the whole schedule.
        frames: number of pictures, 1 or more.

    Yields:
        Number of pictures drawn so far. The file is complete after the last.
    """
    chart = Chart(history.cluster)
    writer = _writer(file.suffix.lower())
    with writer.saving(chart.figure, str(file), dpi=100):
        for drawn, moment in enumerate(np.linspace(history.begins, history.now, frames + 1)[1:], 1):
            chart.draw(history.until(float(moment)))
            writer.grab_frame()
            yield drawn
