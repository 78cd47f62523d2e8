"""Results of reproduced papers as files, docs/reproduction/PAPER.json, and whether they still hold.

A file has the command, the composed configuration and the values of every workload of each row (a scheduler
in a case). A row is stale once the simulator gives other values than the file.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ringyard.errors import ConfigurationError
from ringyard_agents.reproduction.run import (
    CaseMetrics,
    Reproduction,
    measure_claim,
    read_claims,
    read_paper,
    run_cases,
)

#: the folder of the files
STORED = Path(__file__).parents[1] / "docs" / "reproduction"
#: largest relative difference of two equal values: sums in another order
_TOLERANCE = 1e-9


def command(paper: str) -> str:
    """The command that makes a paper's file anew."""
    return f"python -m tools.reproduction {paper}"


def _rows(metrics: CaseMetrics, configs: Mapping[str, Any]) -> dict[str, Any]:
    cases = {}
    for case, schedulers in metrics.items():
        rows = {
            label: {
                "config": configs[case]["schedulers"][label],
                "values": {metric: values.tolist() for metric, values in columns.items()},
            }
            for label, columns in schedulers.items()
        }
        cases[case] = {"environment": configs[case]["environment"], "schedulers": rows}
    return cases


def store(one: Reproduction, folder: Path = STORED) -> Path:
    """Write the file of a reproduced paper. No row of it is stale."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{one.paper}.json"
    content = {
        "command": f"{command(one.paper)} --seeds {one.seeds}",
        "seeds": one.seeds,
        "stale": [],
        "cases": _rows(one.metrics, one.configs),
    }
    _write(content, file)
    return file


def _write(content: Mapping[str, Any], file: Path) -> None:
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
        raise ConfigurationError(f"no results of {paper}; expected {file}: run `{command(paper)}`")
    content: dict[str, Any] = json.loads(file.read_text())
    return content


def stored_reproduction(paper: str, folder: Path = STORED) -> Reproduction:
    """The stored results of a paper beside its claims as the yaml has them now.

    Raises:
        ConfigurationError: there is no file, or it lacks a row that the yaml has.
    """
    content, stored = read_paper(paper), read_stored(paper, folder)
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
    return Reproduction(paper, content, stored["seeds"], measured, metrics, stored["cases"], stored["stale"])


def stale_rows(
    paper: str, seeds: int, workers: int | None, on_result: Callable[[str], None], folder: Path = STORED
) -> list[str]:
    """Play the first workloads of every row again, and return "CASE: SCHEDULER" of those that differ.

    Rows whose agent is trained first are not played: they are stale if their training is another one.
    The file of the paper notes what was found.

    Args:
        paper: name of its yaml.
        seeds: number of workloads to play.
        workers: number of processes. None: one per core.
        on_result: called with a line when a case begins.
        folder: the folder of the files.
    """
    content, stored = read_paper(paper), read_stored(paper, folder)
    metrics, _ = run_cases(paper, content, seeds, workers, on_result, trains=False)
    found = []
    for case, settings in content["cases"].items():
        rows = stored["cases"].get(case, {}).get("schedulers", {})
        for label, entry in settings["schedulers"].items():
            if label not in rows:
                found.append(f"{case}: {label}")
            elif "train" in entry:
                if rows[label]["config"] != entry:
                    found.append(f"{case}: {label}")
            elif not _equal(metrics[case][label], rows[label]["values"], seeds):
                found.append(f"{case}: {label}")
    stored["stale"] = found
    _write(stored, folder / f"{paper}.json")
    return found


def _equal(values: Mapping[str, Any], stored: Mapping[str, Any], seeds: int) -> bool:
    return set(values) == set(stored) and all(
        np.allclose(
            values[name], np.array(stored[name][:seeds], dtype=np.float64), _TOLERANCE, 0.0, equal_nan=True
        )
        for name in values
    )
