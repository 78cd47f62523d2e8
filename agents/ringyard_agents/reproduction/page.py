"""Reproductions as text: claimed beside measured."""

from collections.abc import Sequence

from ringyard_agents.measuring.statistics import mean_interval
from ringyard_agents.reproduction.claims import Measured
from ringyard_agents.reproduction.run import Reproduction

__all__ = ["claim_rows", "page"]

_INTRODUCTION = """# Published comparisons, run anew

Written by `ringyard reproduce --all`; one paper alone: `ringyard reproduce PAPER`. Each setting is a yaml in
`conf/reproduction`. Intervals are 95 % bootstrap intervals over seeds, differences are paired by seed. A
claim is
*reproduced* if it lies in the interval; *direction only* means that the effect has the claimed sign, but
another size. A claim that does not reproduce is printed as such: that is a result, about this simulator as
much as about the paper.
"""

_TITLES = {
    "mean_jct": "mean JCT (s)",
    "makespan": "makespan (s)",
    "mean_queueing": "queueing (s)",
    "utilisation": "GPUs busy",
    "gpu_activity": "GPU activity",
    "cpu_queueing": "CPU jobs' queueing (s)",
    "finished_early": "jobs done by the last arrival",
    "blocking_rate": "blocking rate",
    "mean_slowdown": "mean slowdown",
}


def _number(value: float, metric: str) -> str:
    if metric in ("utilisation", "gpu_activity", "blocking_rate"):
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def _formed(value: float, measured: Measured) -> str:
    form = measured.claim.form
    if form == "change":
        return f"{value:+.1%}"
    if form == "value":
        return _number(value, measured.claim.metric)
    return f"{value:.2f}x"


def claim_rows(measured: Sequence[Measured]) -> list[tuple[str, str, str, str]]:
    """(claim, claimed, measured with interval, reproduced?) of each."""
    rows = []
    for one in measured:
        low, high = _formed(one.interval.low, one), _formed(one.interval.high, one)
        found = f"{_formed(one.interval.value, one)} [{low}, {high}]"
        rows.append((one.claim.text, _formed(one.claim.claimed, one), found, one.verdict))
    return rows


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _figures(reproduction: Reproduction) -> list[str]:
    parts = []
    for case, rows in reproduction.figures.items():
        metrics = list(next(iter(rows.values())))
        body = []
        for label, columns in rows.items():
            cells = [label]
            for metric in metrics:
                found = mean_interval(columns[metric])
                low, high = _number(found.low, metric), _number(found.high, metric)
                cells.append(f"{_number(found.value, metric)} [{low}, {high}]")
            body.append(cells)
        title = f"{case}, {reproduction.seeds} seeds"
        parts.append(title + ":\n\n" + _table(["scheduler", *(_TITLES.get(m, m) for m in metrics)], body))
    return parts


def page(reproductions: Sequence[Reproduction]) -> str:
    """Markdown."""
    parts = [_INTRODUCTION]
    for one in reproductions:
        parts.append(f"## {one.title}\n\n`ringyard reproduce {one.paper}`. {one.setting}")
        parts.append(
            _table(("claim", "claimed", "measured [95 % CI]", "reproduced"), claim_rows(one.measured))
        )
        parts.append("What differs, and why:\n\n" + "\n".join(f"* {line}" for line in one.deviations))
        parts += _figures(one)
    return "\n\n".join(parts) + "\n"
