"""`ringyard calibrate`: from measurements to profiles, networks and interconnects."""

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
        prog="ringyard calibrate",
        description="Profiles, networks and interconnects from measurements, with errors on held-out rows.",
    )
    parser.add_argument(
        "place",
        metavar="FILE",
        help="a CSV: model, gpu_type, placement, batch, seconds and more (docs/calibration.md)",
    )
    parser.add_argument("--out", default="calibrated", help="folder for the yamls (%(default)s)")
    parser.add_argument(
        "--network", default="own", help="name of the network, if rows name none (%(default)s)"
    )
    parser.add_argument("--interconnect", default="own", help="and of what is inside a server (%(default)s)")
    parser.add_argument(
        "--gradient-bytes",
        action="append",
        default=[],
        metavar="NAME=BYTES",
        help="of a model that has no profile: 4 bytes x parameters in fp32",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace yamls of another hand, too")
    options = parser.parse_args(words)

    from ringyard_agents.calibration.command import calibrate

    links = (options.network, options.interconnect)
    calibrate(options.place, options.out, *links, options.gradient_bytes, options.overwrite)
