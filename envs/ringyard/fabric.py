"""`Fabric`: bandwidth and latency of a ring all-reduce between servers (network) or inside one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import yaml
from numpy.typing import NDArray

from ringyard.checks import NonNegative, checked, shown, suggest
from ringyard.compiled import FloatVector, kernel
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError

Bandwidth = Annotated[float, "(0, inf]"]

_LATENCY = 0
_FIRST_BANDWIDTH = 1
_MAX_COUNT = 64

#: length of `Fabric.row`: the latency, then the bandwidth of 1 to 64 servers or GPUs
FABRIC_COLUMNS = _FIRST_BANDWIDTH + _MAX_COUNT


@checked("fabric")
@dataclass(frozen=True)
class Fabric:
    """Bandwidth and latency of a ring without contention. `conf/network` and `conf/interconnect` hold them.

    Raises:
        ConfigurationError: no number, one out of its range, or a ring that is faster than its wire.

    Args:
        bytes_per_second: bandwidth B of a ring: a number, or {servers spanned (network) or GPUs
            (interconnect): B}. Between two counts, log B is linear in log count. Outside it is constant.
        latency_seconds: of each of the 2 (w - 1) steps of a ring of w workers.
        source: reference of the bandwidth: trainings, a benchmark, or trainings at least (a lower limit).
        wire_bytes_per_second: line rate of all ports of a server, to compare with. None: not published.
        wire_source: reference of the line rate.
    """

    bytes_per_second: Bandwidth | Annotated[Mapping[Annotated[int, "[1, 1048576]"], Bandwidth], "not empty"]
    latency_seconds: NonNegative = 0.0
    source: str = ""
    wire_bytes_per_second: Bandwidth | None = None
    wire_source: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.bytes_per_second, Mapping):
            given = dict(sorted(self.bytes_per_second.items()))
            if len(given) > 1 and not np.isfinite(list(given.values())).all():
                raise ConfigurationError(
                    f"fabric.bytes_per_second is {given}; expected finite numbers, or a single infinite one"
                )
            object.__setattr__(self, "bytes_per_second", given)
        fastest = self.bandwidth(np.arange(1, _MAX_COUNT + 1)).max()
        # an infinite bandwidth switches the network's cost off
        if self.wire_bytes_per_second is not None and self.wire_bytes_per_second < fastest < np.inf:
            raise ConfigurationError(
                f"fabric.bytes_per_second is {fastest:.4g}, faster than its wire,"
                f" {self.wire_bytes_per_second:.4g}; expected bytes per second (1 Gb/s is 1.25e8)"
            )

    def bandwidth(self, count: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return bytes per second [counts] of rings over `count` [counts] servers, or GPUs of a server."""
        if not isinstance(self.bytes_per_second, Mapping):
            return np.full(len(count), float(self.bytes_per_second))
        counts = np.array(list(self.bytes_per_second), dtype=np.float64)
        figures = np.array(list(self.bytes_per_second.values()))
        near = np.clip(count, counts[0], counts[-1])
        below = np.searchsorted(counts, near, side="right") - 1
        found = figures[below]  # as given, to the last digit
        between = counts[below] != near
        if between.any():
            logs = np.interp(np.log(near[between]), np.log(counts), np.log(figures))
            found[between] = np.exp(logs)
        return np.asarray(found, dtype=np.float64)

    @property
    def row(self) -> NDArray[np.float64]:
        """[FABRIC_COLUMNS] latency, then the bandwidth for counts 1, 2, ..., 64 (and more), for kernels."""
        return np.array([self.latency_seconds, *self.bandwidth(np.arange(1, _MAX_COUNT + 1))])


def _read_fabric(group: str, name: str) -> Fabric:
    """Read `conf/<group>/<name>.yaml`. Raises a ConfigurationError that names the file."""
    files = config_files(group)
    if name not in files:
        raise ConfigurationError(f"unknown {group} {name!r}; expected {suggest(name, files)}")
    try:
        given = yaml.safe_load(files[name].read_text())
        figures = given["bytes_per_second"]
        if isinstance(figures, Mapping):
            figures = {count: float(figure) for count, figure in figures.items()}
        else:
            figures = float(figures)
        said: dict[str, Any] = {key: given[key] for key in ("source", "wire_source") if key in given}
        for key in {"latency_seconds", "wire_bytes_per_second"} & set(given):
            said[key] = float(given[key])
        return Fabric(figures, **said)
    except ConfigurationError as error:
        raise ConfigurationError(f"{files[name]}: {error}") from None
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"{files[name]} describes no {group}; expected a yaml with bytes_per_second: {shown(error)}"
        ) from error


def network(name: str) -> Fabric:
    """Read `conf/network/<name>.yaml`, the fabric of rings between servers.

    Raises:
        ConfigurationError: no such file, or one that describes no network.
    """
    return _read_fabric("network", name)


def interconnect(name: str) -> Fabric:
    """Read `conf/interconnect/<name>.yaml`, the fabric of rings inside a server, as `network` does."""
    return _read_fabric("interconnect", name)


@kernel
def ring_bytes_per_second(row: FloatVector, first: int, count: int) -> float:
    """Return the bandwidth of a ring, bytes per second.

    Args:
        row: array that contains a `Fabric.row`.
        first: position of that row in the array.
        count: servers or GPUs of the ring.
    """
    return row[first + _FIRST_BANDWIDTH + min(count, _MAX_COUNT) - 1]


@kernel
def latency_seconds(row: FloatVector, first: int, workers: int) -> float:
    """Return the latency of all steps of a ring of `workers` workers in seconds, 2 (w - 1) x latency.

    `row` and `first` are those of `ring_bytes_per_second`.
    """
    return 2.0 * (workers - 1) * row[first + _LATENCY]
