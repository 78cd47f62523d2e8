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
        prog="ringyard traces",
        usage="ringyard traces [-h] | ringyard traces NAME FILE",
        description="Without words: where each public trace is, its licence and size. NAME FILE: what a local"
        " copy holds.",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="of a trace, as workload=NAME: helios, philly, pai; csv: your own file",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="the copy: a CSV, or what the trace is published as, maybe .gz",
    )
    options = parser.parse_args(words)
    if (options.name is None) != (options.file is None):
        parser.error(f"{options.name} wants a FILE behind it: ringyard traces NAME FILE")

    from ringyard_agents.traces import list_traces, report_trace

    if options.name is None:
        list_traces()
    else:
        report_trace(options.name, options.file)
