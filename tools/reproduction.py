"""`python -m tools.reproduction`: write docs/reproduction.md and the pages of papers in its folder."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ringyard.checks import require
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.evaluation.ranking import mean_interval, ratio_interval, small_sample_warning
from ringyard_agents.reproduction.run import (
    Claim,
    MeasuredClaim,
    claim_rows,
    format_metric,
    measure_claim,
    read_claims,
)
from tools.stored_reproductions import (
    STORED,
    Reproduction,
    command,
    run_rows,
    stale_rows,
    stored_papers,
)

_INTRODUCTION = """# Published comparisons, run anew

What papers claim, beside what is measured here. Each paper has a page. `ringyard reproduce PAPER` runs one.

* **Metric**: each row names its own, most often mean job completion time
  ([JCT](metrics.md#columns-of-a-comparison)).
* **Percentages** are changes from the scheduler that the row names. Below 0 is better for JCT, slowdown,
  [rho](metrics.md#columns-of-a-comparison), makespan and blocking, worse for utility, throughput and
  [utilisation](metrics.md#how-busy-gpus-are). *1.50x* is a ratio, of which more is better.
* **[low, high]** is a 95 % interval over seeds (Student's t, paired by seed).
* **Reproduced**: *yes* if the claim lies in the interval, *direction only* if the effect has the claimed sign
  and another size, *no* if it has the other sign or is within noise.
* Comparators decide as their paper or code says, unless other options suited them better on other workloads.
  A claim that does not reproduce says as much about this simulator as about the paper.
"""

#: notes of what was tried
_RESEARCH = Path(__file__).parents[1] / "docs" / "research"

_TITLES = {
    "mean_jct": "mean JCT (s)",
    "p99_jct": "p99 JCT (s)",
    "makespan": "makespan (s)",
    "mean_queueing": "queueing (s)",
    "utilisation": "GPUs busy",
    "gpu_activity": "GPU activity",
    "jct_over_bound": "mean JCT / lower bound",
    "job_gpu_activity": "jobs' mean GPU activity",
    "cpu_queueing": "CPU jobs' queueing (s)",
    "finished_early": "jobs done by the last arrival",
    "blocking_rate": "blocking rate",
    "mean_slowdown": "mean slowdown",
    "mean_fairness": "mean rho",
    "kernel_utilisation": "GPUs that run kernels",
    "kernels_on_used_gpus": "kernels, of GPUs that hold jobs",
    "utility": "total utility",
}


@dataclass(frozen=True)
class SweepTable:
    """A metric over cases: a sweep, or one assumption changed at a time.

    Attributes:
        title: above the table.
        metric: as of a `Claim`.
        cases: its rows.
        schedulers: its columns, those that a case has.
        against: of `schedulers`: each other one's change from it is printed as well; None: nothing is.
    """

    title: str
    metric: str
    cases: Sequence[str]
    schedulers: Sequence[str]
    against: str | None = None


def read_tables(
    rows: Sequence[Mapping[str, Any]], cases: Mapping[str, Mapping[str, Any]]
) -> list[SweepTable]:
    """Tables of a reproduction's yaml.

    Args:
        rows: `tables` of the yaml.
        cases: of the yaml, by name.

    Raises:
        ConfigurationError: a case, or a scheduler, that is not there.
    """
    tables = [SweepTable(**row) for row in rows]
    for table in tables:
        for case in table.cases:
            if case not in cases:
                raise ConfigurationError(
                    f"table {table.title!r} has case {case!r}; expected some of {list(cases)}"
                )
        found = {label for case in table.cases for label in cases[case]["schedulers"]}
        wanted = [*table.schedulers, *([] if table.against is None else [table.against])]
        missing = [label for label in wanted if label not in found]
        if missing:
            raise ConfigurationError(
                f"table {table.title!r} has scheduler {missing[0]!r}; expected some of {sorted(found)}"
            )
    return tables


def read_ablations(content: Mapping[str, Any]) -> Sequence[Claim]:
    """What a yaml compares to show each mechanism alone; nothing is claimed of it.

    Raises:
        ConfigurationError: a row that makes no sense.
    """
    return read_claims(
        [{**row, "claimed": 0.0} for row in content.get("ablations", [])], list(content["cases"])
    )


def _headlines(one: Reproduction) -> Sequence[MeasuredClaim]:
    """The claims that the paper is known for."""
    claims = {measured.claim.text: measured for measured in one.measured}
    for wanted in one.content["headlines"]:
        if wanted not in claims:
            raise ConfigurationError(
                f"{one.paper}: headline {wanted!r}; expected some of the claims {[*claims]}"
            )
    return [claims[wanted] for wanted in one.content["headlines"]]


def _ablation(one: Reproduction) -> str:
    """One row for each mechanism: its own effect, all else equal."""
    rows = claim_rows([measure_claim(claim, one.metrics) for claim in read_ablations(one.content)])
    if not rows:
        return "There is no mechanism to switch off."
    body = [(text, effect) for text, _, effect, _ in rows]
    return "Each mechanism alone, switched on compared with off, all else equal:\n\n" + _table(
        ("mechanism", "its effect [95 % CI]"), body
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def summary(reproductions: Sequence[Reproduction]) -> str:
    """One row a headline claim: what was measured."""
    rows = [
        (f"[{one.content['title']}](reproduction/{one.paper}.md)", *row)
        for one in reproductions
        for row in claim_rows(_headlines(one))
    ]
    return _table(("paper", "headline claim", "claimed", "measured [95 % CI]", "reproduced"), rows)


def _cell(values: NDArray[np.float64], metric: str) -> str:
    found = mean_interval(values)
    value, low, high = (format_metric(one, metric) for one in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def _change(values: NDArray[np.float64], reference: NDArray[np.float64]) -> str:
    ratio = ratio_interval(values, reference)
    return "{:+.1%} [{:+.1%}, {:+.1%}]".format(*(one - 1 for one in (ratio.value, ratio.low, ratio.high)))


def _sweep(reproduction: Reproduction, table: SweepTable) -> str:
    """Cases as rows, schedulers as columns; of all but `against` the value and its change from there."""
    body = []
    for case in table.cases:
        columns = {label: row[table.metric] for label, row in reproduction.metrics[case].items()}
        reference = None if table.against is None else columns.get(table.against)
        cells = []
        for label in table.schedulers:
            if label not in columns:
                cells.append("")
            elif reference is None or label == table.against:
                cells.append(_cell(columns[label], table.metric))
            else:
                value = format_metric(mean_interval(columns[label]).value, table.metric)
                cells.append(f"{value}: {_change(columns[label], reference)}")
        body.append([case, *cells])
    about = _TITLES.get(table.metric, table.metric)
    if table.against is not None:
        about += f": change from {table.against}"
    return f"**{table.title}**\n\n" + _table([about, *table.schedulers], body)


def _figures(reproduction: Reproduction) -> str:
    """Every scheduler of every case, folded: a table for cases with the same metrics."""
    bodies: dict[tuple[str, ...], list[list[str]]] = {}
    for case, rows in reproduction.metrics.items():
        metrics = tuple(next(iter(rows.values())))
        for label, columns in rows.items():
            cells = [_cell(columns[metric], metric) for metric in metrics]
            bodies.setdefault(metrics, []).append([case, label, *cells])
    parts = [
        _table(["case", "scheduler", *(_TITLES.get(metric, metric) for metric in metrics)], body)
        for metrics, body in bodies.items()
    ]
    title = f"<summary>Every scheduler of every case, {reproduction.seeds} seeds</summary>"
    return "\n\n".join([f"<details>{title}", *parts, "</details>"])


def _paper_page(one: Reproduction) -> str:
    """The page of one paper."""
    content = one.content
    setup = [f"`{content.get('command', f'ringyard reproduce {one.paper}')}`.", content["setup"]]
    if content["rule"] is not None:
        setup.append(f"Schedulers that name no placement rule and bring none use `{content['rule']}`.")
    tables = read_tables(content.get("tables", []), content["cases"])
    notes = f"What was tried beside this: [notes](../research/{one.paper}.md) in the research log."
    parts = [
        f"# {content['title']}",
        " ".join(setup),
        *_stale(one),
        _table(("claim", "claimed", "measured [95 % CI]", "reproduced"), claim_rows(one.measured)),
        _ablation(one),
        "## What differs, and why\n\n" + "\n".join(f"* {line}" for line in content["deviations"]),
        *([notes] if (_RESEARCH / f"{one.paper}.md").exists() else []),
        *(_sweep(one, table) for table in tables),
        _figures(one),
    ]
    return "\n\n".join(parts) + "\n"


def _stale(one: Reproduction) -> list[str]:
    """A line for each row that the simulator gives otherwise now."""
    said = f"the simulator gives other values now; run `{command(one.paper)}`"
    return [f"**Stale, {row}: {said}**" for row in one.stale]


def pages(reproductions: Sequence[Reproduction], missing: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return pages of stored results as Markdown: "", the summary, and each paper's by its name.

    Args:
        reproductions: stored results.
        missing: {title: what is missing} of papers without them.
    """
    parts = [_INTRODUCTION, summary(reproductions)]
    parts += [
        f"**{one.content['title']}: {warning}**"
        for one in reproductions
        if (warning := small_sample_warning(one.seeds))
    ]
    parts += [line for one in reproductions for line in _stale(one)]
    parts += [f"**{title}. Missing: {line}**" for title, line in (missing or {}).items()]
    listed = [f"reproduction/{one.paper}" for one in reproductions]
    parts.append("\n".join(["```{toctree}", ":hidden:", "", *listed, "```"]))
    return {"": "\n\n".join(parts) + "\n", **{one.paper: _paper_page(one) for one in reproductions}}


def main(words: Sequence[str]) -> int:
    """Run the command.

    Args:
        words: of the command line.

    Returns:
        The exit code: 2 for bad input, 1 where --check finds stale rows.
    """
    return exit_code("tools.reproduction", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    papers = list(config_files("reproduction"))
    parser = Arguments(
        prog="python -m tools.reproduction",
        description="Run papers' settings and write pages of their claims beside what is measured.",
    )
    parser.add_argument("papers", metavar="PAPER", nargs="*", help="default: all")
    parser.add_argument("--seeds", type=int, help="workloads (default: each paper's own; 1 with --check)")
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--page", action="store_true", help="run nothing: write the pages of the stored results"
    )
    only.add_argument(
        "--check", action="store_true", help="play the first workloads again and note rows that differ"
    )
    only.add_argument("--stale", action="store_true", help="the same, and run those rows and new ones anew")
    parser.add_argument("--stored", type=Path, default=STORED, help="folder of the results (%(default)s)")
    parser.add_argument(
        "--out",
        default="docs/reproduction.md",
        help="the summary; papers are in a folder of its name (%(default)s)",
    )
    given = parser.parse_args(words)
    require(
        "--seeds", given.seeds, Annotated[int, f"[{1 if given.check or given.stale else 2}, 1000000]"] | None
    )
    require("--workers", given.workers, Annotated[int, "[1, 10000]"] | None)
    unknown = [name for name in given.papers if name not in papers]
    if unknown:
        raise ConfigurationError(f"unknown paper {unknown[0]!r}; expected some of {', '.join(papers)}")
    stale = []
    for paper in [] if given.page else given.papers or papers:
        rows = None
        if given.check or (given.stale and (given.stored / f"{paper}.json").exists()):
            rows = stale_rows(paper, given.seeds or 1, given.workers, print, given.stored)
        if given.check:
            stale += [f"{case}: {label} is stale; run `{command(paper)}`" for case, label in rows or []]
        else:
            count = None if given.stale else given.seeds
            run_rows(paper, count, given.workers, print, given.stored, rows)
    file = Path(given.out).expanduser()
    file.with_suffix("").mkdir(parents=True, exist_ok=True)
    for name, text in pages(*stored_papers(given.stored)).items():
        (file.with_suffix("") / f"{name}.md" if name else file).write_text(text)
    print(*(f"{file}: {line}" for line in stale), f"page: {file}", sep="\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
