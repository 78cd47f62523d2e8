"""Measured sets: the published ones by a yaml each, anybody's tidy CSV by itself."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
from hydra.utils import instantiate
from omegaconf import OmegaConf

from ringyard.checks import Positive, checked
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard_agents.measured.readers import MissingDataError, Reader
from ringyard_agents.measured.rows import COLUMNS, is_tidy, read_rows

__all__ = ["MeasuredRows", "MeasuredSet", "find_sets", "measured_sets", "rows_of"]

Aim = Positive | None


@checked("measured")
@dataclass(frozen=True)
class MeasuredSet:
    """One measured set; those of published files are a yaml of `conf/measured` each.

    Attributes:
        title: for people.
        source: who measured what on which machines, and what is assumed of it.
        read: the folder with the published files: its rows.
        network: name of conf/network for rows that do not say; "": what `ringyard validate` is told.
        interconnect: name of conf/interconnect, likewise.
        fitted: which shipped constants were fitted to these very rows; "": none, they have never been used.
        weak: where to be careful.
        mean_aim: largest mean error wanted of what ships; None: no aim.
        median_aim: largest median error.
        overrides: further Hydra overrides of the performance model.
        tabulated: its rows stand in this project, not in files.
        collection: of the folder that its files come in; "": the published profiles. A folder without any
            file of a collection is not asked for the others.
    """

    title: Annotated[str, "not empty"]
    source: str
    read: Reader
    network: str = ""
    interconnect: str = ""
    fitted: str = ""
    weak: str = ""
    mean_aim: Aim = 0.15
    median_aim: Aim = 0.10
    overrides: Sequence[str] = ()
    tabulated: bool = False
    collection: str = ""


@dataclass(frozen=True)
class MeasuredRows:
    """A set with its rows.

    Attributes:
        name: of the yaml, or of the CSV.
        about: the set.
        rows: [rows] its tidy table, network and interconnect filled in as far as the set knows them.
    """

    name: str
    about: MeasuredSet
    rows: pd.DataFrame


@functools.cache
def measured_sets() -> Mapping[str, MeasuredSet]:
    """{name: set} of conf/measured and of RINGYARD_CONF, by name."""
    files = config_files("measured")
    return {name: instantiate(OmegaConf.load(file), _convert_="all") for name, file in files.items()}


def rows_of(name: str, folder: Path) -> MeasuredRows:
    """The rows of a published set.

    Args:
        name: of the set.
        folder: with the published files.

    Raises:
        ConfigurationError: no such set.
        MissingDataError: its files are not in the folder.
    """
    if name not in measured_sets():
        raise ConfigurationError(
            f"unknown measured set {name!r}; expected one of {', '.join(measured_sets())}"
        )
    about = measured_sets()[name]
    rows = about.read(folder)
    for column in ("network", "interconnect"):
        rows[column] = rows[column].mask(rows[column] == "", getattr(about, column))
    return MeasuredRows(name, about, rows)


def _of_file(file: Path, name: str) -> MeasuredRows:
    about = MeasuredSet(title=name, source=f"{file.name}, a tidy table", read=read_rows, fitted="unknown")
    return MeasuredRows(name, about, read_rows(file))


def find_sets(place: Path) -> tuple[list[MeasuredRows], dict[str, str]]:
    """Every published set of a folder, then every tidy CSV in it; or one tidy CSV.

    Sets that are tabulated in this project come with published files, not with tidy CSVs alone.

    Args:
        place: a folder or a file.

    Returns:
        The sets that are there, and {published set: why it is not}.

    Raises:
        ConfigurationError: nothing is at that place, or a tidy CSV holds what `tidy` refuses.
    """
    if place.is_file():
        return [_of_file(place, place.name.partition(".csv")[0])], {}
    if not place.is_dir():
        raise ConfigurationError(f"there is no folder or file {place}; give the one that holds measurements")
    published, absent = _published(place)
    files = sorted([*place.rglob("*.csv"), *place.rglob("*.csv.gz")])
    own = [
        _of_file(file, str(file.relative_to(place)).partition(".csv")[0]) for file in files if is_tidy(file)
    ]
    if not published and not own:
        raise ConfigurationError(
            f"{place} holds no measurements; expected published files ({', '.join(measured_sets())}) or CSVs"
            f" with the columns {', '.join(name for name, column in COLUMNS.items() if column.required)}"
        )
    return [*published, *own], absent if published else {}


def _published(folder: Path) -> tuple[list[MeasuredRows], dict[str, str]]:
    """As `find_sets`; nothing of a collection without a file there."""
    found, absent = [], {}
    for name in measured_sets():
        try:
            found.append(rows_of(name, folder))
        except MissingDataError as missing:
            absent[name] = str(missing)
    here = {one.about.collection for one in found if not one.about.tabulated}
    found = [one for one in found if one.about.collection in here]
    return found, {name: why for name, why in absent.items() if measured_sets()[name].collection in here}
