"""`ringyard plot`: plots of runs that have finished, several on each other."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ringyard_agents.report.learning_curves import draw_learning_curves
from ringyard_agents.report.plots import draw_profiles, draw_world
from ringyard_agents.runs.run_index import Compared, find_runs, names_of

__all__ = ["plot_runs"]


def plot_runs(
    places: Sequence[str], folder: Path, suffix: str, most: int
) -> tuple[list[Path], Sequence[str]]:
    """Draw learning curves of the training runs and overlay the comparisons.

    Args:
        places: run folders, or folders around them.
        folder: for the plots; made if missing.
        suffix: png, pdf or svg.
        most: schedulers in a plot, those of the least mean JCT.

    Returns:
        (files written, what is wrong with runs that are left out).

    Raises:
        ConfigurationError: no such folder, or no finished run in it.
        OSError: plots cannot be written.
    """
    trained, compared, damaged = find_runs(places)
    folder.mkdir(parents=True, exist_ok=True)
    files = draw_learning_curves(trained, folder, suffix) if trained else []
    worlds = _worlds(compared)
    for name, (runs, jobs) in worlds.items():
        shown = runs.groupby("scheduler")["mean_jct"].mean().nsmallest(most).index
        kept = [frame[frame["scheduler"].isin(shown)] for frame in (runs, jobs)]
        files += draw_world(kept[0], kept[1], folder, suffix, name if len(worlds) > 1 else "")
    files += draw_profiles({name: runs for name, (runs, _) in worlds.items()}, folder, suffix)
    return files, damaged


def _worlds(compared: Sequence[Compared]) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """{name: (runs, jobs)}: comparisons on the same workloads are one world.

    A scheduler that another comparison has run there is left out if it did the same, else named after its
    own.
    """
    names = names_of([one.folder for one in compared])
    found: dict[tuple[float, ...], tuple[str, list[Compared]]] = {}
    for one, name in zip(compared, names, strict=True):
        bounds = one.runs.drop_duplicates("workload").sort_values("workload")["bound_mean_jct"]
        _, together = found.setdefault(tuple(bounds.tolist()), (name, []))
        together.append(_renamed(one, name, together))
    return {
        name: (pd.concat([one.runs for one in some]), pd.concat([one.jobs for one in some]))
        for name, some in found.values()
    }


def _renamed(one: Compared, name: str, earlier: Sequence[Compared]) -> Compared:
    """A comparison without what earlier ones have, and with names of its own for what they have otherwise."""

    def jcts(runs: pd.DataFrame, label: str) -> list[float]:
        return runs.loc[runs["scheduler"] == label, "mean_jct"].tolist()

    runs, jobs = one.runs, one.jobs
    for label in runs["scheduler"].unique():
        others = [jcts(before.runs, label) for before in earlier]
        if jcts(one.runs, label) in others:
            runs, jobs = (frame[frame["scheduler"] != label] for frame in (runs, jobs))
        elif any(others):
            to = {label: f"{label} ({name})"}
            runs, jobs = (frame.replace({"scheduler": to}) for frame in (runs, jobs))
    return Compared(one.folder, runs, jobs)
