"""`python -m tools.interference FOLDER`: fit the shipped interference networks, and write their page.

`python -m tools.interference FILE --out mine.npz` fits them to a CSV of your own measurements.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.measurements import read_measured_rows
from ringyard_baselines.papers.interference_aware.networks import DEFAULT_WEIGHTS, REFERENCES
from tools.calibration.interference import ERROR_COLUMNS, error_rows, fit_interference
from tools.measured_sets.readers import gavel_one_gpu, gavel_pairs
from tools.validation_page import markdown_table

_PAGE = """# How wrong the interference predictors are

Written by `python -m tools.interference FOLDER` from Gavel's published measurements
(stanford-futuredata/gavel). Each model in turn is left out of the training, with all of its batches, as a job
and as a neighbour. The table has the mean absolute error of the predicted speed on the pairs that were left
out, where 1 is as fast as alone. *Guess the mean* takes the mean speed of the pairs that were seen, in place
of IASP.

Measured: the speed of a job beside another on one V100, P100 or K80, {rows} times. A job's profile is its
speed beside four reference jobs, and theirs beside it:
{references}.
The published pairs have seven models, all of which the environment `Sharing` trains. So its jobs have the
models of the reference jobs too, at other batches. No pair of the table has a reference job: every speed in
it is predicted. The pairs that `Sharing` plays are measured too
(`conf/performance/pair_table.yaml`).

Drawn: which jobs arrive, when, and for how long. IAPP is also given the share of an iteration in which a job
of several GPUs computes, which was 1 in all measurements. For its training smaller shares are drawn, and what
a neighbour costs falls with them.

{table}
"""


def _run(words: Sequence[str]) -> int:
    parser = Arguments(
        prog="python -m tools.interference", description="Fit the interference networks to pairs of jobs."
    )
    parser.add_argument(
        "place",
        metavar="PLACE",
        help="folder of Gavel's files, or a CSV of your own",
    )
    parser.add_argument("--out", help="file .npz (default: the shipped one of a folder, none of a CSV)")
    parser.add_argument("--page", default="docs/interference.md", help="the page (%(default)s)")
    given = parser.parse_args(words)
    folder = Path(given.place).expanduser()
    if not folder.is_dir():
        fit_interference(read_measured_rows(folder), given.place, given.out, seed=0)
        return 0
    pairs = gavel_pairs(folder)
    rows = pd.concat([gavel_one_gpu(folder), pairs], ignore_index=True)
    errors = fit_interference(rows, given.place, given.out or str(DEFAULT_WEIGHTS), seed=0)
    references = [f"{model} with {samples:g} samples" for model, samples in REFERENCES]
    text = _PAGE.format(
        rows=f"{len(pairs):,}",
        references=",\n".join(references),
        table="\n".join(markdown_table(ERROR_COLUMNS, error_rows(errors))),
    )
    Path(given.page).write_text(text)
    return 0


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of its line, and return the exit code: 2 for bad input."""
    return exit_code("tools.interference", lambda: _run(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
