"""The study of a sweep by Optuna, where it is kept beyond one command."""

from pathlib import Path

from omegaconf import DictConfig

from ringyard.errors import ConfigurationError

__all__ = ["require_kept", "trials_kept"]

_SQLITE = "sqlite:///"


def require_kept(sweeper: DictConfig, setting: str) -> None:
    """Raise a ConfigurationError unless a sweeper has a study that other processes can open.

    Args:
        sweeper: Hydra's.
        setting: that needs one.
    """
    if sweeper.get("storage") is None or sweeper.get("study_name") is None:
        raise ConfigurationError(
            f"{setting} needs a sweep (-m) by Optuna whose study is kept, such as sweep=evolution, or"
            " hydra/sweeper=optuna hydra.sweeper.storage=sqlite:///study.db hydra.sweeper.study_name=mine"
        )


def trials_kept(sweeper: DictConfig, folder: Path, replaced: bool) -> int | None:
    """How many trials the study of a sweep has; None: it is not kept.

    Args:
        sweeper: Hydra's.
        folder: of the sweep.
        replaced: what is in the folder will go before the sweep begins.

    Raises:
        ConfigurationError: it has no name, or cannot be opened.
    """
    if sweeper.get("storage") is None:
        return None
    require_kept(sweeper, "hydra.sweeper.storage")
    storage = str(sweeper.storage)
    if storage.startswith(_SQLITE):
        file = Path(storage.removeprefix(_SQLITE))
        if not file.exists() or (replaced and file.resolve().parent == folder.resolve()):
            return 0
    return _trials(storage, str(sweeper.study_name))


def _trials(storage: str, name: str) -> int:
    import optuna

    try:
        names = [one.study_name for one in optuna.get_all_study_summaries(storage)]
        return len(optuna.load_study(study_name=name, storage=storage).trials) if name in names else 0
    except Exception as error:  # of whichever database it is
        first = str(error).strip().partition("\n")[0]
        raise ConfigurationError(
            f"hydra.sweeper.storage is {storage}, which cannot be opened: {first}"
        ) from error
