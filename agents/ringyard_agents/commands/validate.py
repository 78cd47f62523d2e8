"""`ringyard validate`: what ships against your measurements."""

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
        prog="ringyard validate",
        description="Compare what ships with your measurements.",
    )
    parser.add_argument(
        "place",
        metavar="CSV",
        help="a tidy CSV, or a folder of them (docs/calibration.md)",
    )
    parser.add_argument(
        "--out", default="validation", help="folder for the page and its images (%(default)s)"
    )
    parser.add_argument(
        "--performance", default="composed", help="performance model, of conf/performance (%(default)s)"
    )
    parser.add_argument("--network", help="between servers, of conf/network; default: as each set says")
    parser.add_argument("--interconnect", help="inside servers, of conf/interconnect; likewise")
    options = parser.parse_args(words)

    from ringyard_agents.validation.report import validate

    links = {"network": options.network, "interconnect": options.interconnect}
    given = {name: leaf for name, leaf in links.items() if leaf is not None}
    files = validate(options.place, options.out, options.performance, given)
    print(f"page: {files[0]}")
