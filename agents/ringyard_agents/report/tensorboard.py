"""TensorBoard runs of a comparison: one for each scheduler, and one with the table and the plots."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ringyard_agents.config.safe_load import read_plain
from ringyard_agents.evaluation.results_frame import Results
from ringyard_agents.report.time_series import time_curves
from ringyard_agents.runs.atomic_write import atomic_folder

#: groups of tags, which name the x axis
_TIME, _PERCENTILE = "simulated_seconds", "percentile_of_jobs"

#: {tag: (name of the curve, title of its chart)}
_OVER_TIME = {
    f"{_TIME}/mean_JCT_so_far": ("running_jct", "mean JCT of finished jobs (s), by simulated seconds"),
    f"{_TIME}/waiting_jobs": ("waiting", "waiting jobs, by simulated seconds"),
    f"{_TIME}/share_of_GPUs_held": ("utilisation", "share of GPUs held by jobs, by simulated seconds"),
}
_JCT = f"{_PERCENTILE}/JCT"

_CURVES = {title: ["Multiline", [f"{tag}$"]] for tag, (_, title) in _OVER_TIME.items()}
_LAYOUT = {"comparison": _CURVES | {"JCT (s), by percentile of the jobs": ["Multiline", [f"{_JCT}$"]]}}


def write_tensorboard(results: Results, folder: Path, text: str, images: Sequence[Path]) -> None:
    """Write curves over simulated seconds and over percentiles, the table as text and the plots as images.

    Step and wall time are simulated seconds, so the axis "relative" shows days. `folder` is replaced.
    """
    from torch.utils.tensorboard import SummaryWriter

    with atomic_folder(folder) as partial:
        with SummaryWriter(str(partial / "comparison")) as writer:
            writer.add_custom_scalars(_LAYOUT)
            writer.add_text("comparison", text)
            add_images(writer, images)
        seconds, found = time_curves(results.jobs, results.timelines)
        served = results.jobs[results.jobs["outcome"] != "blocked"]
        for label, bands in found.items():
            with SummaryWriter(str(partial / label)) as writer:
                for tag, (name, _) in _OVER_TIME.items():
                    known = np.isfinite(bands[name].value)
                    points = zip(seconds[known].tolist(), bands[name].value[known].tolist(), strict=True)
                    for second, value in points:
                        writer.add_scalar(tag, value, int(second), walltime=int(second))
                jcts = served.loc[served["scheduler"] == label, "jct"].to_numpy()
                for percent in range(1, 100) if len(jcts) else ():
                    writer.add_scalar(_JCT, float(np.percentile(jcts, percent)), percent)


def add_images(writer: Any, images: Sequence[Path], step: int = 0) -> None:
    """Add PNG files as images, with their names as tags."""
    from matplotlib.image import imread

    for file in images:
        writer.add_image(f"plots/{file.stem}", imread(file)[..., :3], step, dataformats="HWC")


def record_text(folder: Path) -> str:
    """Return the command of a run folder, and its record run.json, as Markdown."""
    record = read_plain(folder / "run.json", interpolations=True)
    command = shlex.join(["ringyard", record["command"], *record["arguments"]])
    lines = (folder / "run.json").read_text().splitlines()
    return "\n".join([f"# {folder.name}", "", f"    {command}", "", *(f"    {line}" for line in lines)])
