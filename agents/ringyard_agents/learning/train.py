"""The command `ringyard train`: learn a policy, evaluate it on the way and write a run folder."""

import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeRemainingColumn

from ringyard.errors import ConfigurationError
from ringyard.mdp.experiments import build_env_config
from ringyard.threads import set_num_threads, usable_cores
from ringyard_agents.command_line import quoted
from ringyard_agents.config.compose import compose_environments, to_plain
from ringyard_agents.config.safe_load import check_classes, training_groups
from ringyard_agents.evaluation.notes import NOTES
from ringyard_agents.learning import process_group
from ringyard_agents.learning.agent_file import AGENT_FILE, LAST_FILE, agent_parts
from ringyard_agents.learning.callbacks import build_callbacks
from ringyard_agents.learning.episodes import Constraint
from ringyard_agents.learning.evaluation import Evaluation, EvaluationWorkloads
from ringyard_agents.learning.learner import EnvConfigs, Learner, adapt_env_config
from ringyard_agents.learning.process_group import Hardware
from ringyard_agents.learning.resume import load_initial_weights, resumed_config
from ringyard_agents.learning.training_run import SUMMARY_FILE, TrainingRun, read_last, set_up_learner
from ringyard_agents.report.tables import change_text, print_line, print_note, print_table
from ringyard_agents.runs.run_folder import RunFolder, is_sweep_job, job_folder, locked
from ringyard_agents.runs.sweep_table import comparison_command


def build_env_configs(
    learner: Learner, environments: Mapping[str, DictConfig], num_workloads: int, seed: int
) -> EnvConfigs:
    """Return {label: environment} of a run with a number of job tables, as a learner needs them."""
    configs = {label: build_env_config(one, num_workloads, seed) for label, one in environments.items()}
    return {label: adapt_env_config(learner, config) for label, config in configs.items()}


class _TrainingEndedError(Exception):
    """Raised in the callback of a learner to end learning before `total_decisions`."""


def train(config: DictConfig) -> float | None:
    """Train an agent. Writes checkpoints, TensorBoard logs and training.json into the run folder.

    A job of a sweep that was interrupted is resumed. Only process 0 writes files. Bad input is an error
    before any file is replaced. After a KeyboardInterrupt everything is saved.

    Returns the best agent's metric on the evaluation workloads, less is better. None without an evaluation,
    and in other processes than 0.
    """
    folder = job_folder()
    hardware = Hardware(process_group.select_device(config.device), process_group.join_process_group())
    # The processes that torchrun started on one machine share its cores.
    cores = max(1, usable_cores() // max(1, process_group.environment_integer("LOCAL_WORLD_SIZE", 1)))
    set_num_threads(min(config.num_threads or cores, cores))
    if hardware.process_group.rank > 0:
        _train_other_process(hardware)
        return None
    if is_sweep_job() and (folder / LAST_FILE).is_file():
        config.resume = str(folder)
    with locked(folder):
        return _train_first_process(config, folder, hardware)


def _train_first_process(config: DictConfig, folder: Path, hardware: Hardware) -> float | None:
    """Train in process 0, which evaluates, writes the run folder and tells other processes when to end."""
    saved, saved_evaluation, earlier_decisions = None, None, 0
    if config.resume is not None:
        config, earlier_decisions = resumed_config(config)
        saved, saved_evaluation = read_last(folder)
    elif not config.overwrite:
        RunFolder(folder, "train").refuse_another(overwrite=False, outputs=(AGENT_FILE, LAST_FILE))
    settings, parts, resumed = to_plain(config), agent_parts(config), saved is not None
    seed, total, eval_settings = settings["seed"], settings["total_decisions"], settings["evaluate"]
    console = Console()

    where = str(folder / "config.yaml")
    check = partial(check_classes, groups=training_groups(), trust=settings["trust"], where=where)
    environments = compose_environments(settings, settings["environments"], check if resumed else None)
    num_workloads, eval_seed = eval_settings["workloads"], eval_settings["workload_seed"]
    workloads = EvaluationWorkloads(environments, num_workloads, eval_seed, settings["trust"])
    learner = instantiate(parts["agent"], _convert_="all")
    if settings["device"] == "auto" and not hasattr(learner, "hardware"):
        hardware = replace(hardware, device=process_group.select_device("cpu"))
    callbacks = build_callbacks(settings["callbacks"])
    constraint = workloads.build_constraint(learner, **settings["constraint"])
    _set_hardware_and_constraint(learner, hardware, constraint)
    env_configs = build_env_configs(learner, environments, settings["num_workloads"], seed)
    set_up_learner(learner, env_configs, seed, saved, folder)
    if saved is None and settings["init"] is not None:
        load_initial_weights(learner, settings["init"], parts, settings["trust"])
    eval_configs = build_env_configs(learner, environments, workloads.num_workloads, workloads.seed)
    evaluation = Evaluation(learner, eval_configs, eval_settings["every"], constraint)
    evaluation.baselines = workloads.measure_baselines(eval_settings["schedulers"], evaluation.metric)
    if saved_evaluation is not None:
        evaluation.restore(saved_evaluation)
    if total < min(learner.decisions, earlier_decisions):
        raise ConfigurationError(
            f"{folder} has learnt from {learner.decisions:,} decisions already"
            f"; total_decisions is {total:,}, expected more"
        )

    if saved is None:
        for name in (LAST_FILE, AGENT_FILE, SUMMARY_FILE):
            (folder / name).unlink(missing_ok=True)
    seeds = {"seed": seed, "evaluation": workloads.seed}
    RunFolder(folder, "train").record(config, seeds, resumed=resumed)
    save_minutes = settings["save_minutes"]
    run = TrainingRun(folder, learner, evaluation, parts, save_minutes, resumed, callbacks)
    if hardware.process_group.size > 1:
        plain_environments = {label: to_plain(one) for label, one in environments.items()}
        known = parts["agent"], plain_environments, settings["num_workloads"], seed, total, constraint
        hardware.process_group.broadcast((*known, learner.state()))

    def should_end() -> bool:
        if run.stopped_by is not None:
            console.print(f"stopped by the callback {run.stopped_by}", highlight=False)
        out_of_patience = evaluation.evaluations_since_best >= (eval_settings["patience"] or np.inf)
        ends: bool = run.stopped_by is not None or out_of_patience
        multiplier = None if constraint is None else constraint.multiplier
        hardware.process_group.broadcast((multiplier, ends))
        return ends

    _learn(run, total, should_end, console, settings["plots"])
    _print_results(console, folder, evaluation, total)
    return evaluation.best if np.isfinite(evaluation.best) else None


def _set_hardware_and_constraint(learner: Any, hardware: Hardware, constraint: Constraint | None) -> None:
    """Set both before a learner's `setup`. Without `hardware` it takes neither a GPU nor processes."""
    if hasattr(learner, "hardware"):
        learner.hardware = hardware
    elif hardware.device.type != "cpu" or hardware.process_group.size > 1:
        raise ConfigurationError(
            f"{type(learner).__name__} learns on the CPU in one process; device is {hardware.device}, and"
            f" there are {hardware.process_group.size} processes; expected device=cpu without torchrun, or a"
            " learner with an attribute hardware (ringyard_agents/learning/process_group.py)"
        )
    if constraint is not None:
        learner.constraint = constraint


def _train_other_process(hardware: Hardware) -> None:
    """Learn with the settings of process 0, until it ends the training."""
    received: Any = hardware.process_group.broadcast(None)
    agent, plain_environments, num_workloads, seed, total, constraint, state = received
    learner = instantiate(agent, _convert_="all")
    _set_hardware_and_constraint(learner, hardware, constraint)
    environments = {label: OmegaConf.create(one) for label, one in plain_environments.items()}
    learner.setup(build_env_configs(learner, environments, num_workloads, seed), seed, state)

    def between_rounds(scalars: Mapping[str, float]) -> None:
        received: Any = hardware.process_group.broadcast(None)
        multiplier, ends = received
        if constraint is not None:
            constraint.multiplier = multiplier
        if ends:
            raise _TrainingEndedError

    with suppress(_TrainingEndedError):
        learner.learn(total, between_rounds)


def _learn(
    run: TrainingRun, total: int, should_end: Callable[[], bool], console: Console, plots: bool
) -> None:
    """Learn until `total` decisions, or until `should_end` between two rounds. Saves the run in any case."""
    learner, evaluation = run.learner, run.evaluation
    progress = ("{task.completed:,.0f}/{task.total:,.0f}", "{task.fields[latest]}")
    columns = ("learning", BarColumn(8), *progress, TimeRemainingColumn())
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("learning", total=total, latest="")

            def between_rounds(scalars: Mapping[str, float]) -> None:
                run.between_rounds(scalars)
                name, value = min(evaluation.baselines.items(), key=itemgetter(1), default=("", 0.0))
                change = f" {change_text(evaluation.latest / value)} vs {name}" if value else ""
                latest = f"{evaluation.metric}{change}"
                bar.update(task, completed=min(learner.decisions, total), latest=latest)
                if should_end():
                    raise _TrainingEndedError

            with suppress(_TrainingEndedError):
                learner.learn(total, between_rounds)
            run.finish()
        if plots:
            for file in run.draw():
                console.print(f"plot: {file}", soft_wrap=True, markup=False)
    except ValueError as error:
        if run.diverged:
            raise ConfigurationError(
                f"learning has diverged: after {learner.decisions:,} decisions the network has infinite or"
                " huge weights; try a smaller learning rate"
            ) from error
        raise
    except KeyboardInterrupt as stop:
        resume = f"resume={quoted(str(run.folder))}"
        stop.add_note(f"continue with `{shlex.join(['ringyard', 'train', resume])}`")
        raise
    finally:
        run.close()


def _print_results(console: Console, folder: Path, evaluation: Evaluation, total: float) -> None:
    title = "on the evaluation workloads; change: from a row to the best agent"
    print_table(console, title, evaluation.rows, list(evaluation.rows[0]), left=[""])
    if evaluation.constraint is not None:
        used, metric = evaluation.best_bound_ratio, evaluation.constraint.metric
        print_note(console, NOTES["violated" if used > 1.0 else "satisfied"].format(metric=metric, used=used))
    decisions = evaluation.learner.decisions
    note = f" (total_decisions={total:,.0f}; the last round is completed)" if decisions > total else ""
    print_note(console, f"learnt from {decisions:,} decisions{note}")
    console.print(f"agent: {folder / AGENT_FILE}", soft_wrap=True, markup=False)
    curves = shlex.join(["tensorboard", "--logdir", str(folder.parent)])
    console.print(f"curves: {curves}", soft_wrap=True, markup=False)
    if evaluation.first is not None and not is_sweep_job():
        command = comparison_command(folder.name, folder, HydraConfig.get().overrides.task)
        print_line(console, f"compare on other workloads: {command}")
