"""Published measured sets, each described by a yaml."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hydra.utils import instantiate
from omegaconf import OmegaConf

from ringyard.checks import checked
from ringyard.errors import ConfigurationError
from ringyard_agents.measurements import REQUIRED, MeasuredRows, MeasuredSet, read_measured_sets
from tools.config_files import tool_config_files
from tools.measured_sets.readers import MissingDataError, Reader


@checked("measured")
@dataclass(frozen=True, kw_only=True)
class PublishedSet(MeasuredSet):
    """A measured set of published files: a yaml of `tools/conf/measured`.

    Attributes:
        read: the folder with the published files: its rows.
        network: name of conf/network for rows that do not say; "": what the command is told.
        interconnect: name of conf/interconnect, likewise.
        tabulated: its rows stand in this project, not in files.
        collection: of the folder that its files come in; "": the published profiles. A folder without any
            file of a collection is not asked for the others.
    """

    read: Reader
    network: str = ""
    interconnect: str = ""
    tabulated: bool = False
    collection: str = ""


@functools.cache
def measured_sets() -> Mapping[str, PublishedSet]:
    """{name: set} of tools/conf/measured and of RINGYARD_CONF, by name."""
    files = tool_config_files("measured")
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
    own = read_measured_sets(place)
    published, absent = _published(place) if place.is_dir() else ([], {})
    if not published and not own:
        raise ConfigurationError(
            f"{place} holds no measurements; expected published files ({', '.join(measured_sets())}) or CSVs"
            f" with the columns {', '.join(REQUIRED)}"
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
    sets = measured_sets()
    here = {sets[one.name].collection for one in found if not sets[one.name].tabulated}
    found = [one for one in found if sets[one.name].collection in here]
    return found, {name: why for name, why in absent.items() if sets[name].collection in here}
