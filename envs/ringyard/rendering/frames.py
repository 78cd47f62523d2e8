"""Small pictures of a schedule so far, drawn with NumPy and Pillow: frames of `render` and of videos."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringyard.cluster import Cluster
from ringyard.errors import ConfigurationError
from ringyard.rendering import style
from ringyard.rendering.history import Rings, ScheduleHistory, gpus_of, history_of, rings_of
from ringyard.state.arrays import State

#: [height, width] of a picture, in pixels
FRAME_SHAPE = 400, 640
_FRAMES_PER_SECOND = 10

#: left, top, right, bottom of the parts of a picture, in pixels
_GANTT, _LINKS, _QUEUE = (58, 36, 456, 304), (462, 36, 486, 304), (498, 36, 638, 396)
_COUNTS = (58, 318, 456, 380)
_LINE = 14  # height of a line of text
#: places in the palette: from `_SHARED` on links with 2, 3, more rings, from `_JOBS` on jobs, then pale ones
_BLANK, _FREE, _DOWN, _EDGE, _SHARED, _RINGS, _WAITING, _JOBS = 0, 1, 2, 3, 4, 5, 7, 8
_NUM_COLOURS = (256 - _JOBS) // 2
_WINDOW_SECONDS = 1e-3  #: seconds that the event loop of the window runs after each picture


def _palette() -> NDArray[np.uint8]:
    from PIL.ImageColor import getrgb

    named = [*map(getrgb, ("#ffffff", style.FREE, style.DOWN, style.EDGE, *style.SHARED_LINK, style.WAITING))]
    jobs = 255 * np.array([style.job_colour(j) for j in range(_NUM_COLOURS)])
    return np.rint(np.concatenate([named, jobs, 255 * 0.45 + 0.55 * jobs])).astype(np.uint8)


def _cells(
    row: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (interval, index into a flat [rows, width]) of all cells that the intervals cover."""
    lengths = np.maximum(right - left, 0)
    interval = np.repeat(np.arange(len(row)), lengths)
    first = np.repeat(row * width + left - np.cumsum(lengths) + lengths, lengths)
    return interval, first + np.arange(len(interval))


class FrameDrawer:
    """Draws one schedule after the other.

    A picture has a line for each GPU over time, with a colour for each job. Strips above a server show two or
    more rings on its link. On the right are the rings on each link now, and the waiting jobs. A GPU that is
    shared shows the newest of its jobs above the oldest.

    Args:
        cluster: servers and GPUs of the schedules.
        scale: size of a picture, in multiples of `FRAME_SHAPE`.
    """

    def __init__(self, cluster: Cluster, scale: int = 1) -> None:
        from PIL import ImageFont

        self.scale, self._cluster = scale, cluster
        self._palette, self._servers = _palette().tobytes(), np.asarray(cluster.server_of_gpu)
        # the bitmap font takes a tenth of the time
        small = scale == 1
        self._font: Any = ImageFont.load_default_imagefont() if small else ImageFont.load_default(10 * scale)
        first, counts = np.asarray(cluster.first_gpu_of_server), np.asarray(cluster.gpus_per_server)
        tops = first + style.GAP * np.arange(cluster.num_servers)
        _, top, _, bottom = (scale * edge for edge in _GANTT)
        #: pixels of a line of a GPU
        self._pitch = (bottom - top) / (tops[-1] + style.GAP + counts[-1])
        self._middles = top + self._pitch * (tops + style.GAP + counts / 2)
        # the row of the stack of `draw` that each row of pixels of the Gantt chart shows
        gpus = self._cluster.num_gpus
        place = (np.arange(bottom - top) + 0.5) / self._pitch
        server = np.searchsorted(tops, place, side="right") - 1
        depth = place - tops[server] - style.GAP
        gpu = np.minimum(np.asarray(self._cluster.first_gpu_of_server)[server] + depth, gpus - 1).astype(int)
        part = depth % 1.0 * self._pitch
        rows = 1 + gpu + gpus * (part > self._pitch / 2)
        if self._pitch >= 3 * self.scale:  # room for an edge above the line and a space below it
            rows[part < self.scale] = (1 + 2 * gpus + gpu)[part < self.scale]
            rows[part > self._pitch - self.scale] = 0
        strip = (depth < -0.12) & (depth > -0.62)
        self._rows = np.where(depth >= 0, rows, np.where(strip, 1 + 3 * gpus + server, 0))
        self._pixels = np.full([length * scale for length in FRAME_SHAPE], _BLANK, np.uint8)
        self._texts: list[tuple[float, float, str, int, float]] = []  #: arguments of `_text`
        above, apart = _GANTT[1] - _LINE / 2, 0.0
        self._text(4, above, "server")
        self._text(_LINKS[0] - 3, above, "rings")
        self._text(_COUNTS[0] + 30, _COUNTS[1] - 5, "jobs waiting", _WAITING)
        self._text(_COUNTS[0] + 120, _COUNTS[1] - 5, "rings on the busiest link", _RINGS)
        self._text(_COUNTS[0] - 4, _COUNTS[3], "0", align=1)
        for s, middle in enumerate(self._middles.tolist()):
            if middle >= apart:
                name = f"{s} {cluster.gpu_types[s]}" if cluster.gpu_types else str(s)
                self._text(4, middle / scale, name)
                apart = middle + _LINE * scale
        left, top, right, bottom = _COUNTS
        self._fill(left, top, left, bottom, _DOWN)
        self._fill(left, bottom, right, bottom, _DOWN)
        self._background = np.array(self._picture())

    def _text(self, x: float, y: float, text: str, colour: int = _EDGE, align: float = 0.0) -> None:
        """Write a text beside (align 0), around (0.5) or before (1) x, with its middle at y."""
        self._texts.append((x, y, text, colour, align))

    def _picture(self) -> Any:
        """Return the pixels with the texts upon them as an image of Pillow with a palette."""
        from PIL import Image, ImageDraw

        picture = Image.fromarray(self._pixels)
        draw = ImageDraw.Draw(picture)
        draw.fontmode = "1"  # mixtures of two colours are not in the palette
        for x, y, text, colour, align in self._texts:
            left = x * self.scale - align * self._font.getlength(text)
            draw.text((round(left), round((y - 5.5) * self.scale)), text, colour, self._font)
        self._texts = []
        picture.putpalette(self._palette)
        return picture

    def _fill(self, left: float, top: float, right: float, bottom: float, colour: int) -> None:
        """Fill a rectangle, at least one pixel wide and high."""
        x, y, end, low = (round(edge * self.scale) for edge in (left, top, right, bottom))
        self._pixels[y : max(low, y + 1), x : max(end, x + 1)] = colour

    def draw(self, history: ScheduleHistory) -> NDArray[np.uint8]:
        """Return the schedule `history` until its time `now` as RGB pixels [height, width, 3]."""
        rings, self._pixels = rings_of(history), self._background.copy()
        left, top, right, bottom = (self.scale * edge for edge in _GANTT)
        self._columns = columns = right - left
        begin, now = history.begins, max(history.now, history.begins + 1e-6)
        self._per_second = per_second = columns / (now - begin)
        counts = self._rings_by_column(rings, begin)
        self._pixels[top:bottom, left:right] = self._stack(history, counts)[self._rows]
        self._text(4, 10, style.summary(history))
        self._draw_links(rings, history.now)
        self._draw_queue(history)
        times = begin + (np.arange(columns) + 0.5) / per_second
        self._draw_counts(history.waiting_at(times), counts.max(axis=0, initial=0))
        self._draw_time_axis(begin, now)
        return np.asarray(self._picture().convert("RGB"))

    def _stack(self, history: ScheduleHistory, rings: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return [1 + 3 GPUs + servers, columns] colours: blank, newest jobs, oldest, edges, strips."""
        columns, begin = self._columns, history.begins

        def cells(row: Any, start: Any, stop: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            left = ((start - begin) * self._per_second).astype(np.int64).clip(0, columns - 1)
            right = np.ceil((np.minimum(stop, history.now) - begin) * self._per_second).astype(np.int64)
            return _cells(row.astype(np.int64), left, right.clip(left + 1, columns), columns)

        servers, gpus = self._cluster.num_servers, self._cluster.num_gpus
        down, bars = history.segments[history.segments["job"] < 0], gpus_of(history)
        idle = np.full(servers * columns, _FREE, np.uint8)
        idle[cells(down["server"], down["start_seconds"], down["stop_seconds"])[1]] = _DOWN
        stack = np.full((1 + 3 * gpus + servers, columns), _BLANK, np.uint8)
        layers = stack[1 : 1 + 3 * gpus].reshape(3, -1)
        layers[:] = idle.reshape(servers, columns)[self._servers].ravel()
        colour = (_JOBS + bars.job % _NUM_COLOURS).astype(np.uint8)
        bar, cell = cells(bars.gpu, bars.start, bars.stop)
        newest, oldest, edges = layers
        # Where several jobs are, the last that is written stays.
        newest[cell] = coloured = colour[bar]
        oldest[cell[::-1]] = coloured[::-1]
        edges[cell] = np.where(bars.spans, _EDGE, colour)[bar]
        shared = rings[:servers] > 1
        stack[1 + 3 * gpus :][shared] = _SHARED - 2 + rings[:servers][shared].clip(max=4)
        return stack

    def _rings_by_column(self, rings: Rings, begin: float) -> NDArray[np.int64]:
        """Return the rings on each link [servers + racks, columns] at the middles of the columns."""
        links = self._cluster.num_servers + self._cluster.num_racks
        found = np.zeros(links * self._columns, np.int64)
        left, right = (
            np.ceil((time - begin) * self._per_second - 0.5).astype(np.int64).clip(0, self._columns)
            for time in (rings.start, rings.stop)
        )
        interval, cell = _cells(rings.link, left, right, self._columns)
        found[cell] = rings.rings[interval]
        return found.reshape(links, self._columns)

    def _draw_links(self, rings: Rings, now: float) -> None:
        live = (rings.stop >= now) & (rings.link < self._cluster.num_servers)
        most = max(4, int(rings.rings[live].max(initial=0)))
        left, _, right, _ = _LINKS
        half = max(self._pitch / self.scale, 1.0)
        for link, count in zip(rings.link[live].tolist(), rings.rings[live].tolist(), strict=True):
            middle = self._middles[link] / self.scale
            colour = _DOWN if count == 1 else _SHARED - 2 + min(count, 4)
            self._fill(left, middle - half, left + (right - left) * count / most, middle + half, colour)

    def _draw_queue(self, history: ScheduleHistory) -> None:
        left, top, right, bottom = _QUEUE
        jobs = history.waiting
        self._text(left, top - _LINE / 2, f"{len(jobs)} waiting" if len(jobs) else "no job waits")
        shown = jobs[: (bottom - top) // _LINE]
        ages = history.now - history.submit_seconds[shown]
        longest = float(ages.max(initial=1e-9))
        for i, (j, age) in enumerate(zip(shown.tolist(), ages.tolist(), strict=True)):
            y, pale, gpus = top + i * _LINE, _JOBS + _NUM_COLOURS + j % _NUM_COLOURS, int(history.num_gpus[j])
            self._fill(left, y + 1, left + (right - left) * age / longest, y + _LINE - 1, pale)
            self._text(left + 2, y + _LINE / 2, f"{j}: {gpus} GPU{'s' * (gpus != 1)}, {style.time_text(age)}")

    def _draw_counts(self, waiting: NDArray[np.int64], rings: NDArray[np.int64]) -> None:
        left, top, right, bottom = _COUNTS
        most = max(4, int(waiting.max(initial=0)), int(rings.max(initial=0)))
        self._text(left - 4, top, str(most), align=1)
        height = self.scale * (bottom - top)
        area = self._pixels[self.scale * bottom - height :, self.scale * left : self.scale * right]
        rows = np.arange(len(area))[:, None]
        for values, colour in ((rings, _RINGS), (waiting, _WAITING)):
            y = np.rint(height * (1 - values / most))
            before = np.concatenate([y[:1], y[:-1]])
            area[(rows >= np.minimum(y, before)) & (rows < np.maximum(y, before) + self.scale)] = colour

    def _draw_time_axis(self, begin: float, now: float) -> None:
        """Draw some round times below the chart."""
        size, unit = style.time_unit(now - begin)
        left, _, right, bottom = _COUNTS
        least = (now - begin) / size / 6
        step = 10.0 ** np.floor(np.log10(least))
        step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= least)
        for tick in np.arange(np.ceil(begin / size / step), np.floor(now / size / step) + 1) * step:
            x = left + (tick * size - begin) / (now - begin) * (right - left)
            self._fill(x, bottom, x, bottom + 3, _DOWN)
            if x < right - 70:
                self._text(x, bottom + 10, f"{tick:.12g}", align=0.5)
        self._text(right, bottom + 10, f"time ({unit})", align=1)


class Renderer:
    """Draw the schedule of a cluster as pictures, or in a window of matplotlib.

    The window opens with the first picture. Copies and pickles open windows of their own. Without a display,
    pictures are drawn and not shown, and a line on standard error says so.

    Args:
        mode: "rgb_array" or "human".
        cluster: servers and GPUs to draw.

    Raises:
        ConfigurationError: a library is not installed.
    """

    def __init__(self, mode: str, cluster: Cluster) -> None:
        for module in ("PIL", "matplotlib")[: 2 if mode == "human" else 1]:
            if importlib.util.find_spec(module) is None:
                library = {"PIL": "Pillow"}.get(module, module)
                raise ConfigurationError(
                    f"render_mode={mode!r} needs {library}, which is not installed: pip install"
                    ' "ringyard[render]"'
                )
        self._mode, self._cluster = mode, cluster
        self._drawer: FrameDrawer | None = None
        self._shown: Any = None

    def draw(self, state: State, b: int) -> NDArray[np.uint8] | None:
        """Return [400, 640, 3] RGB pixels of cluster b of a state with segments; None in "human" mode."""
        self._drawer = self._drawer or FrameDrawer(self._cluster)
        pixels = self._drawer.draw(history_of(state, b, self._cluster))
        if self._mode == "rgb_array":
            return pixels
        self._show(pixels)
        return None

    def _show(self, pixels: NDArray[np.uint8]) -> None:
        """Show a picture in the window."""
        from matplotlib import pyplot

        if self._shown is None:
            height, width = FRAME_SHAPE
            try:
                figure = pyplot.figure("Ringyard", figsize=(width / 100, height / 100), dpi=100)
            except ImportError as error:  # MPLBACKEND names a window that cannot be opened here
                raise ConfigurationError(
                    f"render_mode='human' cannot open a window: {error}; expected a display, or no MPLBACKEND"
                ) from error
            self._shown = figure.figimage(pixels)
            if figure.canvas.required_interactive_framework is None:
                print("ringyard: no display, so pictures are drawn and not shown", file=sys.stderr)
            else:
                figure.show()
        self._shown.set_array(pixels)
        canvas = self._shown.figure.canvas
        if canvas.required_interactive_framework is not None:
            canvas.draw()
            canvas.start_event_loop(_WINDOW_SECONDS)

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._shown is not None:
            from matplotlib import pyplot

            pyplot.close(self._shown.figure)
        self._shown = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawer": None, "_shown": None}


def save_video(file: Path, history: ScheduleHistory, frames: int) -> Iterator[int]:
    """Write a GIF of equally distant moments, from the first arrival to the end.

    Yields the number of pictures drawn so far. The file is complete after the last.
    """
    from PIL import Image

    drawer = FrameDrawer(history.cluster, scale=2)
    kept = []
    for moment in np.linspace(history.begins, history.now, frames + 1)[1:].tolist():
        kept.append(Image.fromarray(drawer.draw(history.until(moment))).quantize())
        yield len(kept)
    duration = 1000 // _FRAMES_PER_SECOND
    kept[0].save(file, "GIF", save_all=True, append_images=kept[1:], duration=duration, loop=0)
