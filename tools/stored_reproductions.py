"""Results of reproduced papers as files, docs/reproduction/PAPER.json, and whether they still hold.

A file has the command, the composed configuration and the values of every workload of each row (a scheduler
in a case). A row is stale once the simulator gives other values than the file.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.reproduction.run import (
    CaseMetrics,
    MeasuredClaim,
    measure_claim,
    read_claims,
    read_paper,
    run_cases,
)
from tools.ada_srsf.transfers import run_case
from tools.config_files import tool_config_files


@dataclass(frozen=True)
class Reproduction:
    """A reproduced paper."""

    paper: str  #: name of its yaml
    content: Mapping[str, Any]  #: as `paper_content` returns it
    seeds: int  #: number of workloads
    measured: Sequence[MeasuredClaim]  #: claims with measured values
    metrics: CaseMetrics  #: measured values: `_SHOWN` and every metric that the yaml names for a case
    stale: Sequence[str] = ()  #: rows that are known to differ from what the simulator gives now


#: the folder of the files
STORED = Path(__file__).parents[1] / "docs" / "reproduction"
#: largest relative difference of two equal values: sums in another order
_TOLERANCE = 1e-9


def command(paper: str) -> str:
    """The command that makes a paper's file anew."""
    return f"python -m tools.reproduction {paper}"


def paper_content(paper: str) -> dict[str, Any]:
    """Content of a paper's yaml in conf/reproduction, with that of tools/conf/transfers, if there is one.

    Keys of tools/conf/transfers replace the others'. Its cases and claims stand before them.
    """
    content, files = read_paper(paper), tool_config_files("transfers")
    if paper not in files:
        return content
    own: dict[str, Any] = yaml.safe_load(files[paper].read_text())
    cases, claims = own["cases"] | content["cases"], own["claims"] + content["claims"]
    return content | own | {"cases": cases, "claims": claims}


def _run_cases(
    paper: str,
    content: Mapping[str, Any],
    seeds: int,
    workers: int | None,
    on_result: Callable[[str], None],
    rows: Collection[tuple[str, str]] | None = None,
) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Run the cases of `paper_content`: those with a `mix` in their model of transfers, then `run_cases`."""
    for name, case in content["cases"].items():
        entries = case["schedulers"].items()
        named = {label: entry for label, entry in entries if rows is None or (name, label) in rows}
        if "mix" in case and named:
            on_result(f"{paper}: {name}, {len(named)} schedulers, {seeds} seeds")
            environment = {key: case[key] for key in ("mix", "settings") if key in case}
            figures = run_case({**case, "schedulers": named}, seeds)
            yield name, figures, {"environments": dict.fromkeys(named, environment), "schedulers": named}
    others = {name: case for name, case in content["cases"].items() if "mix" not in case}
    yield from run_cases(paper, {**content, "cases": others}, seeds, workers, on_result, rows)


def run_rows(
    paper: str,
    seeds: int | None,
    workers: int | None,
    on_result: Callable[[str], None],
    folder: Path = STORED,
    rows: Collection[tuple[str, str]] | None = None,
) -> None:
    """Run rows of a paper and write its file anew, after each case. What the yaml no longer has is dropped.

    Args:
        paper: name of its yaml.
        seeds: number of workloads. None: as the yaml says.
        workers: number of processes. None: one per core.
        on_result: called with a line when a case begins.
        folder: the folder of the files.
        rows: (case, scheduler) to run; the file keeps the others. None: all.
    """
    content = paper_content(paper)
    count = seeds or int(content["seeds"])
    stored = {} if rows is None else read_stored(paper, folder)["cases"]
    kept = {name: dict(case["schedulers"]) for name, case in stored.items()}
    environments = {name: case["environment"] for name, case in stored.items()}
    folder.mkdir(parents=True, exist_ok=True)

    def write(stale: Sequence[str]) -> None:
        cases = {
            name: {
                "environment": environments[name],
                "schedulers": {
                    label: kept[name][label] for label in case["schedulers"] if label in kept[name]
                },
            }
            for name, case in content["cases"].items()
            if name in kept
        }
        described = {"command": f"{command(paper)} --seeds {count}", "seeds": count, "stale": stale}
        write_json({**described, "cases": cases}, folder / f"{paper}.json")

    for name, figures, config in _run_cases(paper, content, count, workers, on_result, rows):
        if name not in environments or set(figures) == set(content["cases"][name]["schedulers"]):
            environments[name] = next(iter(config["environments"].values()))
        for label, columns in figures.items():
            values = {metric: column.tolist() for metric, column in columns.items()}
            row = {"config": config["schedulers"][label], "values": values}
            if config["environments"][label] != environments[name]:
                row["environment"] = config["environments"][label]
            kept.setdefault(name, {})[label] = row
        write(["this file is not complete"])
    write([])


def write_json(content: Mapping[str, Any], file: Path) -> None:
    """Write plain data as a JSON `file`, with each list of numbers on a line."""
    text = json.dumps(_finite(content), indent=1, allow_nan=False)
    lists = re.compile(r"\[\s+([^\[\]{}]*?)\s+\]")  # of numbers, on a line each
    file.write_text(lists.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")


def _finite(value: Any) -> Any:
    """Return plain data whose numbers JSON has: "inf" and "nan" are texts."""
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def read_stored(paper: str, folder: Path = STORED) -> dict[str, Any]:
    """Read the file of a paper.

    Raises:
        ConfigurationError: there is none.
    """
    file = folder / f"{paper}.json"
    if not file.exists():
        raise ConfigurationError(f"no results of {paper} in {STORED.name}: run `{command(paper)}`")
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def stored_reproduction(paper: str, folder: Path = STORED) -> Reproduction:
    """The stored results of a paper beside its claims as the yaml has them now.

    Raises:
        ConfigurationError: there is no file, or it lacks a row that the yaml has.
    """
    content, stored = paper_content(paper), read_stored(paper, folder)
    for case, settings in content["cases"].items():
        for label in settings["schedulers"]:
            if label not in stored["cases"].get(case, {}).get("schedulers", {}):
                raise ConfigurationError(
                    f"the results of {paper} lack {label!r} in {case!r}: run `{command(paper)}`"
                )
    metrics = {
        case: {
            label: {
                name: np.array(values, dtype=np.float64)
                for name, values in stored["cases"][case]["schedulers"][label]["values"].items()
            }
            for label in settings["schedulers"]
        }
        for case, settings in content["cases"].items()
    }
    claims = read_claims(content["claims"], list(content["cases"]))
    measured = [measure_claim(one, metrics) for one in claims]
    return Reproduction(paper, content, stored["seeds"], measured, metrics, stored["stale"])


def stored_papers(folder: Path = STORED) -> tuple[list[Reproduction], dict[str, str]]:
    """Return the stored results of papers, and {title: what is missing} of the others."""
    found, missing = [], {}
    for paper in config_files("reproduction"):
        try:
            found.append(stored_reproduction(paper, folder))
        except ConfigurationError as error:
            missing[read_paper(paper)["title"]] = str(error)
    return found, missing


def stale_rows(
    paper: str, seeds: int, workers: int | None, on_result: Callable[[str], None], folder: Path = STORED
) -> list[tuple[str, str]]:
    """Play the first workloads of every row again, and return (case, scheduler) of those that differ.

    Rows whose agent is trained first are not played: they are stale if their training is another one, or
    another row of their case is stale. The file of the paper notes what was found.

    Args:
        paper: name of its yaml.
        seeds: number of workloads to play.
        workers: number of processes. None: one per core.
        on_result: called with a line when a case begins.
        folder: the folder of the files.
    """
    content, stored = paper_content(paper), read_stored(paper, folder)
    trained = {
        (case, label): entry
        for case, settings in content["cases"].items()
        for label, entry in settings["schedulers"].items()
        if "train" in entry
    }
    known = {
        (case, label): row
        for case, rows in stored["cases"].items()
        for label, row in rows["schedulers"].items()
    }
    wanted = {
        (case, label) for case, settings in content["cases"].items() for label in settings["schedulers"]
    }
    stale = {row for row in wanted if row not in known or stored["seeds"] != content["seeds"]}
    stale |= {row for row, entry in trained.items() if row in known and known[row]["config"] != entry}
    played = wanted - stale - set(trained)
    for case, figures, _ in _run_cases(paper, content, seeds, workers, on_result, played):
        for label, values in figures.items():
            if not _equal(values, known[case, label]["values"], seeds):
                stale.add((case, label))
    changed = {case for case, _ in stale}
    found = sorted(stale | {row for row in trained if row[0] in changed})
    stored["stale"] = [f"{case}: {label}" for case, label in found]
    write_json(stored, folder / f"{paper}.json")
    return found


def _equal(values: Mapping[str, Any], stored: Mapping[str, Any], seeds: int) -> bool:
    return set(values) == set(stored) and all(
        np.allclose(
            values[name], np.array(stored[name][:seeds], dtype=np.float64), _TOLERANCE, 0.0, equal_nan=True
        )
        for name in values
    )
