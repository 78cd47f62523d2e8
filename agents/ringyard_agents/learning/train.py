"""`ringyard train`: learn a policy, evaluate it on the way."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.presets import setting_of
from ringyard_agents.configuration import WORLD, label_of, plain, scheduler_config
from ringyard_agents.learning.callbacks import Evaluation, ProgressBar, ratio
from ringyard_agents.learning.checkpoint import AGENT, LAST, readable, save_learner, write_spec
from ringyard_agents.learning.learner import Learner, world_of
from ringyard_agents.measuring.evaluate import Task, run_all
from ringyard_agents.record import run_folder, write_record

__all__ = ["train"]


def _check(config: DictConfig) -> None:
    if config.total_decisions < 1:
        raise ConfigurationError(f"total_decisions is {config.total_decisions}; expected at least 1")
    if config.evaluate.every < 1 or config.evaluate.workloads < 1:
        raise ConfigurationError("evaluate.every and evaluate.workloads must be at least 1")


def _baselines(config: DictConfig, metric: str) -> dict[str, float]:
    """{label: mean of the metric} of the baselines on the evaluation workloads."""
    world = {name: plain(config[name]) for name in WORLD}
    entries = {label_of(entry): plain(scheduler_config(entry)) for entry in config.evaluate.schedulers}
    tasks = [
        Task(label, scheduler, world, workload, config.evaluate.workload_seed)
        for label, scheduler in entries.items()
        for workload in range(config.evaluate.workloads)
    ]
    results = run_all(tasks, 1, lambda result: None)
    return {
        label: float(np.mean([getattr(one.metrics, metric) for one in results if one.label == label]))
        for label in entries
    }


def _learner(config: DictConfig) -> Learner:
    """The learner in its training world, new or as an earlier run left it."""
    learner: Learner = instantiate(config.agent, _convert_="all")
    setting = world_of(learner, setting_of(config, config.num_workloads, config.seed))
    if config.resume is None:
        learner.begin(setting, config.seed)
        return learner
    file = Path(config.resume).expanduser() / LAST
    if not file.is_file():
        raise CheckpointError(f"cannot resume: there is no {file}")
    _check_same_world(config, file.with_name("config.yaml"))
    with readable(file):
        learner.begin(setting, config.seed, file)
    return learner


def _check_same_world(config: DictConfig, file: Path) -> None:
    """Raise ConfigurationError if the run that goes on saw another world than this config's."""
    saved: Any = OmegaConf.load(file) if file.is_file() else config
    for part in (*WORLD, "action", "observation", "reward"):
        if plain(saved[part]) != plain(config[part]):
            raise ConfigurationError(
                f"resume={config.resume}: {part} is not what that run was trained with; give the same"
                f" experiment= and overrides (all of them are in {file})"
            )


def _best_before(config: DictConfig, metric: str) -> float:
    """The metric of the best agent of the run that goes on; infinity for a new run or another metric."""
    if config.resume is None:
        return float("inf")
    file = Path(config.resume).expanduser() / "training.json"
    summary = json.loads(file.read_text()) if file.is_file() else {}
    return float(summary["best"]) if summary.get("metric") == metric else float("inf")


def _prepare_folder(config: DictConfig) -> Path:
    """The run's folder with its record; without the curves of an earlier run of the same name."""
    folder = run_folder()
    if config.resume is not None:
        with suppress(OSError):  # Hydra made a folder for a new run
            folder.rmdir()
        folder = Path(config.resume).expanduser()
    else:
        shutil.rmtree(folder / "tensorboard", ignore_errors=True)
    seeds = {"seed": config.seed, "evaluation": config.evaluate.workload_seed}
    write_record(folder, "train", config, seeds)
    write_spec(folder, config)
    return folder


def train(config: DictConfig) -> None:
    """Train an agent; writes checkpoints, TensorBoard logs and training.json into the run folder."""
    _check(config)
    console = Console()
    learner = _learner(config)
    unseen = world_of(learner, setting_of(config, config.evaluate.workloads, config.evaluate.workload_seed))
    baselines = _baselines(config, unseen.reward.metric)
    folder = _prepare_folder(config)  # everything is sound: an earlier run of this name may be replaced
    best = _best_before(config, unseen.reward.metric)
    evaluation = Evaluation(learner, unseen, baselines, config.evaluate.every, folder, best)
    try:
        with ProgressBar(config.total_decisions, evaluation, console) as bar:

            def watch(measured: Mapping[str, float]) -> None:
                evaluation.watch(measured)
                bar.show()

            learner.learn(config.total_decisions, watch)
            evaluation.finish()
    except KeyboardInterrupt:
        console.print(f"stopped; go on with: ringyard train resume={folder} (and the same overrides)")
        raise SystemExit(130) from None
    finally:
        save_learner(learner, folder / LAST)
        _write_summary(folder, evaluation)
    for name, value in baselines.items():
        shown = f"{evaluation.best:,.0f}" if evaluation.best >= 100 else f"{evaluation.best:.3f}"
        console.print(f"best {evaluation.metric} {shown}, {ratio(evaluation.best, value):.3f} x {name}")
    console.print(f"agent: {folder / AGENT}", soft_wrap=True)
    console.print(f"curves: tensorboard --logdir {folder / 'tensorboard'}", soft_wrap=True)


def _write_summary(folder: Path, evaluation: Evaluation) -> None:
    summary = {
        "decisions": evaluation.learner.decisions,
        "metric": evaluation.metric,
        "best": evaluation.best,
        "last": evaluation.latest,
        "baselines": dict(evaluation.baselines),
    }
    (folder / "training.json").write_text(json.dumps(summary, indent=2) + "\n")
