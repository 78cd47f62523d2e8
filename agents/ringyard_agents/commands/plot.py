"""`ringyard plot`: plots of finished runs."""

from collections.abc import Sequence
from pathlib import Path

from ringyard.checks import Count, require
from ringyard.errors import ConfigurationError
from ringyard_agents.command_line import Arguments

__all__ = ["run"]


def run(words: Sequence[str]) -> None:
    """Run it.

    Args:
        words: of the command line, after the command.

    Raises:
        RingyardError: bad input.
    """
    parser = Arguments(
        prog="ringyard plot",
        description="Plots of finished runs, several on each other. Training runs: learning curves, a band"
        " over the seeds of runs that differ in nothing else, baselines as lines. Comparisons: distribution"
        " of job completion times and what the mean JCT is made of, for each world; performance profile and"
        " interquartile means, over all of them.",
    )
    parser.add_argument(
        "places", nargs="+", metavar="RUN_OR_FOLDER", help="a run, or a folder with runs, such as a sweep's"
    )
    parser.add_argument("--out", default="plots", help="folder for the plots (%(default)s)")
    parser.add_argument("--format", default="png", choices=("png", "pdf", "svg"), help="(%(default)s)")
    parser.add_argument(
        "--most", type=int, default=12, help="schedulers in a plot, those of the least mean JCT (%(default)s)"
    )
    options = parser.parse_args(words)
    require("--most", options.most, Count)

    from ringyard_agents.report.plots import plot_runs

    files, damaged = plot_runs(options.places, Path(options.out), options.format, options.most)
    for file in files:
        print(f"plot: {file}")
    if damaged:
        raise ConfigurationError(f"the other runs are drawn; {'; '.join(damaged)}")
