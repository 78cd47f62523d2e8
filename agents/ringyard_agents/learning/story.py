"""What TensorBoard tells of a training run beside its curves: charts, command, results, plots, a schedule."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.tensorboard import SummaryWriter, summary

from ringyard.mdp.env import ClusterEnv
from ringyard.mdp.setting import Setting
from ringyard_agents.learning.learner import Policy
from ringyard_agents.report.tensorboard import add_images, record_text

__all__ = ["gantt", "tell_beginning", "tell_end", "tell_settings"]

#: words of a command line that make no other run
_NO_SETTINGS = ("name", "overwrite", "plots", "save_minutes", "trust", "num_threads")


def tell_beginning(writer: SummaryWriter, folder: Path, metric: str) -> None:
    """The command with its surroundings as text, and the charts of the page CUSTOM SCALARS.

    Args:
        writer: of the run.
        folder: of the run; has its run.json.
        metric: that evaluations measure.
    """
    writer.add_text("run", record_text(folder))
    writer.add_custom_scalars(
        {
            "evaluation": {
                f"{metric} of the agent and of schedulers, by decisions": [
                    "Multiline",
                    [f"^eval/{metric}$", "^baselines/.*$"],
                ],
                f"{metric} of the agent / of schedulers, by decisions": [
                    "Multiline",
                    [f"^eval/{metric}_ratio_to_.*$"],
                ],
            }
        }
    )


def tell_settings(writer: SummaryWriter, words: Sequence[str]) -> None:
    """The run's own settings for the page HPARAMS, which finds the metrics among the curves.

    Args:
        writer: of the run.
        words: overrides as Hydra gives them to this run, or to this job of a sweep.
    """
    given = (word.lstrip("+").partition("=") for word in words)
    settings = {name: _number(value) for name, _, value in given if name not in _NO_SETTINGS}
    if settings:
        untyped: Any = summary
        _, begin, _ = untyped.hparams(settings, {})  # of the run alone: TensorBoard itself finds what differs
        file: Any = writer.file_writer
        file.add_summary(begin)


def _number(word: str) -> float | str:
    try:
        return float(word)
    except ValueError:
        return word


def tell_end(
    writer: SummaryWriter,
    reached: Mapping[str, Any],
    images: Sequence[Path],
    schedule: NDArray[np.uint8] | None,
) -> None:
    """What was reached as a table, and as images plots and a schedule.

    Args:
        writer: of the run.
        reached: as in training.json.
        images: PNG files.
        schedule: [height, width, 3] pixels.
    """
    metric, best = reached["metric"], reached["best"]
    rows = [("the best agent", best), *reached["baselines"].items()]
    lines = [f"| | {metric} | best agent / it |", "|---|---:|---:|"]
    lines += [f"| {name} | {value:,.6g} | {best / value if value else np.nan:.3f} |" for name, value in rows]
    writer.add_text("result", "\n".join(lines), reached["decisions"])
    add_images(writer, images, reached["decisions"])
    if schedule is not None:
        writer.add_image("schedule/gantt", schedule, reached["decisions"], dataformats="HWC")


def gantt(policy: Policy, setting: Setting, workload: int = 0) -> NDArray[np.uint8] | None:
    """[height, width, 3] pixels: who held which GPUs when a policy played a workload.

    Args:
        policy: of a learner.
        setting: as the learner reads it.
        workload: its number.
    """
    env = ClusterEnv(setting, render_mode="rgb_array")
    observation, info = env.reset(options={"workload": workload})
    over = False
    while not over:
        several = (
            {name: block[None] for name, block in observation.items()}
            if isinstance(observation, Mapping)
            else observation[None]
        )
        actions = policy.act(several, np.asarray(info["action_mask"])[None].astype(np.bool_))
        observation, _, ended, truncated, info = env.step(actions[0])
        over = ended or truncated
    image = env.render()
    env.close()
    return image
