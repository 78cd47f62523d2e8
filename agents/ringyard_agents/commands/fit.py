"""`ringyard fit`: train the interference predictors."""

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
        prog="ringyard fit",
        description="Train IASP and IAPP on pairs of jobs that share a GPU; prints the error on unseen jobs.",
    )
    parser.add_argument(
        "--data", help="folder of measured profiles (Gavel's pairs); default: simulated pairs"
    )
    parser.add_argument("--out", help="write the weights to this .npz file")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    options = parser.parse_args(words)

    from ringyard.checks import require
    from ringyard_agents.settings import Seed

    require("--seed", options.seed, Seed)

    from ringyard_agents.predictors.fit_interference import fit_interference

    fit_interference(options.data, options.out, options.seed)
