"""`ringyard train`: learn a policy, evaluate it on the way."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.threads import set_num_threads
from ringyard_agents.learning.agent_file import AGENT, LAST, parts_of
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.constraint import Constrained, Constraint
from ringyard_agents.learning.distributed import EnoughError, follow, lead, settings_of, tell
from ringyard_agents.learning.environments import worlds_of
from ringyard_agents.learning.evaluation import Evaluation, baselines_of, constraint_of, ratio
from ringyard_agents.learning.learner import Learner
from ringyard_agents.learning.process_group import (
    Hardware,
    ProcessGroup,
    device_of,
    equip,
    join_process_group,
    threads_of_process,
)
from ringyard_agents.learning.resume import resumed_config
from ringyard_agents.learning.training_run import (
    ProgressBar,
    TrainingRun,
    read_last,
    refuse_to_replace,
    remove_run,
)
from ringyard_agents.learning.warm_start import load_initial_weights
from ringyard_agents.runs.files import locked
from ringyard_agents.runs.pruning import Pruning
from ringyard_agents.runs.record import in_sweep, run_folder, write_record

__all__ = ["train"]


def _check(config: DictConfig) -> None:
    if not config.total_decisions >= 1:
        raise ConfigurationError(f"total_decisions is {config.total_decisions}; expected at least 1")
    if not (config.evaluate.every >= 1 and config.evaluate.workloads >= 1):
        raise ConfigurationError("evaluate.every and evaluate.workloads must be at least 1")
    if not config.save_minutes > 0:
        raise ConfigurationError(f"save_minutes is {config.save_minutes}; expected above 0")


def _constrain(learner: Learner, config: DictConfig, worlds: Mapping[str, DictConfig]) -> Constraint | None:
    """Hand a learner what it has to keep, if anything."""
    if config.constraint.metric is not None and not isinstance(learner, Constrained):
        raise ConfigurationError(
            "constraint: this agent can keep none; expected one that scores jobs (agent=evolution, with"
            " action=scores observation=live_jobs), or no constraint.metric and constraint.most"
        )
    constraint = constraint_of(config, worlds)
    if isinstance(learner, Constrained):
        learner.constraint = constraint
    return constraint


def _begin(
    learner: Learner, config: DictConfig, worlds: Mapping[str, DictConfig], saved: Checkpoint | None
) -> None:
    """Put it into its training worlds: new, with an agent's weights, or as an earlier run left it."""
    settings = settings_of(learner, worlds, config.num_workloads, config.seed)
    try:
        learner.setup(settings, config.seed, saved)
    except (KeyError, TypeError, CheckpointError) as error:
        if saved is None:
            raise
        raise CheckpointError(f"cannot resume from {Path(config.resume) / LAST}: {error}") from error
    if saved is None and config.init is not None:
        load_initial_weights(learner, config)


def train(config: DictConfig) -> float | None:
    """Train an agent; writes checkpoints, TensorBoard logs and training.json into the run folder.

    A job of a sweep that has begun before goes on.

    Returns:
        The best agent's metric on the evaluation workloads, less is better; None: there was no evaluation.

    Raises:
        RingyardError: bad input, before anything is replaced.
        KeyboardInterrupt: it was stopped; everything is saved.
    """
    folder = run_folder()
    hardware = Hardware(device_of(config.device), join_process_group())
    set_num_threads(config.num_threads or threads_of_process())
    if hardware.peers.rank > 0:
        follow(hardware)
        return None
    if in_sweep() and (folder / LAST).is_file():
        config.resume = str(folder)
    with locked(folder):
        return _train(config, folder, hardware)


def _train(config: DictConfig, folder: Path, hardware: Hardware) -> float | None:
    config, earlier = _earlier(config, folder)
    _check(config)
    worlds = worlds_of(config)
    learner: Learner = instantiate(config.agent, _convert_="all")
    constraint = _constrain(learner, config, worlds)
    equip(learner, hardware)
    _begin(learner, config, worlds, earlier.saved)
    evaluation = _evaluation(learner, config, worlds, constraint, earlier.evaluated)
    if config.total_decisions < min(learner.decisions, earlier.total_decisions):
        raise ConfigurationError(
            f"{folder} has learnt from {learner.decisions:,} decisions already; total_decisions is"
            f" {config.total_decisions:,}, expected more"
        )
    run = _open(folder, config, learner, evaluation, earlier.saved is not None)
    console = Console()
    lead(hardware.peers, config, learner, constraint)
    _learn(run, config, console, hardware.peers)
    _print_results(console, folder, evaluation, config.total_decisions)
    return evaluation.best if np.isfinite(evaluation.best) else None


class _Earlier(NamedTuple):
    """What a run that goes on has behind it; a new one has nothing.

    Attributes:
        saved: state of the learner.
        evaluated: state of the evaluation.
        total_decisions: it was to learn from.
    """

    saved: Checkpoint | None = None
    evaluated: Mapping[str, Any] | None = None
    total_decisions: int = 0


def _earlier(config: DictConfig, folder: Path) -> tuple[DictConfig, _Earlier]:
    """(config of the run, what it has behind it)."""
    if config.resume is not None:
        config, total_decisions = resumed_config(config)
        return config, _Earlier(*read_last(folder), total_decisions)
    if not config.overwrite:
        refuse_to_replace(folder)
    return config, _Earlier()


def _evaluation(
    learner: Learner,
    config: DictConfig,
    worlds: Mapping[str, DictConfig],
    constraint: Constraint | None,
    evaluated: Mapping[str, Any] | None,
) -> Evaluation:
    """On workloads that the learner does not see, beside the baselines; new, or as an earlier run left it."""
    unseen = settings_of(learner, worlds, config.evaluate.workloads, config.evaluate.workload_seed)
    evaluation = Evaluation(learner, unseen, config.evaluate.every, constraint)
    evaluation.baselines = baselines_of(config, worlds, evaluation.metric)
    if evaluated is not None:
        evaluation.restore(evaluated)
    return evaluation


def _open(
    folder: Path, config: DictConfig, learner: Learner, evaluation: Evaluation, going_on: bool
) -> TrainingRun:
    """The run in its folder, with its record; what a new one replaces is removed."""
    if not going_on:
        remove_run(folder)
    seeds = {"seed": config.seed, "evaluation": config.evaluate.workload_seed}
    write_record(folder, "train", config, seeds, going_on)
    return TrainingRun(folder, learner, evaluation, parts_of(config), config.save_minutes, going_on)


def _learn(run: TrainingRun, config: DictConfig, console: Console, peers: ProcessGroup) -> None:
    """Learn until there are enough decisions or it gets no better; whatever ends it, the run is saved."""
    learner, evaluation = run.learner, run.evaluation
    alone = config.resume is not None and not in_sweep()  # a job of a study that goes on by itself
    pruning = Pruning.of(None if alone else config.evaluate.prune)
    try:
        with ProgressBar(config.total_decisions, evaluation, console) as bar:

            def between_rounds(measured: Mapping[str, float]) -> None:
                run.between_rounds(measured)
                bar.show()
                enough = evaluation.in_vain >= (config.evaluate.patience or np.inf)
                if pruning is not None and pruning.behind(evaluation.number, evaluation.latest):
                    console.print("stopped by evaluate.prune: behind the earlier jobs of the sweep")
                    enough = True
                tell(peers, evaluation.constraint, enough)

            with suppress(EnoughError):
                learner.learn(config.total_decisions, between_rounds)
            run.finish()
        if config.plots:
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


def _kept(constraint: Constraint, used: float) -> str:
    """Whether the best agent keeps the constraint."""
    if used <= 1.0:
        return f"its {constraint.metric} is {used:.3f} x the bound on the evaluation workloads: kept"
    return (
        f"its {constraint.metric} is {used:.3f} x the bound: NOT KEPT by any agent so far; try more"
        " decisions, more evaluations (evaluate.every), a larger constraint.step or a wider bound"
    )


def _print_results(console: Console, folder: Path, evaluation: Evaluation, total: float) -> None:
    for name, value in evaluation.baselines.items():
        shown = f"{evaluation.best:,.0f}" if evaluation.best >= 100 else f"{evaluation.best:.3f}"
        console.print(f"best {evaluation.metric} {shown}, {ratio(evaluation.best, value):.3f} x {name}")
    if evaluation.constraint is not None:
        console.print(_kept(evaluation.constraint, evaluation.best_used), highlight=False, soft_wrap=True)
    played = evaluation.learner.decisions
    whole = f" (total_decisions={total:,.0f}; rounds are played to their end)" if played > total else ""
    console.print(f"learnt from {played:,} decisions{whole}", highlight=False, soft_wrap=True)
    console.print(f"agent: {folder / AGENT}", soft_wrap=True, markup=False)
    console.print(f"curves: tensorboard --logdir {folder.parent}", soft_wrap=True, markup=False)
