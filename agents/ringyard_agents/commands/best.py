"""`ringyard best`: the best job of a sweep, and how to use what it made."""

from collections.abc import Sequence
from pathlib import Path

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
        prog="ringyard best",
        description="The best job of a sweep; with several seeds, the best seed of the setting that is best"
        " over seeds.",
    )
    parser.add_argument("sweep", metavar="SWEEP", help="its folder, or its name= (a folder inside runs/)")
    parser.add_argument(
        "--folder", action="store_true", help="print nothing but the job's folder, for scripts"
    )
    options = parser.parse_args(words)
    given = Path(options.sweep).expanduser()

    from ringyard_agents.runs.sweep_table import print_best

    print_best(given if given.is_dir() else Path("runs", options.sweep), options.folder)
