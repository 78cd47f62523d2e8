"""`python -m tools.networks CLONES --out conf`: networks of published trainings.

Compute seconds and overlap are those of the shipped profiles, so a network has what `performance=composite`
needs to predict these trainings. Printed beside it: bandwidth by the seconds of synchronisation that the
files report, 2 m (w - 1) / w / seconds. They hold latency and waiting, but not what computing hides.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ringyard.profiles import catalogue
from ringyard_agents.calibration.fits import ComputeLine
from ringyard_agents.calibration.rings import FittedConstants, fit_rings, predict_rings
from ringyard_agents.calibration.yamls import fabric_yaml, write_yamls
from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.measurements import gpus_per_server
from tools.measured_sets.artifacts import sia_rings

COMMAND = "python -m tools.networks CLONES --out conf"
_SOURCE = (
    "trainings: Sia's step times of six models (siasosp23/artifacts @ aaf7a0d, sia-simulator/traces), with"
    " the compute seconds and overlap of the shipped profiles"
)
#: {name of conf/network: (Sia's clusters, title, speed and source of the wire)}
SIA_NETWORKS: dict[str, tuple[Sequence[str], str, dict[str, Any]]] = {
    "ethernet_50g_rtx_2080ti": (
        ("rtx",),
        "50 Gb/s Ethernet between servers of 8 RTX 2080 Ti on PCIe.",
        {"wire_bytes_per_second": 6.25e9, "wire_source": "assumed: 50 Gb/s, not in Sia's artifact"},
    ),
    "infiniband_8x200g_sia": (
        ("dgx", "dgx-ext"),
        "Eight ports of 200 Gb/s InfiniBand a server of 8 A100, as Sia's trainings used them.",
        {"wire_bytes_per_second": 200e9, "wire_source": "assumed: 8 x 200 Gb/s, not in Sia's artifact"},
    ),
}


def fit_network(rows: pd.DataFrame) -> tuple[FittedConstants, pd.DataFrame]:
    """Fit networks to rows whose models and GPU types ship.

    Args:
        rows: of `sia_rings`.

    Returns:
        The constants, and the rows with `error` and `sync_bytes_per_second`.
    """
    models = {model.name: model for model in catalogue() if model.name in set(rows.model)}
    lines = {}
    for name, gpu_type in set(zip(rows.model, rows.gpu_type, strict=True)):
        figure = models[name].gpus[gpu_type]
        lines[name, gpu_type] = ComputeLine(figure.fixed_seconds, figure.sample_seconds)
    exponents = {name: model.overlap_exponent for name, model in models.items() if model.overlap_exponent}
    gradient_bytes = {name: model.gradient_bytes for name, model in models.items()}
    fit = fit_rings(rows, gradient_bytes, FittedConstants(lines=lines, exponents=exponents))
    error = np.abs(predict_rings(rows, fit, gradient_bytes) / rows.seconds - 1.0)
    gpus = rows.placement.map(lambda placement: sum(gpus_per_server(placement)))
    volume = 2.0 * rows.model.map(gradient_bytes) * (gpus - 1.0) / gpus
    return fit, rows.assign(error=error, sync_bytes_per_second=volume / rows.sync_seconds)


def _print_fit(name: str, rows: pd.DataFrame) -> None:
    """Print errors by servers, and the bandwidth by reported synchronisation, by model."""
    servers = rows.placement.str.count(r"\+") + 1
    print(f"{name}: errors by servers\n{rows.groupby(servers).error.agg(['mean', 'median', 'size'])}")
    across = rows[servers > 1].groupby(["note", "model"]).sync_bytes_per_second.median().unstack() / 1e9
    across["geometric mean"] = np.exp(np.log(across).mean(axis=1))
    print(f"GB/s by reported synchronisation, medians of 2 servers and more\n{across.round(2).T}")


def main(words: Sequence[str]) -> int:
    """Run the command.

    Args:
        words: of the command line.

    Returns:
        The exit code: 2 for bad input.
    """
    return exit_code("tools.networks", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    parser = Arguments(prog="python -m tools.networks", description="Write networks of published trainings.")
    parser.add_argument("clones", metavar="CLONES", help="folder with a clone of siasosp23/artifacts")
    parser.add_argument("--out", required=True, help="folder for the yamls")
    given = parser.parse_args(words)
    texts = {}
    for name, (clusters, title, wire) in SIA_NETWORKS.items():
        tables = [sia_rings(Path(given.clones), cluster) for cluster in clusters]
        fit, rows = fit_network(pd.concat(tables, ignore_index=True))
        network = replace(fit.networks["between"], source=_SOURCE, **wire)
        texts[f"network/{name}.yaml"] = fabric_yaml(title, network, COMMAND)
        _print_fit(name, rows)
    write_yamls(Path(given.out), texts, "python -m tools.networks", overwrite=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
