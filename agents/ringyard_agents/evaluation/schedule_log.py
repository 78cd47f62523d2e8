"""Simulations that keep all of who held what, to be drawn."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import Progress

from ringyard.checks import shown
from ringyard.drawing.history import history_of
from ringyard.errors import ConfigurationError
from ringyard.sim.simulator import Simulator
from ringyard_agents.evaluation.evaluate import build, simulator
from ringyard_agents.runs.atomic_write import atomic_write, require_writable
from ringyard_baselines.scheduler import run

__all__ = ["draw_outputs", "played", "recorded", "require_outputs", "wants_drawing"]

#: rows kept at first, 32 bytes each
ROWS = 1 << 16

_PICTURES = (".png", ".pdf", ".svg")


def recorded(play: Callable[[int], Simulator]) -> Simulator:
    """A simulation that has ended and remembers everything.

    Args:
        play: plays it, with so many rows kept; called again if they were too few.
    """
    sim = play(ROWS)
    written = int(sim.state.clusters["num_segments"][0])
    return sim if written <= ROWS else play(written)


def played(scheduler: Mapping[str, Any], world: Mapping[str, Any], number: int, seed: int) -> Simulator:
    """A run as `ringyard compare` makes it, that has ended and remembers everything.

    Args:
        scheduler: its config.
        world: configs.
        number: of the workload.
        seed: of the comparison.
    """

    def play(segment_rows: int) -> Simulator:
        built = build(scheduler)
        sim = simulator(world, number, seed, built.round_seconds, segment_rows=segment_rows)
        run(sim, built, np.random.default_rng((seed, number, 1)))
        return sim

    return recorded(play)


def _files(config: DictConfig) -> dict[str, Path]:
    given = {name: config.output[name] for name in ("gantt", "video")}
    return {name: Path(file).expanduser() for name, file in given.items() if file is not None}


def wants_drawing(config: DictConfig) -> bool:
    """Whether `output` of `ringyard simulate` asks for a picture or a video."""
    return bool(_files(config))


def require_outputs(config: DictConfig) -> None:
    """Raise a ConfigurationError unless what `output` asks for can be drawn and written."""
    for name, file in _files(config).items():
        setting = f"output.{name}"
        try:
            from ringyard.drawing.video import require_video
        except ImportError as error:
            raise ConfigurationError(
                f'{setting} needs {error.name}, which is not installed: pip install "ringyard[render]"'
            ) from error
        if name == "video":
            require_video(setting, file)
        elif file.suffix.lower() not in _PICTURES:
            raise ConfigurationError(f"{setting} is {shown(str(file))}; expected {', '.join(_PICTURES)}")
        require_writable(setting, file)


def draw_outputs(config: DictConfig, sim: Simulator) -> list[Path]:
    """Write what `output` asks for; which files.

    Args:
        config: of the command.
        sim: `recorded`.
    """
    from ringyard.drawing.chart import save_gantt
    from ringyard.drawing.video import save_video

    files = _files(config)
    history = history_of(sim.state, 0, sim.cluster)
    for name, file in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as partial:
            if name == "gantt":
                save_gantt(partial, history)
                continue
            with Progress(console=Console(stderr=True), transient=True) as progress:
                frames = int(config.output.frames)
                for _ in progress.track(save_video(partial, history, frames), frames, description="drawing"):
                    pass
    return list(files.values())
