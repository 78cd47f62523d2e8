"""`ringyard train`: learn a policy and evaluate it on the way; the first of several processes leads."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.threads import set_num_threads, usable_cores
from ringyard_agents.config.compose import to_plain
from ringyard_agents.config.safe_load import check_classes, training_groups
from ringyard_agents.learning.agent_file import AGENT, LAST, parts_of
from ringyard_agents.learning.callbacks import callbacks_of
from ringyard_agents.learning.environments import environments_of, settings_of
from ringyard_agents.learning.episodes import Constraint
from ringyard_agents.learning.evaluation import Evaluation, Unseen, baselines_of, constraint_of, ratio
from ringyard_agents.learning.process_group import Hardware, device_of, join_process_group
from ringyard_agents.learning.resume import load_initial_weights, resumed_config
from ringyard_agents.learning.training_run import TrainingRun, read_last, remove_run
from ringyard_agents.runs.run_folder import RunFolder, is_sweep_job, job_folder, locked
from ringyard_agents.runs.study import Pruning


class _EnoughError(Exception):
    """Learning ends before all decisions are made."""


def train(config: DictConfig) -> float | None:
    """Train an agent; writes checkpoints, TensorBoard logs and training.json into the run folder.

    A job of a sweep that has begun before goes on.

    Returns:
        The best agent's metric on the evaluation workloads, less is better. None without an evaluation.

    Raises:
        RingyardError: bad input, before anything is replaced.
        KeyboardInterrupt: the user stopped it; everything is saved.
    """
    folder = job_folder()
    hardware = Hardware(device_of(config.device), join_process_group())
    # processes that `torchrun` started on the same machine share its cores
    share = max(1, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    set_num_threads(config.num_threads or share)
    if hardware.peers.rank > 0:
        _follow(hardware)
        return None
    if is_sweep_job() and (folder / LAST).is_file():
        config.resume = str(folder)
    with locked(folder):
        return _lead(config, folder, hardware)


def _lead(config: DictConfig, folder: Path, hardware: Hardware) -> float | None:
    """Build the learner, its evaluation and its run, and learn."""
    saved, evaluated, earlier_decisions = None, None, 0
    if config.resume is not None:
        config, earlier_decisions = resumed_config(config)
        saved, evaluated = read_last(folder)
    elif not config.overwrite:
        RunFolder(folder, "train").refuse_another(overwrite=False, outputs=(AGENT, LAST))
    given, parts = to_plain(config), parts_of(config)
    seed, total, judged = given["seed"], given["total_decisions"], given["evaluate"]
    console = Console()

    trusted = partial(
        check_classes, groups=training_groups(), trust=given["trust"], where=str(folder / "config.yaml")
    )
    environments = environments_of(given, given["worlds"], None if saved is None else trusted)
    unseen = Unseen(environments, judged["workloads"], judged["workload_seed"], given["trust"])
    learner, callbacks = instantiate(parts["agent"], _convert_="all"), callbacks_of(given["callbacks"])
    constraint = constraint_of(learner, **given["constraint"], unseen=unseen)
    _equip(learner, hardware, constraint)
    try:
        learner.setup(settings_of(learner, environments, given["num_workloads"], seed), seed, saved)
    except (KeyError, TypeError, CheckpointError) as error:
        if saved is None:
            raise
        raise CheckpointError(f"cannot resume from {folder / LAST}: {error}") from error
    if saved is None and given["init"] is not None:
        load_initial_weights(learner, given["init"], parts, given["trust"])
    judging = settings_of(learner, environments, unseen.workloads, unseen.seed)
    evaluation = Evaluation(learner, judging, judged["every"], constraint)
    evaluation.baselines = baselines_of(judged["schedulers"], unseen, evaluation.metric)
    if evaluated is not None:
        evaluation.restore(evaluated)
    if total < min(learner.decisions, earlier_decisions):
        raise ConfigurationError(
            f"{folder} has learnt from {learner.decisions:,} decisions already; total_decisions is {total:,},"
            " expected more"
        )

    if saved is None:
        remove_run(folder)
    seeds = {"seed": seed, "evaluation": unseen.seed}
    RunFolder(folder, "train").record(config, seeds, goes_on=saved is not None)
    run = TrainingRun(folder, learner, evaluation, parts, given["save_minutes"], saved is not None, callbacks)
    if hardware.peers.size > 1:
        plainly = {label: to_plain(one) for label, one in environments.items()}
        known = parts["agent"], plainly, given["num_workloads"], seed, total, constraint, learner.state()
        hardware.peers.from_first(known)
    by_itself = saved is not None and not is_sweep_job()  # a job of a study that goes on
    pruning = Pruning.of(None if by_itself else judged["prune"])

    def enough() -> bool:
        if run.stopped_by is not None:
            console.print(f"stopped by the callback {run.stopped_by}", highlight=False)
        number = round(evaluation.evaluated / evaluation.every)
        pruned = pruning is not None and pruning.behind(number, evaluation.latest)
        if pruned:
            console.print("stopped by evaluate.prune: behind the earlier jobs of the sweep")
        impatient = evaluation.in_vain >= (judged["patience"] or np.inf)
        ends: bool = run.stopped_by is not None or pruned or impatient
        hardware.peers.from_first((None if constraint is None else constraint.price, ends))
        return ends

    _learn(run, total, enough, console, given["plots"])
    _print_results(console, folder, evaluation, total)
    return evaluation.best if np.isfinite(evaluation.best) else None


def _equip(learner: Any, hardware: Hardware, constraint: Constraint | None) -> None:
    """Set a learner's attributes, before `setup`; a ConfigurationError if it lacks a `hardware` it needs."""
    if hasattr(learner, "hardware"):
        learner.hardware = hardware
    elif hardware.device.type != "cpu" or hardware.peers.size > 1:
        raise ConfigurationError(
            f"{type(learner).__name__} learns on the CPU in one process; device is {hardware.device},"
            f" processes are {hardware.peers.size}; expected device=cpu and no torchrun, or a learner with an"
            " attribute hardware (ringyard_agents/learning/process_group.py)"
        )
    if constraint is not None:
        learner.constraint = constraint


def _follow(hardware: Hardware) -> None:
    """Learn with the settings of the first process, until it ends the training."""
    known: Any = hardware.peers.from_first(None)
    agent, plainly, num_workloads, seed, total, constraint, state = known
    learner = instantiate(agent, _convert_="all")
    _equip(learner, hardware, constraint)
    environments = {label: OmegaConf.create(one) for label, one in plainly.items()}
    learner.setup(settings_of(learner, environments, num_workloads, seed), seed, state)

    def between_rounds(measured: Mapping[str, float]) -> None:
        said: Any = hardware.peers.from_first(None)
        price, ends = said
        if constraint is not None:
            constraint.price = price
        if ends:
            raise _EnoughError

    with suppress(_EnoughError):
        learner.learn(total, between_rounds)


def _learn(run: TrainingRun, total: int, enough: Callable[[], bool], console: Console, plots: bool) -> None:
    """Learn until `total` decisions, or until `enough` between two rounds; the run is saved in any case."""
    learner, evaluation = run.learner, run.evaluation
    done = ("{task.completed:,.0f}/{task.total:,.0f} decisions", "{task.fields[latest]}")
    columns = ("learning", BarColumn(), *done, TimeElapsedColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console) as bar:
            task = bar.add_task("learning", total=total, latest="")

            def between_rounds(measured: Mapping[str, float]) -> None:
                run.between_rounds(measured)
                ratios = (
                    f"{ratio(evaluation.latest, value):.3f} x {name}"
                    for name, value in evaluation.baselines.items()
                )
                latest = f"{evaluation.metric} " + ", ".join(ratios)
                bar.update(task, completed=min(learner.decisions, total), latest=latest)
                if enough():
                    raise _EnoughError

            with suppress(_EnoughError):
                learner.learn(total, between_rounds)
            run.finish()
        if plots:
            for file in run.draw():
                console.print(f"plot: {file}", soft_wrap=True, markup=False)
    except ValueError as error:
        if run.diverged:
            raise ConfigurationError(
                f"learning has diverged: after {learner.decisions:,} decisions the network's weights are"
                " beyond all measure; try a smaller learning rate"
            ) from error
        raise
    except KeyboardInterrupt as stop:
        stop.add_note(f"go on with: ringyard train resume={run.folder}")
        raise
    finally:
        run.close()


def _print_results(console: Console, folder: Path, evaluation: Evaluation, total: float) -> None:
    for name, value in evaluation.baselines.items():
        shown = f"{evaluation.best:,.0f}" if evaluation.best >= 100 else f"{evaluation.best:.3f}"
        console.print(f"best {evaluation.metric} {shown}, {ratio(evaluation.best, value):.3f} x {name}")
    if evaluation.constraint is not None:
        used = f"its {evaluation.constraint.metric} is {evaluation.best_used:.3f} x the bound"
        kept = " on the evaluation workloads: kept"
        if evaluation.best_used > 1.0:
            kept = (
                ": NOT KEPT by any agent so far; try more decisions, more evaluations (evaluate.every), a"
                " larger constraint.step or a wider bound"
            )
        console.print(used + kept, highlight=False, soft_wrap=True)
    played = evaluation.learner.decisions
    whole = f" (total_decisions={total:,.0f}; rounds are played to their end)" if played > total else ""
    console.print(f"learnt from {played:,} decisions{whole}", highlight=False, soft_wrap=True)
    console.print(f"agent: {folder / AGENT}", soft_wrap=True, markup=False)
    console.print(f"curves: tensorboard --logdir {folder.parent}", soft_wrap=True, markup=False)
