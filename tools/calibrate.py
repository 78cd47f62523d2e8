"""`python -m tools.calibrate FOLDER --out conf`: write the shipped constants.

`python -m tools.calibrate FILE` fits profiles and networks to a CSV of your own measurements.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from ringyard_agents.command_line import Arguments, exit_code
from tools.calibration.measured import calibrate
from tools.calibration.plans import plan_constants_yaml
from tools.calibration.shipped import calibrate_shipped, texts_of
from tools.calibration.yamls import write_yamls
from tools.equations.execution_plans import plan_tables


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of its line, and return the exit code: 2 for bad input."""
    return exit_code("tools.calibrate", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    parser = Arguments(
        prog="python -m tools.calibrate",
        description="Fit profiles, networks and interconnects to measurements.",
    )
    parser.add_argument(
        "place", metavar="PLACE", help="CSV of your own (docs/calibration.md), or folder of published ones"
    )
    parser.add_argument("--out", default="calibrated", help="folder for the yamls (%(default)s)")
    parser.add_argument(
        "--network", default="own", help="of a CSV: network of rows that name none (%(default)s)"
    )
    parser.add_argument(
        "--interconnect", default="own", help="likewise, interconnect inside a server (%(default)s)"
    )
    parser.add_argument(
        "--gradient-bytes",
        action="append",
        default=[],
        metavar="NAME=BYTES",
        help="of a CSV: gradient size of a new model, 4 bytes x parameters in fp32",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="also replace yamls that this command did not write"
    )
    given = parser.parse_args(words)
    folder = Path(given.place)
    if not folder.is_dir():
        fabrics = given.network, given.interconnect
        calibrate(folder, given.out, *fabrics, given.gradient_bytes, given.overwrite)
        return 0
    texts = {
        **texts_of(calibrate_shipped(folder)),
        "plan_constants.yaml": plan_constants_yaml(plan_tables(folder)),
    }
    write_yamls(Path(given.out), texts, "python -m tools.calibrate", given.overwrite)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
