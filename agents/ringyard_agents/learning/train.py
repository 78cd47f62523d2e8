"""`ringyard train`: learn a policy, evaluate it on the way."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from ringyard.errors import CheckpointError, ConfigurationError
from ringyard.mdp.env_config import EnvConfig
from ringyard.threads import set_num_threads
from ringyard_agents.config.compose import plain
from ringyard_agents.config.safe_load import Trust, check_classes, groups_of_runs
from ringyard_agents.learning.agent_file import AGENT, LAST, parts_of
from ringyard_agents.learning.callbacks import callbacks_of
from ringyard_agents.learning.checkpoint import Checkpoint
from ringyard_agents.learning.constraint import Constrained, Constraint
from ringyard_agents.learning.distributed import EnoughError, Training, follow, tell
from ringyard_agents.learning.environments import environments_of, settings_of
from ringyard_agents.learning.evaluation import Evaluation, Unseen, baselines_of, constraint_of, ratio
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
from ringyard_agents.learning.training_run import ProgressBar, TrainingRun, read_last, remove_run
from ringyard_agents.learning.warm_start import load_initial_weights
from ringyard_agents.runs.pruning import Pruning
from ringyard_agents.runs.run_folder import RunFolder, in_sweep, job_folder, locked

__all__ = ["train"]


def train(config: DictConfig) -> float | None:
    """Train an agent; writes checkpoints, TensorBoard logs and training.json into the run folder.

    A job of a sweep that has begun before goes on.

    Returns:
        The best agent's metric on the evaluation workloads, less is better; None: there was no evaluation.

    Raises:
        RingyardError: bad input, before anything is replaced.
        KeyboardInterrupt: it was stopped; everything is saved.
    """
    folder = job_folder()
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
    """Unpack the config, put everything together, and learn."""
    saved, evaluated, earlier_decisions = None, None, 0
    if config.resume is not None:
        config, earlier_decisions = resumed_config(config)
        saved, evaluated = read_last(folder)
    elif not config.overwrite:
        RunFolder(folder, "train").refuse_another(overwrite=False, outputs=(AGENT, LAST))
    given, parts = plain(config), parts_of(config)
    seed, total, judged = given["seed"], given["total_decisions"], given["evaluate"]
    console = Console()

    environments = environments_of(given, given["worlds"], _checked_of(folder, given["trust"], saved))
    unseen = Unseen(environments, judged["workloads"], judged["workload_seed"], given["trust"])
    learner: Learner = instantiate(parts["agent"], _convert_="all")
    callbacks = callbacks_of(given["callbacks"])
    constraint = _constrain(learner, given["constraint"], unseen)
    equip(learner, hardware)
    _set_up(learner, settings_of(learner, environments, given["num_workloads"], seed), seed, saved, folder)
    if saved is None and given["init"] is not None:
        load_initial_weights(learner, given["init"], parts)
    evaluation = Evaluation(
        learner,
        settings_of(learner, environments, unseen.workloads, unseen.seed),
        judged["every"],
        constraint,
    )
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
        plainly = {label: plain(one) for label, one in environments.items()}
        state = learner.state()
        hardware.peers.from_first(
            Training(parts["agent"], plainly, given["num_workloads"], seed, total, constraint, state)
        )
    by_itself = saved is not None and not in_sweep()  # a job of a study that goes on
    pruning = Pruning.of(None if by_itself else judged["prune"])
    enough = _Enough(run, judged["patience"] or np.inf, pruning, console)
    _learn(run, total, enough, hardware.peers, given["plots"])
    _print_results(console, folder, evaluation, total)
    return evaluation.best if np.isfinite(evaluation.best) else None


def _checked_of(folder: Path, trust: Trust, saved: Checkpoint | None) -> Callable[[Any], None] | None:
    """What looks at the environments of a run that goes on, whose file named them."""
    if saved is None:
        return None
    return lambda parts: check_classes(parts, groups_of_runs(), trust, str(folder / "config.yaml"))


def _constrain(learner: Learner, given: Mapping[str, Any], unseen: Unseen) -> Constraint | None:
    """Hand a learner what it has to keep, if anything."""
    if given["metric"] is not None and not isinstance(learner, Constrained):
        raise ConfigurationError(
            "constraint: this agent can keep none; expected one that scores jobs (agent=evolution, with"
            " action=scores observation=live_jobs), or no constraint.metric and constraint.most"
        )
    constraint = constraint_of(**given, unseen=unseen)
    if isinstance(learner, Constrained):
        learner.constraint = constraint
    return constraint


def _set_up(
    learner: Learner, settings: Mapping[str, EnvConfig], seed: int, saved: Checkpoint | None, folder: Path
) -> None:
    """Put a learner into its environments: new, or as an earlier run left it."""
    try:
        learner.setup(settings, seed, saved)
    except (KeyError, TypeError, CheckpointError) as error:
        if saved is None:
            raise
        raise CheckpointError(f"cannot resume from {folder / LAST}: {error}") from error


class _Enough(NamedTuple):
    """Whether a training ends before all decisions are made.

    Attributes:
        run: that learns.
        patience: evaluations without a better agent.
        pruning: of a sweep's jobs; None: there is none.
        console: where it is said.
    """

    run: TrainingRun
    patience: float
    pruning: Pruning | None
    console: Console

    def __call__(self) -> bool:
        evaluation, enough = self.run.evaluation, self.run.stopped_by is not None
        if enough:
            self.console.print(f"stopped by the callback {self.run.stopped_by}", highlight=False)
        if self.pruning is not None and self.pruning.behind(evaluation.number, evaluation.latest):
            self.console.print("stopped by evaluate.prune: behind the earlier jobs of the sweep")
            enough = True
        return enough or evaluation.in_vain >= self.patience


def _learn(run: TrainingRun, total: int, enough: _Enough, group: ProcessGroup, plots: bool) -> None:
    """Learn until there are enough decisions or it gets no better; whatever ends it, the run is saved."""
    learner, evaluation, console = run.learner, run.evaluation, enough.console
    try:
        with ProgressBar(total, evaluation, console) as bar:

            def between_rounds(measured: Mapping[str, float]) -> None:
                run.between_rounds(measured)
                bar.show()
                tell(group, evaluation.constraint, enough())

            with suppress(EnoughError):
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
