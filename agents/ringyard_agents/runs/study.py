"""The Optuna study of a sweep: its storage and its sampler."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from ringyard.checks import shown
from ringyard.errors import ConfigurationError

_SQLITE = "sqlite:///"


def load_study(sweeper: DictConfig, space: Collection[str]) -> Any:
    """Return the stored study of a sweep, which another person may have made. None: there is none yet.

    A waiting trial may set only settings in `space`, since the sweeper makes overrides of them.
    """
    if sweeper.get("study_name") is None:
        raise ConfigurationError(
            "hydra.sweeper.storage needs the name of a stored study, hydra.sweeper.study_name=mine"
        )
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
