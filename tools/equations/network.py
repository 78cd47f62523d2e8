"""Ring all-reduce between servers and inside one."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from ringyard.fabric import Fabric
from ringyard.performance.ring import ring_seconds
from ringyard_agents.validation.shipped_errors import scatter
from tools.equations.result import Comparison, Part, halves, read, relative

_ring = np.vectorize(ring_seconds, otypes=[float])


def rings(data: Path) -> Comparison:
    """27 iteration times on 8, 16 and 32 GPUs, three models, three networks."""
    table = read(data, "calibration/hkbu_scaling_and_busbw.csv")
    table = table[(table.method == "BSP-A2A") & (table.gpus >= 8)]
    parts, points = [], []
    for network, rows in table.groupby("network"):
        gpus, size = rows.gpus.to_numpy(), rows.grad_bytes.to_numpy(dtype=float)
        alone, measured = rows.iter_1gpu_s.to_numpy(), rows.iter_s.to_numpy()
        fitted = halves(range(len(rows)))

        def predict(bandwidth: float, gpus: Any = gpus, size: Any = size, alone: Any = alone) -> Any:
            return alone + _ring(gpus, size, bandwidth, np.inf)

        def residuals(log_bandwidth: Any, predict: Any = predict, wanted: Any = (measured, fitted)) -> Any:
            return ((predict(np.exp(log_bandwidth[0])) - wanted[0]) / wanted[0])[wanted[1]]

        bandwidth = float(np.exp(least_squares(residuals, [np.log(2e9)]).x[0]))
        predicted = predict(bandwidth)
        errors = relative(predicted, measured)
        note = f"{bandwidth / 1e9:.2f} GB/s; worst of all 9 points {errors.max():.1%}"
        parts.append(Part(str(network), errors[~fitted], int(fitted.sum()), 1, note))
        points.append((str(network), measured, predicted))

    return Comparison(
        title="Ring iteration times",
        source="HKBU ddl-benchmarks, all-reduce of ResNet-50, BERT-base and BERT-large, 4 GPUs per server",
        form="t = t(1 GPU, measured) + 2 m (w-1)/w / B (`ring.ring_seconds`); one B per network",
        parts=parts,
        aim=0.05,
        weakness="Worst on 100GbE with TCP, where the bandwidth seems to fall with the number of GPUs.",
        draw=lambda axes: scatter(axes, points, "seconds per iteration"),
    )


def inside_a_server(data: Path) -> Comparison:
    """NCCL all-reduce on 2, 4 and 8 V100 of one server."""
    table = read(data, "aceso/collectives_v100_intranode.csv")
    table = table[table.collective == "all_reduce"]
    table = pd.DataFrame(table.groupby(["gpus", "size_MiB"], as_index=False)["time_ms"].median())
    table = table[table.size_MiB >= 16]
    gpus, size = table.gpus.to_numpy(), table.size_MiB.to_numpy(dtype=float) * 2**20
    measured = table.time_ms.to_numpy() / 1e3
    fitted = halves(range(len(table)))

    def predict(constants: Any) -> Any:
        pair, eight = np.exp(constants).tolist()
        return _ring(gpus, size, Fabric({2: pair, 8: eight}).bandwidth(gpus), np.inf)

    found = least_squares(lambda c: np.log(predict(c) / measured)[fitted], np.log([40e9, 100e9])).x
    predicted = predict(found)
    errors = relative(predicted, measured)
    points = [(f"{n} GPUs", measured[gpus == n], predicted[gpus == n]) for n in (2, 4, 8)]
    note = f"{np.exp(found[0]) / 1e9:.1f} GB/s for 2 GPUs, {np.exp(found[1]) / 1e9:.1f} for 8"
    parts = []
    for n in (2, 4, 8):
        here = gpus == n
        constants = 2 if n == 2 else 0  # counted once: they are the same for all sizes
        parts.append(Part(f"{n} GPUs", errors[~fitted & here], int((fitted & here).sum()), constants, note))
    return Comparison(
        title="All-reduce inside a server",
        source="Aceso's NCCL profiles, 8 V100 with NVLink, messages of 16 MiB and more",
        form="2 m (w-1)/w / B(w), log B linear in log w (`fabric.Fabric`); two constants",
        parts=parts,
        weakness=(
            "Two constants cover three sizes. Start-up latency (50-90 us) is not in the model: below 16 MiB a"
            " transfer takes longer than predicted. Servers with PCIe only need another bandwidth"
            " (HKBU: 4.1-6.4 GB/s on 4 GPUs)."
        ),
        draw=lambda axes: scatter(axes, points, "seconds"),
    )
