"""The Optuna study of a sweep: its storage, its sampler, and pruning of jobs by their evaluations."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ringyard.checks import shown
from ringyard.errors import ConfigurationError
from ringyard_agents.runs.run_folder import is_sweep_job, job_folder

PRUNERS = Literal["median", "successive_halving"]

_SQLITE = "sqlite:///"


class Pruning:
    """Reports the evaluations of a sweep's job to its Optuna study, which may stop the job early.

    A pruned job returns its best objective so far. The trial `number` is that of the job.
    """

    def __init__(self, pruner: PRUNERS, sweeper: Any, number: int) -> None:
        import optuna

        pruners = optuna.pruners
        made = pruners.MedianPruner() if pruner == "median" else pruners.SuccessiveHalvingPruner()
        name, storage = str(sweeper.study_name), str(sweeper.storage)
        optuna.logging.set_verbosity(logging.WARNING)
        study = optuna.load_study(study_name=name, storage=storage, pruner=made)
        own = [one for one in study.get_trials(deepcopy=False) if one.number == number]
        if not own:
            raise ConfigurationError(
                f"the study {name} in {storage} has no trial {number}; evaluate.prune needs it"
            )
        self._trial = optuna.trial.Trial(study, own[0]._trial_id)
        self._reported = {*own[0].intermediate_values}  # of a job that was interrupted
        self._step = -1

    @classmethod
    def of(cls, pruner: PRUNERS | None) -> Self | None:
        """Return the pruning of the running job, or None if `evaluate.prune` is not set."""
        if pruner is None:
            return None
        sweeper = HydraConfig.get().sweeper if is_sweep_job() else OmegaConf.create({})
        require_stored_study(sweeper, f"evaluate.prune={pruner}")
        return cls(pruner, sweeper, int(job_folder().name))

    def should_stop(self, step: int, value: float) -> bool:
        """Report an evaluation (a `step` equal in all jobs) once; return whether the pruner stops the job."""
        if step <= self._step:
            return False
        self._step = step
        if step not in self._reported:
            self._trial.report(value, step)
        stops = bool(self._trial.should_prune())
        if stops:
            self._trial.set_user_attr("pruned at evaluation", step)
        return stops


def require_stored_study(sweeper: DictConfig, setting: str) -> None:
    """Raise a ConfigurationError if a sweeper has no study that other processes can open."""
    if sweeper.get("storage") is None or sweeper.get("study_name") is None:
        raise ConfigurationError(
            f"{setting} needs a sweep (-m) by Optuna with a stored study, such as sweep=evolution, or"
            " hydra/sweeper=optuna hydra.sweeper.storage=sqlite:///study.db hydra.sweeper.study_name=mine"
        )


def load_study(sweeper: DictConfig, space: Collection[str]) -> Any:
    """Return the stored study of a sweep, which another person may have made. None: there is none yet.

    A waiting trial may set only settings in `space`, since the sweeper makes overrides of them.
    """
    require_stored_study(sweeper, "hydra.sweeper.storage")
    storage = str(sweeper.storage)
    if storage.startswith(_SQLITE) and not Path(storage.removeprefix(_SQLITE)).exists():
        return None
    if storage.startswith("redis"):
        raise ConfigurationError(
            f"hydra.sweeper.storage is {storage}; expected a database such as sqlite:///study.db, because"
            " reading pickles from Redis may run any code"
        )
    import optuna

    try:
        study = optuna.load_study(study_name=str(sweeper.study_name), storage=storage)
        trials = study.get_trials(deepcopy=False)
    except KeyError:  # no study of that name
        return None
    except Exception as error:  # its type depends on the database
        first = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"hydra.sweeper.storage is {storage}, which cannot be opened: {first}"
        ) from error
    unfinished = [one for one in trials if not one.state.is_finished()]
    for name in sorted({name for one in unfinished for name in one.params} - {*space}):
        raise ConfigurationError(
            f"hydra.sweeper.storage is {storage}: a waiting trial sets {shown(name)}, which this sweep does"
            " not search; expected a study that this sweep began, or another hydra.sweeper.study_name"
        )
    return study


def is_stored_in(sweeper: DictConfig, folder: Path) -> bool:
    """Return whether the study of a sweep is a file in a folder."""
    file = Path(str(sweeper.get("storage")).removeprefix(_SQLITE))
    return file.resolve().parent == folder.resolve()


def queue_trials_again(study: Any, numbers: Collection[int]) -> None:
    """Make a study ask for its unfinished trials again, with the parameters that they have."""
    from optuna.trial import TrialState

    for trial in study.get_trials(deepcopy=False):
        if trial.number in numbers:
            study._storage.set_trial_state(trial._trial_id, TrialState.WAITING)


def tpe_sampler(seed: int | None = None, **options: Any) -> Any:
    """Return a `TPESampler` with `options` that draws the same after an interruption.

    The draws of a trial depend on its number and the `seed`. None: random.
    """
    from optuna.samplers import TPESampler

    if seed is None:
        return TPESampler(**options)

    class NumberedTPESampler(TPESampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            own = int(np.random.SeedSequence([seed, trial.number]).generate_state(1)[0])
            super().__init__(seed=own, **options)
            return super().infer_relative_search_space(study, trial)

    return NumberedTPESampler(seed=seed, **options)
