"""`python -m tools.calibrate FOLDER --out conf`: write the shipped constants."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ringyard.errors import ConfigurationError
from ringyard_agents.calibration.yamls import write_yamls
from ringyard_agents.command_line import Arguments, exit_code
from tools.calibration.plans import plan_constants_yaml
from tools.calibration.shipped import calibrate_shipped, texts_of
from tools.equations.execution_plans import plan_tables


def main(words: Sequence[str]) -> int:
    """Run the command.

    Args:
        words: of the command line.

    Returns:
        The exit code: 2 for bad input.
    """
    return exit_code("tools.calibrate", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    parser = Arguments(
        prog="python -m tools.calibrate",
        description="Write the shipped profiles, networks and interconnects.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of published measurements")
    parser.add_argument("--out", required=True, help="folder for the yamls")
    parser.add_argument(
        "--overwrite", action="store_true", help="also replace yamls that this command did not write"
    )
    given = parser.parse_args(words)
    folder = Path(given.folder)
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder {folder}; expected a folder of published measurements")
    texts = {
        **texts_of(calibrate_shipped(folder)),
        "plan_constants.yaml": plan_constants_yaml(plan_tables(folder)),
    }
    write_yamls(Path(given.out), texts, "python -m tools.calibrate", given.overwrite)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
