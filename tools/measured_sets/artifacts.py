"""Readers of papers' public artifacts, in a folder with clones of their repositories."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ringyard.errors import ConfigurationError
from ringyard.profiles import catalogue
from ringyard_agents.measurements import tidy
from tools.measured_sets.readers import MissingDataError, even_placement, published

#: ElasticFlow's name: our profile; the sizes of its other models are not stated there
ELASTICFLOW = {
    "inception3": "inception_v3_imagenet",
    "resnet50": "resnet50_imagenet",
    "vgg16": "vgg16_imagenet",
}
_PER_SERVER = 8  # GPUs of a server of ElasticFlow and of Muri


def _csv(folder: Path, name: str, *columns: str, **how: Any) -> pd.DataFrame:
    """A file of the folder that has at least these columns.

    Raises:
        MissingDataError: it is not there.
        ConfigurationError: a column is not.
    """
    table = pd.read_csv(published(folder, name), **how)
    lacking = [column for column in columns if column not in table.columns]
    if lacking:
        raise ConfigurationError(
            f"{folder / name} has no column {', '.join(lacking)}; expected {', '.join(columns)}, as published"
        )
    return table


def _packed(gpus: int) -> str:
    """Full servers, the rest on one more."""
    full, rest = divmod(gpus, _PER_SERVER)
    return "+".join([str(_PER_SERVER)] * full + [str(rest)] * (rest > 0))


def elasticflow(folder: Path) -> pd.DataFrame:
    """Seven models on 1 to 64 A100 at fixed global batches; iterations per second by GPUs, 0 where not run.

    Assumed: servers are filled, as the scheduler of that repository does.
    """
    place = folder / "ElasticFlow/ElasticFlow/scheduler/throughputs_A100"
    files = sorted(place.glob("*.csv"))
    if not files:
        raise MissingDataError(f"{place.relative_to(folder)}/*.csv is not in {folder}")
    tables = []
    for file in files:
        wide = _csv(folder, str(file.relative_to(folder)), "global_batch_size")
        long = wide.melt("global_batch_size", var_name="gpus", value_name="rate").dropna()
        long = long[long.rate > 0]
        gpus = long.gpus.astype(int)
        columns = {
            "model": ELASTICFLOW.get(file.stem, f"{file.stem}_elasticflow"),
            "gpu_type": "a100",
            "placement": gpus.map(_packed),
            "batch": long.global_batch_size / gpus,
            "seconds": 1.0 / long.rate,
        }
        tables.append(pd.DataFrame(columns))
    return tidy(pd.concat(tables, ignore_index=True), "elasticflow")


#: Muri's name: our profile; the other models have none
MURI = {"vgg16": "vgg16_imagenet", "shufflenet_v2_x1_0": "shufflenet_v2_imagenet"}
_MURI_FILES = (
    "cluster_exp/trace-data/cluster_trace.csv",
    *(f"simulator/trace-data/job_type_{number}.csv" for number in range(1, 5)),
    *(f"simulator/trace-data/trace{number}.csv" for number in range(1, 5)),
)


def muri(folder: Path) -> pd.DataFrame:
    """Eight models on 1 to 32 V100: every job of the traces repeats its measured milliseconds per iteration.

    Assumed: servers are filled; the batch is each GPU's.
    """
    wanted = ["model_name", "batch_size", "num_gpu", "iteration_time"]
    tables = [_csv(folder, f"Muri/{name}", *wanted)[wanted] for name in _MURI_FILES]
    rows = pd.concat(tables).drop_duplicates().sort_values(wanted)
    columns = {
        "model": [MURI.get(name, f"{name}_muri") for name in rows.model_name],
        "gpu_type": "v100",
        "placement": rows.num_gpu.map(_packed),
        "batch": rows.batch_size,
        "seconds": rows.iteration_time / 1e3,
    }
    return tidy(pd.DataFrame(columns).reset_index(drop=True), "muri")


#: Lucid's model and data set: our profile; BERT is base, uncased
LUCID = {
    ("BERT", "SQuAD"): "bert_base_squad",
    ("LSTM", "Wikitext2"): "lstm_wikitext2",
    ("NeuMF", "MovieLens"): "neumf_ml1m",
    ("ResNet18", "CIFAR-10"): "resnet18_cifar10",
    ("ResNet50", "ImageNet"): "resnet50_imagenet",
    ("Transformer", "Multi30k"): "transformer_multi30k",
}
_LUCID_GAMES = ("PPO", "TD3")  # their speeds count no samples


def _lucid_job(row: Mapping[str, Any], side: str = "") -> tuple[str, str, int, int]:
    return tuple(row[f"{name}{side}"] for name in ("model", "dataset", "batchsize", "amp"))


def _lucid_model(job: tuple[str, str, int, int]) -> str:
    name = LUCID.get(job[:2], "_".join(job[:2]).lower().replace("-", ""))
    return f"{name}_amp" if job[3] else name


def lucid_one_gpu(folder: Path) -> pd.DataFrame:
    """Twelve networks alone on one RTX 3090, three batches, with and without mixed precision."""
    wanted = ("model", "dataset", "batchsize", "amp", "speed")
    table = _csv(folder, "Lucid/simulation/analyzer/single_data.csv", *wanted)
    jobs: Any = table[~table.model.isin(_LUCID_GAMES)].to_dict("records")
    columns = {
        "model": [_lucid_model(_lucid_job(job)) for job in jobs],
        "gpu_type": "rtx_3090",
        "placement": "1",
        "batch": [job["batchsize"] for job in jobs],
        "seconds": [job["batchsize"] / job["speed"] for job in jobs],
    }
    return tidy(pd.DataFrame(columns), "lucid one GPU")


def lucid_pairs(folder: Path) -> pd.DataFrame:
    """Pairs of jobs on one RTX 3090: relative speeds, applied to the seconds alone that ship.

    So the error is that of sharing; that of the seconds alone is `lucid_one_gpu`'s.
    """
    sides = [f"{name}{side}" for side in "12" for name in ("model", "dataset", "batchsize", "amp", "speed")]
    table = _csv(folder, "Lucid/simulation/data/colocate_info.csv", *sides)
    figures = {model.name: model.gpus.get("rtx_3090") for model in catalogue()}
    rows = []
    pairs: Any = table.to_dict("records")
    for pair in pairs:
        for side, other in (("1", "2"), ("2", "1")):
            job, neighbour = _lucid_job(pair, side), _lucid_job(pair, other)
            row = {"model": _lucid_model(job), "gpu_type": "rtx_3090", "placement": "1", "batch": job[2]}
            row |= {"neighbour": _lucid_model(neighbour), "neighbour_batch": neighbour[2]}
            ships = figures.get(_lucid_model(job))
            alone = ships.fixed_seconds + job[2] * ships.sample_seconds if ships else 1.0
            rows.append(row | {"seconds": alone / pair[f"speed{side}"]})
    return tidy(pd.DataFrame(rows), "lucid pairs")


#: Sia's folder: our profile
SIA = {
    "bert": "bert_base_squad",
    "cifar10": "resnet18_cifar10",
    "deepspeech2": "deepspeech2_arctic",
    "imagenet": "resnet50_imagenet",
    "ncf": "neumf_ml1m",
    "yolov3": "yolov3_voc",
}
#: Sia's cluster: GPU type, network, interconnect
SIA_CLUSTERS = {
    "azure": ("v100", "infiniband_100g", "nvlink_v100"),
    "dgx": ("a100", "infiniband_8x200g", "nvswitch_a100"),
    "dgx-ext": ("a100", "infiniband_8x200g", "nvswitch_a100"),
    "quad": ("rtx_6000", "", "pcie_g4dn"),
    "rtx": ("rtx_2080ti", "aws_g4dn", "pcie_g4dn"),
}


def sia(folder: Path, several: bool) -> pd.DataFrame:
    """Step times of six models on four GPU types; "18" of the files is 1+8 here.

    ResNet-50 ran in mixed precision everywhere: on V100 it is `resnet50_imagenet_amp`, elsewhere
    `resnet50_imagenet`, which is mixed precision there.

    Args:
        folder: with the clone `artifacts`.
        several: rows of two GPUs and more, otherwise those of one.
    """
    tables = []
    for name, model in SIA.items():
        for cluster, (gpu_type, network, interconnect) in SIA_CLUSTERS.items():
            file = f"artifacts/sia-simulator/traces/{name}/placements-{cluster}.csv"
            rows = _csv(folder, file, "placement", "local_bsz", "step_time", dtype={"placement": str})
            rows = rows[(rows.placement != "1") == several]
            precision = "_amp" if (name, gpu_type) == ("imagenet", "v100") else ""
            columns = {
                "model": model + precision,
                "gpu_type": gpu_type,
                "placement": rows.placement.map("+".join),
                "batch": rows.local_bsz,
                "seconds": rows.step_time,
                "network": rows.placement.str.len().gt(1).map({True: network, False: ""}),
                "interconnect": interconnect if several else "",
                "note": cluster,
            }
            tables.append(pd.DataFrame(columns))
    rows = pd.concat(tables, ignore_index=True)
    rows = rows.drop_duplicates([column for column in rows.columns if column != "note"])  # NeuMF, dgx twice
    return tidy(rows.reset_index(drop=True), "sia")


def sia_rings(folder: Path, cluster: str) -> pd.DataFrame:
    """Step times of a cluster's rings on up to three servers, with the `sync_seconds` that the files report.

    Rows of scalability-*.csv say servers and GPUs; assumed: spread as evenly as they go.

    Args:
        folder: with the clone `artifacts`.
        cluster: one of `SIA_CLUSTERS`.
    """
    tables = []
    for name, model in SIA.items():
        for kind in ("placements", "scalability"):
            file = f"artifacts/sia-simulator/traces/{name}/{kind}-{cluster}.csv"
            rows = _csv(folder, file, "local_bsz", "step_time", "sync_time", dtype={"placement": str})
            if kind == "placements":
                placement = rows.placement.map("+".join)
            else:
                placement = rows.apply(
                    lambda row: even_placement(int(row.num_nodes), int(row.num_replicas)), axis=1
                )
            columns = {
                "model": model,
                "gpu_type": SIA_CLUSTERS[cluster][0],
                "placement": placement,
                "batch": rows.local_bsz,
                "seconds": rows.step_time,
                "network": "between",
                "interconnect": "inside",
                "sync_seconds": rows.sync_time,
                "note": cluster,
            }
            tables.append(pd.DataFrame(columns)[placement != "1"])
    table = pd.concat(tables, ignore_index=True)
    return tidy(table.drop(columns="sync_seconds"), f"sia {cluster}").assign(sync_seconds=table.sync_seconds)
