"""`python -m tools.pretrained`: keep the best training seed of each learner and environment, with its card.

It reads trainings and comparisons that `python -m tools.figures RESULT` left in runs/ of the current folder,
and writes agents/pretrained/ENVIRONMENT-LEARNER/ as `ringyard push` does. The best seed is that with the
lowest mean JCT on the evaluation workloads of its training. With `--cards` it writes only the tables of the
cards anew, from docs/results.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.learning.hub import COLUMNS, push
from ringyard_agents.report.tables import markdown
from tools.figures import LEARNERS, MORE_LEARNERS, PRETRAINED_BY_LEARNER, commands, read, rows_and_notes

#: the table of a card, the command below it, and its notes
_RESULTS = re.compile(
    r"^\| scheduler \|.*?\n\n(```\n.*?\n```)\n\n.*?(?=\n\nOn the eval)", re.DOTALL | re.MULTILINE
)


def trained() -> Iterator[tuple[str, str, str, list[Path]]]:
    """Yield (result, environment, learner, runs of its training seeds) of trainings in the current folder."""
    for name, one in commands().items():
        for learner in one.get("learners", ()):
            runs = sorted(Path("runs").glob(f"{one['environment']}_{learner}_[0-9]"))
            if runs and learner in LEARNERS | MORE_LEARNERS and Path("runs", name).is_dir():
                yield name, one["environment"], learner, runs


def best_seed(runs: Sequence[Path]) -> Path:
    """Return the run with the lowest metric on the evaluation workloads."""
    return min(runs, key=lambda run: float(json.loads((run / "training.json").read_text())["best"]))


def with_results(card: str, result: str) -> str:
    """Return a card with its table and notes written anew, from a stored result."""
    rows, notes = rows_and_notes(read(result))
    table = markdown([{name: row[name] for name in rows[0] if name.startswith(COLUMNS)} for row in rows])
    return _RESULTS.sub(lambda found: "\n\n".join([table.rstrip(), found[1], *notes]), card)


def main(words: Sequence[str]) -> int:
    """Run the command with `words`. Returns the exit code."""
    return exit_code("tools.pretrained", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    parser = Arguments(prog="python -m tools.pretrained", description=__doc__)
    parser.add_argument("--cards", action="store_true", help="write only the cards' tables anew")
    if parser.parse_args(words).cards:
        for name, one in commands().items():
            for learner in one.get("learners", ()):
                card = PRETRAINED_BY_LEARNER / f"{one['environment']}-{learner}" / "README.md"
                if card.is_file():
                    card.write_text(with_results(card.read_text(), name))
        return 0
    for result, environment, learner, runs in trained():
        target, run = PRETRAINED_BY_LEARNER / f"{environment}-{learner}", best_seed(runs)
        shutil.rmtree(target, ignore_errors=True)
        push(str(run), f"./agents/pretrained/{target.name}", str(target), [f"runs/{result}"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
