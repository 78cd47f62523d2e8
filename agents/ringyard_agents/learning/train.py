"""`ringyard train`: clone a teacher, learn with PPO, evaluate on the way."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.presets import setting_of
from ringyard.mdp.setting import Setting
from ringyard_agents.checkpoint import AGENT, LAST, agent_spec, save_model, write_spec
from ringyard_agents.configuration import WORLD, plain, scheduler_config
from ringyard_agents.learning.callbacks import EvaluateAgent, ShowProgress, ratio
from ringyard_agents.learning.vec_env import RingyardVecEnv
from ringyard_agents.measuring.evaluate import Task, run_all
from ringyard_agents.record import run_folder, write_record

__all__ = ["train"]


def _baselines(config: DictConfig, metric: str) -> dict[str, float]:
    """{entry: mean of the metric} of the baselines on the evaluation workloads."""
    world = {name: plain(config[name]) for name in WORLD}
    tasks = [
        Task(entry, plain(scheduler_config(entry, None)), world, workload, config.evaluate.workload_seed)
        for entry in config.evaluate.schedulers
        for workload in range(config.evaluate.workloads)
    ]
    results = run_all(tasks, 1, lambda result: None)
    return {
        entry: float(np.mean([getattr(one.metrics, metric) for one in results if one.label == entry]))
        for entry in config.evaluate.schedulers
    }


def _for_agent(config: DictConfig, setting: Setting) -> Setting:
    """The setting with what the agent needs of it: blocks or one row, and what a masked action does."""
    return replace(
        setting,
        observation=replace(setting.observation, flat=config.agent.flat_observation),
        actions=replace(setting.actions, on_invalid=config.agent.on_invalid),
    )


def _model(config: DictConfig, setting: Setting) -> tuple[OnPolicyAlgorithm, list[BaseCallback]]:
    """The algorithm on its training environment, new or resumed, and the teacher if it has one."""
    group_size = config.agent.group_size
    env = RingyardVecEnv(setting, config.agent.num_envs, group_size, group_size > 1, config.seed)
    partial = instantiate(config.agent.model, _convert_="all")
    if config.resume is None:
        teacher = instantiate(config.agent.teacher, _convert_="all")
        model: OnPolicyAlgorithm = partial(env=env, seed=config.seed, device="cpu")
        return model, [teacher] if teacher is not None else []
    file = Path(config.resume).expanduser() / LAST
    if not file.is_file():
        raise CheckpointError(f"cannot resume: there is no {file}")
    model = partial.func.load(file, env=env, device="cpu")
    env.seed(config.seed + model.num_timesteps)
    return model, []


def _best_before(config: DictConfig, metric: str) -> float:
    """The metric of the best agent of the run that goes on; infinity for a new run or another metric."""
    if config.resume is None:
        return float("inf")
    file = Path(config.resume).expanduser() / "training.json"
    summary = json.loads(file.read_text()) if file.is_file() else {}
    return float(summary["best"]) if summary.get("metric") == metric else float("inf")


def _check(config: DictConfig) -> None:
    if config.total_decisions < 1:
        raise ConfigurationError(f"total_decisions is {config.total_decisions}; expected at least 1")
    if config.evaluate.every < 1 or config.evaluate.workloads < 1:
        raise ConfigurationError("evaluate.every and evaluate.workloads must be at least 1")


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
    write_spec(folder, agent_spec(config))
    return folder


def train(config: DictConfig) -> None:
    """Train an agent; writes checkpoints, TensorBoard logs and training.json into the run folder."""
    _check(config)
    torch.set_num_threads(1)
    console = Console()
    setting = _for_agent(config, setting_of(config, config.num_workloads, config.seed))
    unseen = replace(
        setting, num_workloads=config.evaluate.workloads, workload_seed=config.evaluate.workload_seed
    )
    model, callbacks = _model(config, setting)
    baselines = _baselines(config, setting.reward.metric)
    folder = _prepare_folder(config)  # everything is sound: an earlier run of this name may be replaced
    model.set_logger(configure(str(folder / "tensorboard"), ["tensorboard", "csv"]))
    best = _best_before(config, setting.reward.metric)
    evaluation = EvaluateAgent(unseen, baselines, config.evaluate.every, folder, best)
    progress = ShowProgress(config.total_decisions, evaluation, console)
    interrupted = False
    try:
        model.learn(
            max(config.total_decisions - model.num_timesteps, 0),
            callback=[*callbacks, evaluation, progress],
            reset_num_timesteps=config.resume is None,
        )
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.close()
        save_model(model, folder / LAST)
        _write_summary(folder, model, evaluation)
    if interrupted:
        console.print(f"stopped; go on with: ringyard train resume={folder} (and the same overrides)")
        raise SystemExit(130)
    for name, value in baselines.items():
        shown = f"{evaluation.best:,.0f}" if evaluation.best >= 100 else f"{evaluation.best:.3f}"
        console.print(f"best {evaluation.metric} {shown}, {ratio(evaluation.best, value):.3f} x {name}")
    console.print(f"agent: {folder / AGENT}", soft_wrap=True)
    console.print(f"curves: tensorboard --logdir {folder / 'tensorboard'}", soft_wrap=True)


def _write_summary(folder: Path, model: OnPolicyAlgorithm, evaluation: EvaluateAgent) -> None:
    summary: dict[str, Any] = {
        "decisions": model.num_timesteps,
        "metric": evaluation.metric,
        "best": evaluation.best,
        "last": evaluation.latest,
        "baselines": dict(evaluation.baselines),
    }
    (folder / "training.json").write_text(json.dumps(summary, indent=2) + "\n")
