"""Hydra 1.3 and 1.4 in the same words: what either is asked for here, neither warns of."""

import functools
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ringyard.config_folder import config_folder

__all__ = ["base", "initialized", "made", "register_resolver", "store"]


@functools.cache
def base() -> dict[str, str]:
    """What `hydra.main` and the like are told besides: 1.4 has one way to behave."""
    import hydra

    return {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}


def initialized(folder: str | None = None) -> AbstractContextManager[Any]:
    """Hydra, ready to compose.

    Args:
        folder: of the configs, absolute; None: Ringyard's own.
    """
    from hydra import initialize_config_dir

    return initialize_config_dir(folder or str(config_folder()), **base())


def made(config: Any) -> Any:
    """What a config with a `_target_` makes, with plain lists and dictionaries as arguments.

    Whose configs may name what is not Hydra's to know: `ringyard_agents.trust` has looked at those of others.

    Args:
        config: a config, or a mapping.

    Raises:
        HydraException: it cannot be made.
    """
    from hydra.utils import instantiate

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"hydra\.utils\.instantiate\(\) resolved _target_")
        return instantiate(config, _convert_="all")


def register_resolver(name: str, resolver: Callable[..., Any]) -> None:
    """Let configs say `${name:...}`; one of that name is replaced.

    Args:
        name: of the resolver.
        resolver: is given what stands behind the colon.
    """
    from omegaconf import OmegaConf

    register: Any = OmegaConf.register_new_resolver if base() else OmegaConf.register_resolver
    register(name, resolver, replace=True)


def store(group: str, name: str, config: Any) -> None:
    """Give a group of Hydra's configs one more choice; one of that name is replaced.

    Args:
        group: of conf/.
        name: of the choice.
        config: what it holds.
    """
    from hydra.core.config_store import ConfigStore

    keep: Any = ConfigStore.instance().store
    keep(name, config, group, **({} if base() else {"replace": True}))
