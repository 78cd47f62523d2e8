"""A schedule as a video, of a picture for each of many moments."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.animation import FFMpegWriter, PillowWriter

from ringyard.drawing.chart import Chart
from ringyard.drawing.history import History
from ringyard.errors import ConfigurationError

__all__ = ["FRAMES_PER_SECOND", "require_video", "save_video"]

FRAMES_PER_SECOND = 10

_BY_FFMPEG = (".mp4", ".mkv", ".mov", ".webm")


def require_video(setting: str, file: Path) -> None:
    """Raise a ConfigurationError unless a video of that name can be written here.

    Args:
        setting: that names it.
        file: .gif, which matplotlib writes by itself, or one of ffmpeg's.
    """
    suffix = file.suffix.lower()
    if suffix != ".gif" and suffix not in _BY_FFMPEG:
        raise ConfigurationError(f"{setting} is {str(file)!r}; expected .gif, {', '.join(_BY_FFMPEG)}")
    if suffix != ".gif" and not (importlib.util.find_spec("imageio_ffmpeg") or FFMpegWriter.isAvailable()):
        raise ConfigurationError(
            f'{setting} is {str(file)!r}, which needs ffmpeg: pip install "ringyard[render]", or name a .gif'
        )


def _writer(suffix: str) -> Any:
    if suffix == ".gif":
        return PillowWriter(FRAMES_PER_SECOND)
    if not FFMpegWriter.isAvailable():
        import imageio_ffmpeg

        rcParams["animation.ffmpeg_path"] = imageio_ffmpeg.get_ffmpeg_exe()
    return FFMpegWriter(FRAMES_PER_SECOND)


def save_video(file: Path, history: History, frames: int) -> Iterator[int]:
    """Write pictures of equally distant moments, from the first arrival to the end.

    Args:
        file: as `require_video` wants it.
        history: of the whole schedule.
        frames: 1 or more.

    Yields:
        How many pictures are drawn; the file is whole after the last.
    """
    chart = Chart(history.cluster)
    writer = _writer(file.suffix.lower())
    with writer.saving(chart.figure, str(file), dpi=100):
        for drawn, moment in enumerate(np.linspace(history.begins, history.now, frames + 1)[1:], 1):
            chart.draw(history.until(float(moment)))
            writer.grab_frame()
            yield drawn
