"""What charts and frames of a schedule have in common: colours, and texts about times."""

import colorsys

from ringyard.rendering.history import ScheduleHistory

GAP = 0.9  # space above a server, in lines of a GPU
FREE, DOWN, EDGE = "#eceef1", "#b9bec6", "#15181d"
SHARED_LINK = ("#f6c244", "#ef7d22", "#c81e1e")  # links with 2, 3, and more rings
WAITING, RINGS = "#3a5fcd", "#ef7d22"  # curves of waiting jobs and of rings on the busiest link
#: (shortest time in seconds that is shown in the unit, seconds of the unit, its name)
_UNITS = ((172800.0, 86400.0, "d"), (5400.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def job_colour(job: int) -> tuple[float, float, float]:
    """Return the RGB colour of a row of the job table. Neighbours are far apart on the colour wheel."""
    hue, saturation = job * 0.61803398875 % 1.0, 0.35 + 0.3 * (job % 3) / 2
    return colorsys.hsv_to_rgb(hue, saturation, 0.78 + 0.14 * (job % 2))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return (seconds of the unit in which such a time is easy to read, its name)."""
    return next((size, name) for least, size, name in _UNITS if seconds >= least)


def time_text(seconds: float) -> str:
    """Return a time such as `3.4 h`, or `none yet` for NaN."""
    if seconds != seconds:
        return "none yet"
    size, name = time_unit(seconds)
    return f"{seconds / size:.{0 if size == 1.0 else 1}f} {name}"


def summary(history: ScheduleHistory) -> str:
    """Return the title of a picture: the time, numbers of jobs, and the mean JCT so far."""
    jobs, running, waiting = map(len, (history.submit_seconds, history.running, history.waiting))
    return (
        f"t = {time_text(history.now)}     {running} running     {waiting} waiting     "
        f"{len(history.finished)} of {jobs} finished     mean JCT {time_text(history.mean_jct)}"
    )
