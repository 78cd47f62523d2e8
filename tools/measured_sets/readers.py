"""Readers of published files, one function for each set, which return tidy rows."""

import gzip
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ringyard.errors import ConfigurationError
from ringyard_agents.measurements import tidy
from tools.measured_sets.aiturbo import CALIBRATION, POINTS, RESTARTS

#: the folder that holds the published files: [rows] the tidy table
Reader = Callable[[Path], pd.DataFrame]


class MissingDataError(ConfigurationError):
    """A published file is not there: its set is left out, and reports say so."""


def published(folder: Path, name: str) -> Path:
    """A file of the folder.

    Raises:
        MissingDataError: it is not there.
    """
    file = folder / name
    if not file.is_file():
        raise MissingDataError(f"{name} is not in {folder}")
    return file


def _table(rows: Iterable[Mapping[str, Any]], where: str) -> pd.DataFrame:
    required = {"model": "", "batch": float("nan"), "placement": "1"}
    return tidy(pd.DataFrame([required | dict(row) for row in rows]), where)


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


#: Gavel's name: our profile
GAVEL = {
    "ResNet-18": "resnet18_cifar10",
    "ResNet-50": "resnet50_imagenet",
    "Transformer": "transformer_multi30k",
    "LM": "lstm_wikitext2",
    "Recommendation": "autoencoder_ml20m",
    "A3C": "a3c_pong",
    "CycleGAN": "cyclegan_monet",
}
_GAVEL_JOB = re.compile(r"([A-Za-z0-9-]+)(?: \(batch size (\d+)\))?")
_ORACLE, _PHYSICAL = "oracle_throughputs_single_gpu", "physical_cluster_throughputs"
_SIMULATION = "simulation_throughputs"

#: {GPU type: {job: {"null" or another job: steps per second}}}
_Throughputs = Mapping[str, Mapping[str, Mapping[str, Any]]]


def _gavel(folder: Path, name: str) -> _Throughputs:
    with gzip.open(published(folder, f"gavel/{name}.json.gz")) as file:
        throughputs: _Throughputs = json.load(file)
    return throughputs


def _gavel_job(text: str) -> tuple[str, float]:
    """Model and samples per GPU of "ResNet-18 (batch size 16)"; jobs of one setting have batch 1."""
    found = _GAVEL_JOB.fullmatch(text)
    assert found is not None, text
    return GAVEL[found[1]], float(found[2] or 1)


def _gavel_alone(folder: Path) -> Mapping[tuple[str, str], float]:
    """{(GPU type, job): steps per second alone on one GPU}."""
    oracle, physical = _gavel(folder, _ORACLE), _gavel(folder, _PHYSICAL)
    rates = {}
    for gpu_type, jobs in oracle.items():
        for job, partners in jobs.items():
            rate = partners.get("null", 0.0)
            if job.startswith("Recommendation"):  # the first file counts its steps in another unit
                rate = physical[gpu_type][f"('{job}', 1)"]["null"]
            if rate > 0:
                rates[gpu_type, job] = float(rate)
    return rates


def gavel_one_gpu(folder: Path) -> pd.DataFrame:
    """Steps alone on one K80, P100 and V100 of a host with CPU to spare, 26 job types."""
    rows = []
    for (gpu_type, job), rate in _gavel_alone(folder).items():
        model, batch = _gavel_job(job)
        rows.append({"model": model, "gpu_type": gpu_type, "batch": batch, "seconds": 1.0 / rate})
    return _table(rows, "gavel one GPU")


def gavel_pairs(folder: Path) -> pd.DataFrame:
    """Every pair of 26 job types that ran on one GPU: the seconds of each beside the other."""
    oracle, rates = _gavel(folder, _ORACLE), _gavel_alone(folder)
    rows = []
    for (gpu_type, job), rate in rates.items():
        model, batch = _gavel_job(job)
        alone = oracle[gpu_type][job]["null"]
        for other, pair in oracle[gpu_type][job].items():
            if other == "null" or pair[0] <= 0 or pair[1] <= 0:
                continue  # they did not run together
            neighbour, neighbour_batch = _gavel_job(other)
            row = {"model": model, "gpu_type": gpu_type, "batch": batch, "neighbour": neighbour}
            rows.append(row | {"neighbour_batch": neighbour_batch, "seconds": alone / pair[0] / rate})
    return _table(rows, "gavel pairs")


def gavel_scaling(folder: Path, gpu_types: Sequence[str]) -> pd.DataFrame:
    """2, 4 and 8 GPUs, in one server or each in its own (assumed of rows that are not consolidated).

    Throughputs of the file are sums over workers.
    """
    simulation = _gavel(folder, _SIMULATION)
    rows = []
    for gpu_type in gpu_types:
        for suffix in ("", "_unconsolidated"):
            for job, partners in simulation[gpu_type + suffix].items():
                name, gpus = re.fullmatch(r"\('(.*)', (\d+)\)", job).groups()  # type: ignore[union-attr]
                rate = partners.get("null", 0.0)
                if int(gpus) > 1 and rate > 0:
                    model, batch = _gavel_job(name)
                    row = {"model": model, "gpu_type": gpu_type, "batch": batch}
                    row |= {"network": f"gavel_{gpu_type}", "interconnect": f"gavel_{gpu_type}"}
                    placement = "+".join(["1"] * int(gpus)) if suffix else gpus
                    rows.append(row | {"placement": placement, "seconds": int(gpus) / rate})
    return _table(rows, "gavel scaling")


#: Pollux' name: our profile
POLLUX = {
    "cifar10": "resnet18_cifar10",
    "imagenet": "resnet50_imagenet",
    "bert": "bert_base_squad",
    "deepspeech2": "deepspeech2_arctic",
    "yolov3": "yolov3_voc",
    "ncf": "neumf_ml1m",
}


def _pollux(folder: Path, kind: str, place: Callable[[pd.DataFrame], "pd.Series[Any]"]) -> pd.DataFrame:
    tables = []
    for name, model in POLLUX.items():
        file = published(folder, f"pollux/profiles/{name}/{kind}.csv")
        rows = pd.read_csv(file, dtype={"placement": str})
        tables.append(
            pd.DataFrame(
                {
                    "model": model,
                    "gpu_type": "t4",
                    "placement": place(rows),
                    "batch": rows.local_bsz,
                    "seconds": rows.step_time,
                }
            )
        )
    return tidy(pd.concat(tables, ignore_index=True), f"pollux {kind}")


def pollux_placements(folder: Path) -> pd.DataFrame:
    """1 to 16 T4 on up to 4 nodes of 4, at several batches; "1123" of the files is 1+1+2+3 here."""
    return _pollux(folder, "placements", lambda rows: rows.placement.map("+".join))


def even_placement(nodes: int, gpus: int) -> str:
    """GPUs on each node, spread as evenly as they go: 3, 8 gives "3+3+2"."""
    share, more = divmod(gpus, nodes)
    return "+".join([str(share + 1)] * more + [str(share)] * (nodes - more))


def pollux_scalability(folder: Path) -> pd.DataFrame:
    """6 to 64 T4 on 6 to 16 nodes; assumed: spread as evenly as they go."""

    def place(rows: pd.DataFrame) -> "pd.Series[Any]":
        places = [
            even_placement(int(n), int(g)) for n, g in zip(rows.num_nodes, rows.num_replicas, strict=True)
        ]
        return pd.Series(places, index=rows.index)

    return _pollux(folder, "scalability", place)


#: HKBU's name: our profile, which has the batch of these runs
HKBU = {"ResNet-50": "resnet50_batch64", "BERT-Base": "bert_base_batch64", "BERT-Large": "bert_large_batch8"}


def hkbu(folder: Path, networks: Mapping[str, str]) -> pd.DataFrame:
    """All-reduce after the backward pass on 1 to 32 GPUs, 4 to a server; the GPU type is not stated.

    Args:
        folder: of the published files.
        networks: {network in the file: name of conf/network}.
    """
    table = pd.read_csv(published(folder, "hkbu_ddl/scaling_3_networks.csv"))
    rows = []
    for row in _records(table[table.method == "BSP-A2A"]):
        gpus, batch = int(row["gpus"]), row["batch_per_gpu"]
        rows.append(
            {
                "model": HKBU[row["model"]],
                "gpu_type": "v100",
                "placement": "+".join(["4"] * (gpus // 4)) or "1",
                "batch": batch,
                "seconds": batch * gpus / row["samples_per_s"],
                "network": networks[row["network"]],
                "note": row["network"],
            }
        )
    return _table(rows, "hkbu")


def aceso(folder: Path) -> pd.DataFrame:
    """NCCL all-reduces of 2, 4 and 8 V100 of a server; the median of the sweeps for each size."""
    table = pd.read_csv(published(folder, "aceso/collectives_v100_intranode.csv"))
    table = table[(table.collective == "all_reduce") & (table.size_MiB > 0)]
    median = table.groupby(["gpus", "size_MiB"])["time_ms"].median().reset_index()
    columns = {
        "model": "",
        "gpu_type": "v100",
        "placement": median.gpus.astype(str),
        "batch": float("nan"),
        "seconds": median.time_ms / 1e3,
        "transfer_bytes": median.size_MiB * 2.0**20,
    }
    return tidy(pd.DataFrame(columns), "aceso")


#: Synergy's name: our profile; its other models are flat at 1 in the source, which looks like a placeholder
SYNERGY = {
    "alexnet": "alexnet_imagenet",
    "deepspeech": "deepspeech_amp",
    "m5": "m5_amp",
    "mobilenet": "mobilenet_v2_imagenet",
    "res18": "resnet18_imagenet_amp",
    "res50": "resnet50_imagenet_amp",
    "shufflenet": "shufflenet_v2_imagenet",
}


def synergy(folder: Path, storage_bytes_per_second: float) -> pd.DataFrame:
    """One V100 by CPU cores and main memory; relative throughputs times the seconds at 3 cores.

    Left out: the smallest memory, 0.1 for every model with a curve, which looks like a placeholder.

    Args:
        folder: of the published files.
        storage_bytes_per_second: what one worker of that server had, which the file does not say.
    """
    meta = pd.read_csv(published(folder, "synergy/model_meta.csv"))
    meta = meta[(meta.server_config == "models") & (meta.gpus == 1)].set_index("model")
    table = pd.read_csv(published(folder, "synergy/cpu_mem_throughput.csv"))
    table = table[(table.server_config == "models") & (table.gpus == 1) & table.model.isin(list(SYNERGY))]
    table = table[table.mem_gb > table.mem_gb.min()].reset_index(drop=True)
    columns = {
        "model": table.model.map(SYNERGY),
        "gpu_type": "v100",
        "placement": "1",
        "batch": table.model.map(meta.batch),
        "seconds": table.model.map(meta.iter_time_base_s) / table.rel_tput,
        "cores": table.cpus,
        "ram_bytes": table.mem_gb * 1e9,
        "storage_bytes_per_second": storage_bytes_per_second,
    }
    return tidy(pd.DataFrame(columns), "synergy")


#: Lambda's column: our profile, and what the file counts of one sample (tokens, frames, audio samples)
LAMBDA: Mapping[str, tuple[str, float]] = {
    "ssd": ("ssd300_coco", 1),
    "bert_base_squad": ("bert_base_squad", 1),
    "bert_large_squad": ("bert_large_squad", 1),
    "gnmt": ("gnmt", 47.85),  # source and target, assumed as in the log of NVIDIA's TensorFlow GNMT
    "ncf": ("ncf_ml20m", 1),
    "resnet50": ("resnet50_imagenet", 1),
    "tacotron2": ("tacotron2_ljspeech", 566),  # assumed: the data set's mean, 6.57 s at 86 frames/s
    "transformerxlbase": ("transformerxl_base_wt103", 192),
    "transformerxllarge": ("transformerxl_large_wt103", 256),
    "waveglow": ("waveglow_ljspeech", 8000),
}
#: what its GPU names hold: our type
_LAMBDA_GPUS = {
    "V100": "v100",
    "A100": "a100",
    "Quadro RTX 8000": "rtx_6000",  # the same chip with twice the memory
    "RTX 3090": "rtx_3090",
    "A10 ": "a10",
    "RTX A6000": "rtx_a6000",
    "RTX 4090": "rtx_4090",
    "RTX 6000 Ada": "rtx_6000_ada",
    "H100 80GB PCIe": "h100_pcie",
    "H100 80GB SXM": "h100_sxm",
}


def lambda_throughput(
    folder: Path, precision: str, suffix: str, interconnects: Mapping[str, str]
) -> pd.DataFrame:
    """One server of 1 to 8 GPUs, ten models.

    Left out: GPUs that are more than twice as fast as any one alone (NCF on 4 and 8 H100: up to 47 times).

    Args:
        folder: of the published files.
        precision: "fp32" or "fp16".
        suffix: of the profiles' names: a precision of its own is a model of its own.
        interconnects: {part of a GPU's name in the file: name of conf/interconnect}, first match.
    """
    rates = pd.read_csv(published(folder, f"lambda/pytorch-train-throughput-{precision}.csv"))
    batches = pd.read_csv(published(folder, f"lambda/pytorch-train-bs-{precision}.csv"))
    fastest, rows = rates[rates.num_gpu == 1].max(), []
    for rate, batch in zip(_records(rates), _records(batches), strict=True):
        name, gpus = str(rate["name_gpu"]), int(rate["num_gpu"])
        gpu_type = next(kind for part, kind in _LAMBDA_GPUS.items() if part in f"{name} ")
        link = next((leaf for part, leaf in interconnects.items() if part in name), "")
        for column, (model, units) in LAMBDA.items():
            if 0 < rate[column] < 2 * gpus * fastest[column]:
                row = {"model": model + suffix, "gpu_type": gpu_type, "placement": str(gpus), "note": name}
                seconds = batch[column] * units / rate[column]
                numbers = {"batch": batch[column] / gpus, "seconds": seconds}
                rows.append({**row, **numbers, "interconnect": link if gpus > 1 else ""})
    return _table(rows, f"lambda {precision}")


def aiturbo_steps(folder: Path) -> pd.DataFrame:
    """Seven calibration runs of 13 models with parameter servers, tabulated in this project."""
    rows = []
    for name, (batch, seconds) in CALIBRATION.items():
        for (workers, servers, gpus), measured in zip(POINTS, seconds, strict=True):
            if workers == gpus:  # the others hold GPUs that no worker uses
                row = {"model": f"aiturbo_{name}", "gpu_type": "v100", "placement": f"{gpus:.0f}"}
                numbers = {"batch": batch / workers, "parameter_servers": servers, "seconds": measured}
                rows.append({**row, **numbers})
    return _table(rows, "aiturbo steps")


def aiturbo_restarts(folder: Path) -> pd.DataFrame:
    """Restarts of 13 models on 1, 2 and 3 GPUs, tabulated in this project."""
    rows = []
    for name, seconds in RESTARTS.items():
        for gpus, measured in enumerate(seconds, start=1):
            row = {"model": f"aiturbo_{name}", "gpu_type": "v100", "placement": str(gpus)}
            numbers = {"batch": CALIBRATION[name][0] / gpus, "seconds": float("nan")}
            rows.append({**row, **numbers, "restart_seconds": float(measured)})
    return _table(rows, "aiturbo restarts")
