"""`ringyard traces`: where the public traces are, and what a local copy holds."""

from collections.abc import Sequence

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
        prog="ringyard traces", description="Where the public traces are, or what a copy holds."
    )
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="of a trace; without it, where each of them is"
    )
    parser.add_argument("file", metavar="FILE", nargs="?", help="a local copy, to be checked")
    options = parser.parse_args(words)
    if (options.name is None) != (options.file is None):
        parser.error("a NAME wants a FILE beside it")

    from ringyard_agents.traces import list_traces, report_trace

    if options.name is None:
        list_traces()
    else:
        report_trace(options.name, options.file)
