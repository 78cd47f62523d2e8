"""Malformed files and arguments: each is refused with our own error or read as a table that makes sense.

python tests/attacks/malformed.py [COUNT [SEED]]    COUNT files drawn by Hypothesis, and every argument
"""

import functools
import gzip
import importlib
import inspect
import io
import json
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from functools import partial
from pathlib import Path

import hypothesis
import yaml
from hypothesis import strategies as st

from ringyard import Cluster
from ringyard.config_folder import config_folder
from ringyard.errors import RingyardError, WorkloadWarning
from ringyard.placement import pack
from ringyard.workloads.readers import trace_configs, trace_reader

# files

_ODD_CELLS = (
    *("", " ", "nan", "inf", "-inf", "1e400", "-1", "0", "1.5", '"1,000"', "1,000", "5 s", "0x1F", "1_000"),
    *(
        "9" * 19,
        "9" * 30,
        "-" + "9" * 30,
        "1000000000000",
        "true",
        "None",
        '"',
        "'",
        '"a\nb"',
        "\x00",
        "ü",
        "\uff11\uff12",
    ),
    *("2020-13-45", "2020-01-01T00:00:00+02:00", "2020-01-01 00:00:00", "01.02.2020", "0001-01-01", "noon"),
)
_ODD_NAMES = ("folder.csv", "nothing.csv", "n" * 300, "a\x00b", "~nobody/x")
_NAMES = ("jobs.csv", "jobs.csv.gz", "cluster_log.csv", "jobs.jsonl")


@functools.cache
def readers():
    """{workload that reads a file: (its reader, columns that its settings name)}."""
    found = {}
    for trace in trace_configs():
        reader = trace_reader(trace)
        named = [name for role in reader.roles for name in reader.column_names(role)]
        found[trace] = reader, tuple(dict.fromkeys([*(reader.header or ()), *named]))
    return found


def _cell(column, row):
    if column == "submit_time_date":
        return f"2020-04-01 00:00:{row:02d}"
    return {"state": "COMPLETED", "status": "Pass"}.get(column, str(row + 1))


@st.composite
def csv_texts(draw, columns, dated):
    """A CSV file that was right before some of it was changed."""
    columns = list(columns)
    rows = [
        [_cell("submit_time_date" if dated and "time" in name else name, row) for name in columns]
        for row in range(draw(st.integers(0, 4)))
    ]
    lines = [columns, *rows]
    for _ in range(draw(st.integers(0, 3))):
        line = draw(st.sampled_from(lines))
        kind = draw(st.sampled_from(("cell", "cell", "cell", "text", "more", "less", "twice", "swap")))
        where = draw(st.integers(0, max(len(line) - 1, 0)))
        if kind == "more" or not line:
            line.insert(where, draw(st.sampled_from(_ODD_CELLS)))
        elif kind == "less":
            line.pop(where)
        elif kind == "twice":
            line[where] = line[-1 - where]
        elif kind == "swap":
            line.reverse()
        else:
            line[where] = draw(st.sampled_from(_ODD_CELLS) if kind == "cell" else st.text(max_size=6))
    separator = draw(st.sampled_from((",",) * 6 + (";", "\t")))
    return draw(st.sampled_from(("\n", "\n", "\r\n"))).join(separator.join(line) for line in lines)


@st.composite
def philly_logs(draw):
    """A job log of Philly's release with something else in places."""
    odd = st.sampled_from((None, 3, "x", "2017-10-01 00:00:09", [], {}, [3], {"a": 1}, 1e400, True, "0" * 30))
    attempt = {"start_time": "2017-10-01 00:01:00", "end_time": "2017-10-01 00:02:00"}
    job = {"submitted_time": "2017-10-01 00:00:30", "status": "Pass"}
    log = []
    for _ in range(draw(st.integers(0, 3))):
        tried = attempt | {"detail": draw(st.one_of(st.just([{"gpus": ["a", "b"]}]), odd))}
        tried[draw(st.sampled_from((*attempt, "other")))] = draw(odd)
        changed = job | {"attempts": draw(st.one_of(st.just([tried]), odd))}
        changed[draw(st.sampled_from((*job, "other")))] = draw(odd)
        log.append(draw(st.one_of(st.just(changed), odd)))
    return json.dumps(draw(st.one_of(st.just(log), odd)))


@st.composite
def packed(draw, text):
    """The bytes of a file: encoded, compressed, cut short or covered with rubbish in one of many ways."""
    encoding = draw(st.sampled_from(("utf-8",) * 5 + ("utf-8-sig", "utf-16", "latin-1")))
    data = text.encode(encoding, "replace")
    form = draw(st.sampled_from(("plain",) * 6 + ("gzip", "gzip", "zip", "rubbish", "empty")))
    if form == "gzip":
        data = gzip.compress(data, mtime=0)
    elif form == "zip":
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("jobs.csv", data)
        data = file.getvalue()
    elif form == "rubbish":
        data = draw(st.binary(max_size=40))
    elif form == "empty":
        data = b""
    if draw(st.integers(0, 5)) == 0:
        data = data[: draw(st.integers(0, len(data)))]
    return data


@st.composite
def traces(draw):
    """(workload, name of the file, its bytes; None: a folder of that name, or nothing at all)."""
    reader = draw(st.sampled_from((*readers(), "log")))
    if reader == "log":
        return "philly", "cluster_job_log", draw(packed(draw(philly_logs())))
    if draw(st.integers(0, 30)) == 0:
        return reader, draw(st.sampled_from(_ODD_NAMES)), None
    text = draw(csv_texts(readers()[reader][1], dated=draw(st.booleans())))
    return reader, draw(st.sampled_from(_NAMES)), draw(packed(text))


def read(folder, trace):
    """Whether the trace was "refused" or "read".

    Raises:
        Exception: any other than ours, or a table that was read and makes no sense.
    """
    reader, name, data = trace
    path = str(folder / name) if not name.startswith("~") else name
    if data is None and name == "folder.csv":
        Path(path).mkdir(exist_ok=True)
    elif data is not None:
        Path(path).write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", WorkloadWarning)
        try:
            jobs = readers()[reader][0](path)
        except RingyardError as error:
            if not str(error).strip():
                raise AssertionError("an error without a word") from error
            return "refused"
    jobs.check()
    return "read"


# arguments

WRONG_NUMBERS = (float("nan"), "x", True, [], -(10**30))
WRONG = (*WRONG_NUMBERS, float("inf"), -1, 0, 0.5, None, {}, {1: 2}, [float("nan")], 10**30, "", object())
_GROUPS = (
    "workload",
    "performance",
    "restart",
    "failures",
    "reward",
    "action",
    "placement",
    "scheduler",
    "cluster",
)


def _built(value):
    """What a piece of yaml describes, as Hydra would build it."""
    if isinstance(value, list):
        return [_built(one) for one in value]
    if not isinstance(value, dict):
        return pack() if value == "${placement}" else _number(value)
    arguments = {name: _built(one) for name, one in value.items() if not str(name).startswith("_")}
    if "_target_" not in value:
        return arguments
    target = _named(value["_target_"])
    return partial(target, **arguments) if value.get("_partial_") else target(**arguments)


def _named(path):
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        return getattr(_named(module), name)


def leaves():
    """{group/name: (what a yaml of conf calls, its arguments)} of all that stand by themselves."""
    found = {
        "state/Cluster": (Cluster, {"gpus_per_server": (4,), "cores_per_server": (8,), "jobs_per_gpu": 1})
    }
    for group in _GROUPS:
        for file in sorted((config_folder() / group).glob("*.yaml")):
            config = yaml.safe_load(file.read_text())
            if isinstance(config, dict) and "_target_" in config and "defaults" not in config:
                if config.get("path") != "???" and "ringyard_agents" not in str(config):
                    arguments = {k: v for k, v in config.items() if not k.startswith("_")}
                    found[f"{group}/{file.stem}"] = (_named(config["_target_"]), arguments)
    return found


def _number(value):
    if isinstance(value, str):  # yaml takes 1e9 for text
        try:
            return float(value)
        except ValueError:
            return value
    return value


def misuse(target, arguments):
    """How often each wrong value of each argument was "refused" and "taken".

    Raises:
        Exception: any other than ours.
        AssertionError: what can be no number was taken where a number belongs.
    """
    counts = Counter()
    right = {name: _built(value) for name, value in arguments.items()}
    hints = inspect.signature(target).parameters
    for name, value in right.items():
        a_number = isinstance(value, int | float) and not isinstance(value, bool)
        for wrong in WRONG:
            try:
                target(**right | {name: wrong})
            except RingyardError as error:
                if "expected" not in str(error):
                    raise AssertionError(f"says not what was expected: {error}") from error
                counts["refused"] += 1
                continue
            except Exception as error:
                raise AssertionError(f"{target.__qualname__}({name}={wrong!r}): {error!r}") from error
            assert not (a_number and wrong in WRONG_NUMBERS[1:]), f"{hints[name]} took {wrong!r}"
            assert not (a_number and wrong != wrong), f"{hints[name]} took {wrong!r}"
            counts["taken"] += 1
    return counts


def attack(count=1000, seed=0):
    """{outcome: how many} of `count` drawn files and of every wrong argument of every yaml of conf.

    Raises:
        Exception: the first that is not ours.
    """
    counts = Counter()
    with tempfile.TemporaryDirectory() as folder:

        @hypothesis.seed(seed)
        @hypothesis.settings(max_examples=count, database=None, deadline=None, derandomize=False)
        @hypothesis.given(traces())
        def one(trace):
            counts[f"files {read(Path(folder), trace)}"] += 1

        one()
    for target, arguments in leaves().values():
        for outcome, times in misuse(target, arguments).items():
            counts[f"arguments {outcome}"] += times
    return dict(counts)


if __name__ == "__main__":
    counts = attack(*map(int, sys.argv[1:]))
    total = sum(counts.values())
    print(f"malformed inputs: {total:,} / {total:,} each with our own error or a table that makes sense")
    print(", ".join(f"{times:,} {outcome}" for outcome, times in sorted(counts.items())))
