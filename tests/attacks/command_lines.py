"""Command lines that are wrong: each ends in one line on standard error and exit code 2, and leaves nothing.

python tests/attacks/command_lines.py [COUNT [SEED]]
"""

import contextlib
import gzip
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import typing
import warnings
from collections import Counter
from pathlib import Path

from ringyard_agents.cli import main
from ringyard_agents.config.schema import SETTINGS

MOST_SECONDS = 60
COMMANDS = ("simulate", "compare", "train")
GROUPS = (
    "cluster",
    "workload",
    "performance",
    "restart",
    "failures",
    "action",
    "observation",
    "reward",
    "cost",
)

#: values that no number, no text, no list of texts, no switch is
NO_NUMBER = [
    "abc",
    "[1,2]",
    "{a:1}",
    "true",
    "''",
    "nan",
    "-1",
    "-inf",
    "inf",
    "1e400",
    "1..2",
    "10^12",
    "'3'",
]
NO_TEXT = ["3", "2.5", "true", "[a,b]", "{a:1}", "[]"]
NO_TEXTS = ["3", "true", "{a:b}", "[3]", "[null]", "[[a]]", "[{a:1}]", "nan"]
NO_SWITCH = ["maybe", "3", "1", "0", "null", "[true]", "{a:1}", "''", "nan"]
NO_GROUP = ["nope", "5", "''", "../nope", "NOPE"]

#: wrong for whole numbers of things, wherever they stand
NO_COUNT = [
    "abc",
    "2.5",
    "0",
    "-3",
    "1e18",
    "[1,2]",
    "{a:1}",
    "true",
    "nan",
    "inf",
    "null",
    "9" * 30,
    "10^12",
]
COUNTS = ["cluster.num_servers", "cluster.gpus_per_server", "workload.num_jobs", "workload.max_gpus"]
NO_POSITIVE = ["abc", "0", "-1", "nan", "inf", "[1]", "{a:1}", "true", "null", "''"]
POSITIVES = ["performance.bandwidth", "workload.load", "workload.arrivals.load"]

SYNTAX = [
    "", " ", "=", "=1", "seed", "seed==1", "seed=1,2", "seed=[1", "seed={a", "seed='1", 'seed="1',
    "seed=1]", "'", '"', "{", "[", ",", "a b=c", "seed=(1", "seed=${", "seed=${nope}",
    "seed=${oc.env:NO_SUCH_VARIABLE}", "seed=${nope:1}", "x=1", "nope=1", "cluster.nope=1",
    "+cluster.nope=1", "+cluster.num_servers=1", "~nope", "~seed", "~cluster", "~cluster.nope",
    "++cluster.nope=1", "seed.x=1", "cluster.num_servers.x=1", "cluster=[a,b]", "seed@x=1",
    "cluster@x=default", "nope/nope=1", "\x00", "seed=\x07", "\udcff=1", "seed=\udcff",
    "é=1", "name=\x1b[31m", "seed=range(1,3)", "seed=choice(1,2)", "seed=glob(*)", "seed=interval(0,1)",
    "hydra=nope", "hydra/launcher=nope", "hydra.nope=1", "experiment=nope", "debug=nope",
    "+experiment=sharing",
]  # fmt: skip
OPTIONS = [
    ["--nope"], ["-z"], ["--cfg"], ["--cfg", "nope"], ["--config-dir", "nope"], ["--config-dir"],
    ["--config-name", "x"], ["--config-path", "nope"], ["--info", "nope"], ["--resolve"],
    ["--run", "-m"], ["-m", "seed="], ["--experimental-rerun", "job.pickle"], ["-m", "seed=abc,x"],
    ["-m", "seed=1,nope=2"], ["--multirun", "name=../x"],
    ["--cfg", "job", "x=1"], ["--info", "config", "x=1"],
]  # fmt: skip
NAMES = [
    "..",
    "../x",
    "a/../../x",
    "/tmp/x",
    "a//b",
    "a/",
    ".",
    "''",
    "null",
    "x" * 300,
    "ü" * 128,
    "a/" + "y" * 256,
]
ENTRIES = [
    "[]", "[fifo,fifo]", "[nope]", "[fifo@nope]", "[fifo,a:x,a:y]", "[sjf:x]", "[':x']", "[mine:nowhere]",
    "''", "[fifo@]", "[all,all]", "[all:x]", "[fifo@pack@pack]", "nope",
    "[fifo,fifo@pack,fifo]", "['']",
]  # fmt: skip
OTHERS = [
    ["fly"], [""], ["--nope"], ["-x"], ["Compare"], ["\x00"], ["\udcff"], ["seed=1"], ["traces", "philly"],
    ["trian"], ["--version=1"], ["train", "+experimnt=elastic"],
    ["compare", "--wde"], ["traces", "nope", "jobs.csv"],
    ["traces", "philly", "nowhere"], ["traces", "philly", "."],
    ["traces", "helios", "empty.csv"], ["traces", "helios", "noise.csv"], ["traces", "pai", "short.csv.gz"],
    ["traces", "philly", "noise.csv"], ["traces", "--nope"], ["traces", "a", "b", "c"], ["traces", "", ""],
    ["traces", "philly", "a\x00b"], ["traces", "philly", "x" * 300], ["validate"], ["validate", "nowhere"],
    ["validate", "jobs.csv"], ["validate", ".", "--nope"], ["validate", "", "x"], ["validate", "a\x00b"],
    ["validate", "x" * 300], ["validate", "--out"], ["validate", "noise.csv"], ["validate", "empty.csv"],
    ["validate", "measured.csv"], ["validate", "measured_well.csv", "--network", "nope"],
    ["validate", "measured_well.csv", "--performance", "5"], ["reproduce"], ["reproduce", "nope"],
    ["reproduce", "ones", "--all"], ["reproduce", "ones", "--seeds", "1"],
    ["reproduce", "ones", "--seeds", "x"], ["reproduce", "ones", "--workers", "0"],
    ["reproduce", "../ones"], ["reproduce", "ones", "--workers", "-3"], ["reproduce", "ones", "--nope"],
    ["reproduce", ""], ["reproduce", "ones", "--seeds", "9" * 20],
]  # fmt: skip
BAD_FILES = {
    "measured.csv": b"model,gpu_type,placement,batch,seconds\nresnet50,v100,1,64,0\n",
    "measured_well.csv": b"model,gpu_type,placement,batch,seconds\nresnet50,v100,1,64,1\n",
    "empty.csv": b"",
    "noise.csv": bytes(range(256)) * 4,
    "latin.csv": "job_id,submit_time,gpus,duration\nä,0,1,5\n".encode("latin-1"),
    "columns.csv": b"id,arrival,num,secs\n1,0,1,5\n",
    "header.csv": b"job_id,submit_time,gpus,duration\n",
    "text.csv": b"job_id,submit_time,gpus,duration\n1,0,one,5\n",
    "nan.csv": b"job_id,submit_time,gpus,duration\n1,0,1,nan\n",
    "unsorted.csv": b"job_id,submit_time,gpus,duration\n1,5,1,5\n2,4,1,5\n",
    "large.csv": b"job_id,submit_time,gpus,duration\n1,0,100000,5\n",
    "ragged.csv": b'job_id,submit_time,gpus,duration\n1,0,1,5,6,7\n"1,0\n',
    "short.csv.gz": gzip.compress(b"job_id,submit_time,gpus,duration\n1,0,1,5\n" * 999)[:40],
    "plain.csv.bz2": b"job_id,submit_time,gpus,duration\n",
    "plain.csv.xz": b"job_id,submit_time,gpus,duration\n",
    "plain.csv.zip": b"PK\x03\x04 no",
    "brace.json": b"[{",
    "list.json": b"[1,2]",
    "null.json": b"null",
}
NO_FILES = ["nowhere.csv", ".", "/", "''", "/dev/null", "x" * 300, "~nobody/x", "jobs.csv/x"]


def wrong_values(annotation: object) -> list[str]:
    """Overrides that an annotation of `SETTINGS` forbids."""
    options = typing.get_args(annotation)
    nullable = type(None) in options
    kinds = [option for option in (options or [annotation]) if option is not type(None)]
    base = typing.get_origin(annotation)
    if bool in kinds:
        return [value for value in NO_SWITCH if len(kinds) == 1 or value in ("3", "null", "{a:1}", "nan")]
    if "Sequence" in str(base):
        return [*NO_TEXTS, "null"]
    if "typing.Annotated" in str(annotation):
        return NO_NUMBER if nullable else [*NO_NUMBER, "null"]
    if str in kinds:
        return [value for value in NO_TEXT if len(kinds) == 1 or "[" not in value] + (
            [] if nullable else ["null"]
        )
    if "Mapping" in str(base):
        return NO_GROUP
    return NO_TEXTS if nullable else [*NO_TEXTS, "null"]


def a_setting(draw: random.Random, command: str) -> list[str]:
    name = draw.choice(list(SETTINGS[command]))
    return [f"{name}={draw.choice(wrong_values(SETTINGS[command][name]))}"]


def a_count(draw: random.Random, command: str) -> list[str]:
    count = draw.choice(COUNTS)
    values = [
        one for one in NO_COUNT if (count, one) != ("workload.max_gpus", "null")
    ]  # that one may be null
    return [f"{count}={draw.choice(values)}"]


def a_number(draw: random.Random, command: str) -> list[str]:
    return [f"{draw.choice(POSITIVES)}={draw.choice(NO_POSITIVE)}"]


def syntax(draw: random.Random, command: str) -> list[str]:
    return [draw.choice(SYNTAX)]


def an_option(draw: random.Random, command: str) -> list[str]:
    return draw.choice(OPTIONS)


def a_name(draw: random.Random, command: str) -> list[str]:
    return [f"name={draw.choice(NAMES)}"]


def a_file(draw: random.Random, command: str) -> list[str]:
    workload = draw.choice(["csv", "philly", "helios", "pai"])
    return [f"workload={workload}", f"workload.path={draw.choice([*NO_FILES, *BAD_FILES])}"]


def entries(draw: random.Random, command: str) -> list[str]:
    if command != "compare":
        return ["schedulers=[fifo_backfill]"]
    return draw.choice(
        [
            [f"schedulers={draw.choice(ENTRIES)}"],
            [f"reference={draw.choice(['nope', 'FIFO', 'sjf@pack'])}"],
            [f"experiments=[{draw.choice(['nope', 'full,nope', 'partitioning'])}]"],
            ["workload=sjf_bco", "experiments=[full]"],
        ]
    )


KINDS = [a_setting, a_setting, a_count, a_number, syntax, an_option, a_name, a_file, entries]


def command_line(draw: random.Random) -> list[str]:
    """A wrong one."""
    if draw.random() < 0.1:
        return draw.choice(OTHERS)
    command = draw.choice(COMMANDS)
    words = draw.choice(KINDS)(draw, command)
    if draw.random() < 0.3:  # right ones around it
        words = [*words, draw.choice(["experiment=sharing", "+note=1"])]
    return [command, *words]


@contextlib.contextmanager
def a_folder():
    """A working folder with bad files in it."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name, content in BAD_FILES.items():
                Path(name).write_bytes(content)
            Path("jobs.csv").write_text("job_id,submit_time,gpus,duration\n1,0,1,5\n")
            yield Path(folder)
        finally:
            os.chdir(before)


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


class EndlessError(BaseException):
    """A command that should have ended at once went on."""


def stop_after(seconds: int) -> None:
    """Raise EndlessError in this thread after so many seconds; 0: never."""

    def stop(number: int, frame: object) -> None:
        raise EndlessError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)


def complaint(words: list[str], folder: Path) -> str | None:
    """What is wrong with how a wrong command line ends; None: nothing."""
    before = everything(folder)
    said, told = io.StringIO(), io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(told), contextlib.redirect_stderr(said):
            warnings.simplefilter("always")
            stop_after(MOST_SECONDS)
            code = main(words)
    except BaseException as error:
        return f"{type(error).__name__} came through: {error}"
    finally:
        stop_after(0)
    if code in (130, 143):  # somebody wants the attack itself to end
        raise KeyboardInterrupt
    if code != 2:
        return f"exit code {code}"
    lines = [line for line in said.getvalue().splitlines() if not line.startswith("note: `fifo` is now")]
    if len(lines) != 1:
        return f"{len(lines)} lines on standard error: {said.getvalue()[:500]!r}"
    if not lines[0].startswith("ringyard") or "RINGYARD_DEBUG" in lines[0]:
        return f"no error of ours: {lines[0]}"
    if "-m" in words:  # a sweep keeps the records of its jobs, and its table says why they failed
        shutil.rmtree(folder / "runs", ignore_errors=True)
    if everything(folder) != before:
        return f"left {everything(folder) ^ before}"
    return None


def attack(count: int, seed: int) -> Counter[str]:
    """Try wrong command lines; {"right": those that ended as they should, "wrong": the others, printed}."""
    draw = random.Random(seed)
    counts: Counter[str] = Counter()
    argv = sys.argv
    with a_folder() as folder:
        for _ in range(count):
            words = command_line(draw)
            found = complaint(words, folder)
            counts["wrong" if found else "right"] += 1
            if found:
                print(f"{words}: {found}")
    sys.argv = argv
    return counts


if __name__ == "__main__":
    chosen = [int(word) for word in sys.argv[1:]]
    result = attack(*chosen, *(1000, 0)[len(chosen) :])
    print(f"wrong command lines: {result['right']} of {result.total()} ended in one line and exit code 2")
    sys.exit(result["wrong"] > 0)
