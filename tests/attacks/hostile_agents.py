"""Files of other people that try to run code when they are read: every way we could think of.

python tests/attacks/hostile_agents.py [AT_LEAST]
"""

import base64
import copy
import csv
import functools
import inspect
import io
import itertools
import json
import operator
import os
import pickle
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from hydra import initialize_config_dir
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import ActorCriticPolicy

from ringyard.config_folder import config_folder
from ringyard.errors import RingyardError
from ringyard.mdp.experiments import build_env_config
from ringyard.workloads.readers import read_trace, trace_configs
from ringyard_agents.cli import main
from ringyard_agents.config.compose import compose_environments
from ringyard_agents.config.safe_load import check_classes, training_groups
from ringyard_agents.evaluation.result_cache import cached_results
from ringyard_agents.evaluation.tuned_configs import build_scheduler, read_tuned
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.learning.agent_file import LAST_FILE
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.learner import adapt_env_config
from ringyard_agents.learning.policies import PointerPolicy
from ringyard_agents.learning.resume import read_run_config
from ringyard_agents.learning.training_run import read_last, set_up_learner
from ringyard_agents.measurements import read_measured_rows
from ringyard_agents.predictors.hazard_file import SHIPPED, read_survival_estimate
from ringyard_agents.report.tensorboard import record_text
from ringyard_agents.runs.run_folder import RunFolder, command_of
from ringyard_agents.runs.run_index import find_runs
from ringyard_agents.runs.sweep_job import read_job_records
from ringyard_agents.runs.sweep_table import _training_results, print_best, sweep_table
from ringyard_agents.shipped_agents import _environments_of
from ringyard_baselines.papers.interference_aware.networks import DEFAULT_WEIGHTS, InterferenceNetworks

MODULE = "runs_code_when_imported"

#: environment variable that no file may read
CANARY, SECRET = "RINGYARD_CANARY", "what a file may not read"


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def calls(mark: Path) -> Iterator[dict | str]:
    """Nodes of a config that would run something, or import what does."""
    pickled = mark.with_name("pickled")
    pickled.write_bytes(pickle.dumps(Bomb(mark)))
    yield {"_target_": "pathlib.Path.touch", "self": str(mark)}
    yield {"_target_": "pathlib.Path.touch", "_args_": [{"_target_": "pathlib.Path", "_args_": [str(mark)]}]}
    yield {"_target_": "pandas.read_pickle", "filepath_or_buffer": str(pickled)}
    yield {"_target_": "numpy.load", "file": str(pickled), "allow_pickle": True}
    yield {"_target_": "torch.load", "f": str(pickled), "weights_only": False}
    yield {"_target_": "os.system", "command": f"touch {mark}"}
    yield {"_target_": "subprocess.run", "args": ["touch", str(mark)]}
    yield {"_target_": "builtins.eval", "_args_": [f"open({str(mark)!r}, 'w')"]}
    yield {"_target_": "builtins.exec", "_args_": [f"open({str(mark)!r}, 'w')"]}
    yield {"_target_": "builtins.open", "file": str(mark), "mode": "w"}
    yield {"_target_": "functools.partial", "_args_": [{"_target_": "builtins.open"}, str(mark), "w"]}
    yield {"_target_": "importlib.import_module", "name": MODULE}
    for name in ("get_class", "get_method", "get_static_method", "get_object"):
        yield {"_target_": f"hydra.utils.{name}", "path": f"{MODULE}.Anything"}
    yield {"_target_": "hydra.utils.get_class", "_args_": [f"{MODULE}.Anything"]}
    yield {"_target_": "hydra.utils.get_class", "path": f"{MODULE}.Anything", "_partial_": True}
    for name in ("instantiate", "call"):
        yield {"_target_": f"hydra.utils.{name}", "config": {"_target_": f"{MODULE}.Anything"}}
    for name in (f"{MODULE}.Anything", f"{MODULE}", f"{MODULE}."):
        yield {"_target_": name}
        yield {"_target_": name, "_partial_": True}
    # classes that are Ringyard's, in a way that they are not meant to be called
    for name in ("sb3_contrib.MaskablePPO", "stable_baselines3.PPO"):
        yield {"_target_": name, "policy": "MlpPolicy", "env": f"{MODULE}:Anything-v0"}
        yield {"_target_": name, "_args_": ["MlpPolicy", f"{MODULE}:Anything-v0"]}
        yield {"_target_": name, "_partial_": True, "env": f"{MODULE}:Anything-v0"}
        extractor = {"_target_": "hydra.utils.get_class", "path": name}
        options = {
            "features_extractor_class": extractor,
            "features_extractor_kwargs": {"env": f"{MODULE}:A-v0"},
        }
        yield {"_target_": name, "_partial_": True, "policy": "MlpPolicy", "policy_kwargs": options}
    yield {
        "_target_": "ringyard_agents.cli.main",
        "arguments": ["simulate", f"output.jobs_csv={mark}"],
    }
    yield {"_target_": "ringyard_agents.learning.agent.load_agent", "checkpoint": str(pickled), "trust": True}
    yield {"_target_": ["pathlib.Path.touch"]}
    yield {"_target_": {"_target_": "pathlib.Path.touch", "self": str(mark)}}
    yield {"_target_": "${oc.decode:pathlib.Path.touch}", "self": str(mark)}
    yield {"value": "${oc.env:HOME}"}
    create = f"${{oc.create:{{_target_:pathlib.Path.touch,self:{mark}}}}}"
    nested = "${oc.decode:'${oc.env:" + CANARY + "}'}"
    resolvers = (
        "${hydra:runtime.cwd}",
        "${run_folder:a,b}",
        "${job_number:1,2}",
        "${oc.dict.values:a}",
        "a ${b} c",
    )
    for text in (create, f"\\{create}", f"\\\\{create}", f"${{oc.env:{CANARY}}}", nested, *resolvers):
        yield text
        yield [text]
        yield {text: 1}
        yield [{"a": [{"b": text}]}]


def raw(mark: Path) -> Iterator[bytes]:
    """Whole files that are no plain data."""
    yield pickle.dumps(Bomb(mark))
    yield zipped(mark)
    for tag in (
        "object/apply:os.system",
        "object/apply:builtins.open",
        "object/new:pathlib.Path",
        "name:os.system",
    ):
        yield f"a: !!python/{tag} [{str(mark)!r}]\n".encode()
    yield b"a: !!python/module:" + MODULE.encode() + b" ''\n"
    yield b"[" * 200_000 + b"]" * 200_000  # libyaml ends the process
    yield b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n".encode() for a, b in itertools.pairwise("abcdefghijk")
    )
    yield b"a: &a [*a]\n"
    yield b"9" * 5_000
    yield from (b"a: !!bool maybe", b"a: !!int ''", b"a: !!timestamp x", b"a: !!binary x", b"<<: 3")
    yield b"\xff\xfe\x00"


def places(config: dict) -> Iterator[list]:
    """Paths of every node of a config."""

    def walk(node, path):
        yield path
        inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for name, one in inside:
            yield from walk(one, [*path, name])

    yield from walk(config, [])


def put(config: dict, path: list, node: object) -> dict:
    """A copy of a config with something else at a place."""
    if not path:
        return copy.deepcopy(node)
    changed = copy.deepcopy(config)
    inside = changed
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = copy.deepcopy(node)
    return changed


#: descriptions of weights by which a network is made
SIZES = ("features.0", "features.1", "type_scores", "spaces.actions", "spaces.blocks.0.1.shape.0")


def size_changes(config: dict) -> Iterator[tuple[list, Any]]:
    """(path, what would take much memory or time there) at every place, and for arguments left out."""
    policies = [MaskableActorCriticPolicy, ActorCriticPolicy, PointerPolicy]
    for path in places(config):
        value = functools.reduce(operator.getitem, path, config)
        yield from ((path, huge) for huge in sizes(value))
        called = []
        if isinstance(value, dict):
            called += [get_object(value["_target_"])] if "_target_" in value else []
            called += policies if path[-1:] == ["policy_kwargs"] else []
        left_out = {one for call in called for one in inspect.signature(call).parameters if one not in value}
        for name in sorted(left_out):
            yield from (([*path, name], huge) for huge in (10**9, [10**9, 10**9]))


def sizes(value: Any) -> Iterator[Any]:
    """What would take much memory or time in the place of a value."""
    if value is None or isinstance(value, bool | int | float):
        yield from (10**9, 2**62, -1)
    elif isinstance(value, str):
        yield "x" * 10**5
    else:
        many = dict.fromkeys(map(str, range(4_000)), 1)
        yield from ({**value, **many},) if isinstance(value, dict) else ([*many], (value or [1]) * 4_000)


@dataclass(frozen=True)
class Door:
    """A way in which a file that another person made is read."""

    file: str  #: name of the file
    sound: Any  #: content that is read without an error
    read: Callable[[Path], object]  #: what Ringyard does with the file
    encode: Callable[[Any], bytes] = lambda content: json.dumps(content).encode()
    refuses: bool = True  #: False: the content is only shown or compared

    def contents(self, mark: Path, at_least: int) -> Iterator[bytes]:
        """Files that are no plain data, then `at_least` of the payloads, each at a place of the content."""
        yield from raw(mark)
        pairs = list(itertools.product(calls(mark), places(self.sound)))
        for node, path in pairs[:: max(len(pairs) // at_least, 1)]:
            yield from self._encoded(put(self.sound, path, node))

    def _encoded(self, content: Any) -> Iterator[bytes]:
        with suppress(TypeError, ValueError, AttributeError, LookupError):  # a format that cannot hold it
            yield self.encode(content)


def zipped(mark: Path) -> bytes:
    """What looks like a model of Stable-Baselines3."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as stream:
        stream.writestr("data", json.dumps({"policy_class": {":serialized:": "gASVAAA="}}))
        stream.writestr("data.pkl", pickle.dumps(Bomb(mark)))
        stream.writestr("policy.pth", pickle.dumps(Bomb(mark)))
    return file.getvalue()


def use_tuned(file: Path) -> None:
    """Build the schedulers of a file of tuned options, as `ringyard compare tuning=FILE` does."""
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        for best in read_tuned(str(file)).values():
            build_scheduler(best.entry)


def use_environments(file: Path) -> None:
    """Compose the environments of a run, as `ringyard train resume=RUN` does."""
    saved = read_run_config(file, ())
    check = partial(check_classes, groups=training_groups(), trust=(), where=str(file))
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        compose_environments(saved, saved["environments"], check)


def as_word(content: Any) -> str:
    """A value of an override: a text with every special character escaped, or a dict of texts."""
    if isinstance(content, str):
        return "".join(f"\\{one}" if one in "\\()[]{}:=, " else one for one in content)
    return "{" + ",".join(f"{name}:{as_word(value)}" for name, value in content.items()) + "}"


def use_record(file: Path) -> None:
    """Show the record of a run, and continue it."""
    command_of(file)
    RunFolder(file.parent, "train").record(OmegaConf.create({"overwrite": True}), {}, resumed=True)
    record_text(file.parent)


def use_job(file: Path) -> object:
    """Print the best job of a sweep, and its table."""
    home = file.parent / "sweep"
    (home / "0").mkdir(parents=True, exist_ok=True)
    file.replace(home / "0" / file.name)
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(printed):
        print_best(home, only_folder=False)
    return printed.getvalue(), sweep_table(home, read_job_records(home)).to_csv()


def use_training(file: Path) -> object:
    """Read a training run, as `ringyard plot` does, and a job of a sweep."""
    home = file.parent / "trained"
    (home / "tensorboard").mkdir(parents=True, exist_ok=True)
    (home / "tensorboard" / "progress.csv").write_text("decisions,eval/mean_jct\n1,2.0\n")
    for name, content in {"training.json": TRAINING, "config.yaml": {"seed": 1}}.items():
        (home / name).write_text(json.dumps(content))
    file.replace(home / file.name)
    return find_runs([str(home)]), _training_results(home)


def resumer(config: Path) -> Callable[[Path], None]:
    """A function that continues a learner from the state of a run, as `ringyard train resume=RUN` does."""
    settings = OmegaConf.load(config)

    def read(file: Path) -> None:
        saved, _ = read_last(file.parent)
        learner = instantiate(settings.agent, _convert_="all")
        environment = adapt_env_config(learner, build_env_config(settings, 4, 0))
        set_up_learner(learner, {"one": environment}, settings.seed, saved, file.parent)

    return read


_TRACES = itertools.cycle(trace_configs())


def use_trace(file: Path) -> None:
    """Read a file of jobs, by one reader after the other."""
    with suppress(RingyardError):
        read_trace(file, next(_TRACES))


def as_csv(content: Any) -> bytes:
    """A table of one row."""
    text = io.StringIO()
    csv.writer(text).writerows([content.keys(), content.values()])
    return text.getvalue().encode()


def as_npz(content: Any) -> bytes:
    """Arrays, with pickles of what is no array."""
    file = io.BytesIO()
    np.savez(file, **{name: np.array(value, np.asarray(value).dtype) for name, value in content.items()})
    return file.getvalue()


def use_cache(file: Path) -> object:
    """Read the results of runs that were kept."""
    return cached_results(file, {"key"})


def encode_cache(content: Any) -> bytes:
    """A line of a cache of results."""
    packed = base64.b64encode(zlib.compress(json.dumps(["key", content]).encode())).decode()
    return json.dumps({"key": "key", "result": packed}).encode() + b"\n"


TRAINING = {"metric": "mean_jct", "baselines": {"fifo": 2.0}, "best": 1.0, "decisions": 5}
TUNED = {"scheduler": "tiresias@pack", "workloads": 1, "mean": 1.0, "options": {"within_queue": "submission"}}
RECORD = {"command": "train", "arguments": ["a=1"], "commit": None, "versions": {"numpy": "2"}, "resumed": []}
ROW = {"submit": 0, "gpus": 1, "duration": 5.0, "user": "a", "model": "resnet50"}
MEASURED = {"model": "resnet50", "gpu_type": "v100", "placement": "1", "batch": "32", "seconds": "0.1"}
JOB = {"number": 0, "overrides": ["a=1"], "status": "done", "objective": 1.0, "seconds": 1.0, "error": None}


def doors(agent: Path, config: Path) -> dict[str, Door]:
    """{name: door} of all files that other people make.

    Args:
        agent: a sound agent.safetensors.
        config: the config.yaml of its run.
    """
    sound, settings = Checkpoint.read(agent), yaml.safe_load(config.read_text())

    def agent_bytes(parts: Any) -> bytes:
        return Checkpoint(sound.arrays, {**sound.metadata, "parts": parts}).to_bytes()

    last = Checkpoint.read(agent.with_name(LAST_FILE))

    def last_bytes(metadata: Any) -> bytes:
        return Checkpoint(last.arrays, metadata).to_bytes()

    hazard = Checkpoint.read(SHIPPED)

    def hazard_bytes(facts: Any) -> bytes:
        return Checkpoint(hazard.arrays, facts).to_bytes()

    def with_word(value: Any) -> bytes:
        words = [f"+workload.extra={as_word(value)}"]
        return json.dumps({**settings, "environments": [{"other": words}]}).encode()

    return {
        "agent": Door(agent.name, sound.metadata["parts"], lambda file: load_agent(str(file)), agent_bytes),
        "agent.zip": Door("agent.zip", None, lambda file: load_agent(str(file))),
        "last state of a run": Door(LAST_FILE, last.metadata, resumer(config), last_bytes, refuses=False),
        "run config": Door(config.name, settings, lambda file: read_run_config(file, ())),
        "environments of a run": Door(config.name, "text", use_environments, with_word),
        "tuned options": Door("tuned.yaml", {"tiresias": TUNED}, use_tuned),
        "training.json": Door("training.json", TRAINING, use_training, refuses=False),
        "config of a plotted run": Door(
            "config.yaml", {"seed": 1, "agent": {"a": [1]}}, use_training, refuses=False
        ),
        "run.json": Door("run.json", RECORD, use_record, refuses=False),
        "job.json": Door("job.json", JOB, use_job, refuses=False),
        "zoo record": Door("mine.json", {"worlds": [{"label": "own"}]}, _environments_of, refuses=False),
        "rows of a trace": Door("jobs.csv", ROW, use_trace, as_csv, refuses=False),
        "JSON lines of a trace": Door("jobs.jsonl", ROW, use_trace, refuses=False),
        "measurements": Door("rows.csv", MEASURED, read_measured_rows, as_csv, refuses=False),
        "interference weights": Door(
            "weights.npz", dict(np.load(DEFAULT_WEIGHTS)), InterferenceNetworks.load, as_npz
        ),
        "hazard network": Door(
            "hazard.safetensors", hazard.metadata, read_survival_estimate, hazard_bytes, refuses=False
        ),
        "cached results": Door("measured.jsonl", {"label": "fifo"}, use_cache, encode_cache, refuses=False),
    }


@contextmanager
def trap(folder: Path) -> Iterator[Callable[[], bool]]:
    """Says whether something ran since it was last asked."""
    mark = folder / "mark"
    (folder / f"{MODULE}.py").write_text(f"open({str(mark)!r}, 'w').close()\n")

    def ran() -> bool:
        found = mark.exists() or MODULE in sys.modules
        mark.unlink(missing_ok=True)
        sys.modules.pop(MODULE, None)
        return found

    sys.path.insert(0, str(folder))
    os.environ[CANARY] = SECRET
    try:
        yield ran
    finally:
        sys.path.remove(str(folder))
        del os.environ[CANARY]


def attack(door: Door, folder: Path, at_least: int) -> dict[str, int]:
    """Read what is hostile.

    Args:
        door: how files are read.
        folder: to write in.
        at_least: number of payloads, if there are as many.

    Returns:
        {"tried": files read, "refused": with our own error, "ran": that ran something or read a secret}.
    """
    found = dict.fromkeys(("tried", "refused", "ran"), 0)
    with trap(folder) as ran:
        for content in door.contents(folder / "mark", at_least):
            found["tried"] += 1
            (folder / door.file).write_bytes(content)
            read: object = None
            try:
                read = door.read(folder / door.file)
            except RingyardError as error:
                found["refused"] += 1
                read = error
            found["ran"] += ran() or SECRET in repr(read)
    return found


def train_small(folder: Path) -> Path:
    """The folder of a run of some seconds."""
    words = ["train", "debug=tiny_training", "agent.num_envs=8", "cluster.num_servers=2", "name=small"]
    with chdir(folder), redirect_stdout(io.StringIO()):
        if main(words):
            raise AssertionError(f"{' '.join(words)} failed")
    return folder / "runs" / "small"


if __name__ == "__main__":
    at_least = int((sys.argv[1:] or ["2000"])[0])
    broken = False
    with tempfile.TemporaryDirectory() as home:
        run = train_small(Path(home))
        every_door = doors(run / "agent.safetensors", run / "config.yaml")
        for name, door in every_door.items():
            with tempfile.TemporaryDirectory() as folder:
                result = attack(door, Path(folder), at_least // len(every_door))
            print("{}: ran code: {ran:,} of {tried:,}; refused: {refused:,}".format(name, **result))
            broken |= result["ran"] > 0 or (door.refuses and result["refused"] < result["tried"])
    sys.exit(broken)
