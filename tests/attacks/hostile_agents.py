"""Agents, run folders and tuned options that try to run code when they are read: every way we could think of.

python tests/attacks/hostile_agents.py [AT_LEAST]
"""

import copy
import io
import itertools
import json
import pickle
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path

import yaml
from hydra import initialize_config_dir

from ringyard.config_folder import config_folder
from ringyard.errors import RingyardError
from ringyard_agents.cli import main
from ringyard_agents.evaluation.tuned_configs import build_scheduler, read_tuned
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.resume import read_run_config

MODULE = "runs_code_when_imported"


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
    for text in (f"${{oc.create:{{_target_:pathlib.Path.touch,self:{mark}}}}}", "${oc.env:HOME}", "a ${b} c"):
        yield text
        yield [text]
        yield {text: 1}


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


#: a file's name and what makes its contents
Hostile = tuple[str, Callable[[], bytes]]


def hostile_agents(agent: Path, mark: Path) -> Iterator[Hostile]:
    """What looks like the agent `agent`."""
    sound = Checkpoint.read(agent)
    parts = sound.metadata["parts"]

    def changed(path: list, node: object) -> bytes:
        return Checkpoint(sound.arrays, {**sound.metadata, "parts": put(parts, path, node)}).to_bytes()

    for node in calls(mark):
        for path in places(parts):
            yield agent.name, partial(changed, path, node)
    yield agent.name, lambda: pickle.dumps(Bomb(mark))
    yield "agent.zip", lambda: pickle.dumps(Bomb(mark))
    yield "agent.zip", lambda: zipped(mark)


def zipped(mark: Path) -> bytes:
    """What looks like a model of Stable-Baselines3."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as stream:
        stream.writestr("data", json.dumps({"policy_class": {":serialized:": "gASVAAA="}}))
        stream.writestr("data.pkl", pickle.dumps(Bomb(mark)))
        stream.writestr("policy.pth", pickle.dumps(Bomb(mark)))
    return file.getvalue()


def hostile_configs(config: Path, mark: Path) -> Iterator[Hostile]:
    """What looks like the run's `config`; JSON is YAML."""
    sound = yaml.safe_load(config.read_text())

    def changed(path: list, node: object) -> bytes:
        return json.dumps(put(sound, path, node)).encode()

    for node in calls(mark):
        for path in places(sound):
            if path:
                yield (
                    config.name,
                    partial(lambda *change: json.dumps(put(sound, *change)).encode(), path, node),
                )
    for call in ("os.system", "builtins.open", "pathlib.Path.touch"):
        text = f"{config.read_text()}\nextra: !!python/object/apply:{call} [{str(mark)!r}]\n"
        yield config.name, text.encode


def hostile_tuned(mark: Path) -> Iterator[Hostile]:
    """What looks like a file of `ringyard tune`."""
    best = {
        "scheduler": "tiresias@pack",
        "workloads": 1,
        "mean": 1.0,
        "options": {"within_queue": "submission"},
    }
    sound = {"tiresias": best}
    for node in calls(mark):
        for path in places(sound):
            yield "tuned.yaml", lambda path=path, node=node: json.dumps(put(sound, path, node)).encode()


def use_tuned(file: Path) -> None:
    """Build the schedulers of a file of tuned options, as `ringyard compare tuning=FILE` does."""
    with initialize_config_dir(str(config_folder()), version_base="1.3"):
        for best in read_tuned(str(file)).values():
            build_scheduler(best.entry)


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
    try:
        yield ran
    finally:
        sys.path.remove(str(folder))


def attack(agent: Path, config: Path, folder: Path, every: int = 1) -> dict[str, int]:
    """Read what is hostile.

    Args:
        agent: a sound agent.safetensors.
        config: the config.yaml of its run.
        folder: to write in.
        every: read one in so many of them.

    Returns:
        {"tried": files read, "refused": with our own error, "ran": that ran something}.
    """
    found = dict.fromkeys(("tried", "refused", "ran"), 0)
    mark = folder / "mark"
    readers = (
        (hostile_agents(agent, mark), lambda file: load_agent(str(file))),
        (hostile_configs(config, mark), lambda file: read_run_config(file, ())),
        (hostile_tuned(mark), use_tuned),
    )
    (folder / "agent.yaml").write_text(json.dumps(Checkpoint.read(agent).metadata["parts"]))
    with trap(folder) as ran:
        for files, read in readers:
            for name, contents in itertools.islice(files, 0, None, every):
                found["tried"] += 1
                (folder / name).write_bytes(contents())
                try:
                    read(folder / name)
                except RingyardError:
                    found["refused"] += 1
                found["ran"] += ran()
    return found


def train_small(folder: Path) -> Path:
    """The folder of a run of some seconds."""
    words = ["train", "debug=tiny_training", "cluster.num_servers=2", "name=small"]
    with chdir(folder), redirect_stdout(io.StringIO()):
        if main(words):
            raise AssertionError(f"{' '.join(words)} failed")
    return folder / "runs" / "small"


if __name__ == "__main__":
    at_least = int((sys.argv[1:] or ["2000"])[0])
    with tempfile.TemporaryDirectory() as home:
        run = train_small(Path(home))
        files = (run / "agent.safetensors", run / "config.yaml")
        every = (
            sum(
                1
                for _ in (
                    *hostile_agents(files[0], run),
                    *hostile_configs(files[1], run),
                    *hostile_tuned(run),
                )
            )
            // at_least
        )
        result = attack(*files, Path(home), max(every, 1))
    print("agents and configs that ran code: {ran:,} of {tried:,}; refused: {refused:,}".format(**result))
    sys.exit(result["ran"] > 0 or result["refused"] < result["tried"])
