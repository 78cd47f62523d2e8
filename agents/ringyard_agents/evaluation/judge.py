"""Command `ringyard judge`: score a Python file with a scheduler, in a process with limits."""

import importlib
import inspect
import json
import math
import multiprocessing
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import hydra
import numpy as np

from ringyard import PlacementPlan
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError, RingyardError, SchedulerError
from ringyard.mdp.user_config import hydra_initialized
from ringyard_agents.command_line import one_line
from ringyard_agents.config.compose import to_plain
from ringyard_agents.evaluation.api import as_scheduler
from ringyard_agents.evaluation.evaluate import build_object, make_simulator, run_scheduler, run_task
from ringyard_agents.evaluation.leaderboard import Levels
from ringyard_agents.evaluation.process_pool import prepare_worker
from ringyard_baselines.scheduler import Scheduler, run

_WALL_PER_CPU = 3  #: limit on wall time / limit on processor time, so that a busy machine fails no scheduler


def judge(file: str, environment: str, level_set: str, workloads: int, **limits: int) -> None:
    """Print one line of JSON: the score of the scheduler in a file, or its error, with exit code 1.

    commands.yaml describes the arguments.
    """
    names = ("score", "mean_jct", "reference", "reference_mean_jct")
    answer: dict[str, Any] = dict.fromkeys((*names, "observability", "capabilities", "error"))
    try:
        if level_set == "hidden":
            raise ConfigurationError("--set is hidden; expected train, validation or test")
        levels = Levels.find(environment, "standard", level_set)
        answer |= _judge(Path(file).expanduser().resolve(), levels, workloads, **limits)
    except (RingyardError, OSError) as error:
        answer["error"] = one_line(error)
    print(json.dumps(answer))
    if answer["error"]:
        raise SystemExit(1)


def _judge(file: Path, levels: Levels, workloads: int, seconds: int, memory: int) -> dict[str, Any]:
    if sys.platform != "linux":
        raise ConfigurationError(f"`ringyard judge` needs the limits of Linux, and this is {sys.platform}")
    if file.suffix != ".py" or not file.is_file():
        raise ConfigurationError(f"there is no file {str(file)!r}; expected a Python file with a scheduler")
    with hydra_initialized():
        tasks = levels.plan([levels.reference], workloads).tasks
        composed = [hydra.compose("entry", [f"placement={rule}"]) for rule in config_files("placement")]
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    rules = [to_plain(one.placement) for one in composed]
    process = context.Process(target=_run, args=(sender, file, tasks, rules, seconds, memory), daemon=True)
    process.start()
    sender.close()
    try:
        reference = json.loads(receiver.recv_bytes())["mean_jct"]  # it has compiled before
        if not receiver.poll(_WALL_PER_CPU * seconds):
            raise SchedulerError(f"it took more than {_WALL_PER_CPU * seconds} s on the clock")
        answer = json.loads(receiver.recv_bytes())
    except EOFError:
        process.join()
        if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise SchedulerError(f"it took more than {seconds} s of processor time") from None
        raise SchedulerError(f"its process ended with code {process.exitcode} (below 0: a signal)") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid or 0, signal.SIGKILL)  # with all that it started
        process.kill()
        process.join()
    if answer["error"]:
        return answer
    score = answer["mean_jct"] / reference
    return answer | {"score": score, "reference": tasks[0].label, "reference_mean_jct": reference}


def _run(sender: Connection, file: Path, tasks: Any, rules: Any, seconds: int, memory: int) -> None:
    """Send the mean JCT of the reference, then set limits, and send that of the file's scheduler."""
    import resource  # which Windows lacks

    prepare_worker()
    os.setsid()
    reference = float(np.mean([run_task(task).metrics.mean_jct for task in tasks]))
    scheduler = build_object(tasks[0].scheduler)
    _compile(tasks[0], scheduler, rules)
    sender.send_bytes(json.dumps({"mean_jct": reference}).encode())
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    answer: dict[str, Any] = {"error": None}
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        space = pages * resource.getpagesize() + memory * 2**20
        end = math.ceil(time.process_time() + seconds)
        for limit, soft, hard in (("CORE", 0, 0), ("AS", space, space), ("CPU", end, end + 1)):
            resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (soft, hard))
        judged = _load(file, scheduler.placement)
        found = [run_scheduler(judged, task).metrics for task in tasks]
        if any(one.blocking_rate for one in found):
            raise SchedulerError("it rejects jobs; expected a scheduler with which every job ends")
        answer["mean_jct"] = float(np.mean([one.mean_jct for one in found]))
        answer |= {"observability": str(judged.total_observability), "capabilities": str(judged.capabilities)}
    except MemoryError:
        answer["error"] = f"it took more than {memory} MiB of memory"
    except BaseException as error:
        kind = "" if isinstance(error, RingyardError) else f"{type(error).__name__}: "
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f" (line {one.lineno})" for one in frames if one.filename == str(file)]
        answer["error"] = f"{kind}{' '.join(str(error).split())[:1000]}{''.join(lines[-1:])}"
    sender.send_bytes(json.dumps(answer).encode())


def _compile(task: Any, scheduler: Scheduler, rules: Any) -> None:
    """Compile, or load, what schedulers in Python call, before limits count."""
    sim = make_simulator(task.environment, task.workload, task.seed, scheduler.round_seconds)
    run(sim, scheduler, np.random.default_rng(0), compiled=False)
    for rule in rules:
        view = make_simulator(task.environment, task.workload, task.seed, None).view()
        with suppress(RingyardError):  # rules that this cluster does not allow
            PlacementPlan(view).start(build_object(rule), view.waiting)


def _load(file: Path, placement: Any) -> Scheduler:
    """Return the one scheduler that a file defines. An argument `placement` of its class gets that rule."""
    sys.path.insert(0, str(file.parent))
    module = importlib.import_module(file.stem)
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == file.stem]
    found = [
        one for one in own if hasattr(one, "decide") and not any(one in other.__bases__ for other in own)
    ]
    if len(found) != 1:
        names = ", ".join(one.__name__ for one in found) or "none"
        raise SchedulerError(f"{file.name} defines {names}; expected one class with decide(view)")
    takes = "placement" in inspect.signature(found[0]).parameters
    return as_scheduler(found[0](placement) if takes else found[0]())
