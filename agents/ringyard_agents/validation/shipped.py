"""`ringyard validate`: predictions of measured rows by what ships, in a simulator, and their errors."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pandas as pd
from hydra.utils import instantiate
from numpy.typing import NDArray
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from ringyard.checks import shown, suggest
from ringyard.cluster import Cluster
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.gpu_types import GPU_MEMORY_BYTES, REFERENCE_GPU
from ringyard.jobs import JobTable
from ringyard.mdp.user_config import hydra_initialized
from ringyard.performance import PerformanceModel
from ringyard.profiles import ModelProfile, catalogue
from ringyard.restart import RestartCost
from ringyard.sim.allocation import Allocation
from ringyard.sim.simulator import Simulator
from ringyard.state.records import JobKind
from ringyard_agents.measurements import (
    REQUIRED,
    MeasuredRows,
    filled_columns,
    gpus_per_server,
    read_measured_sets,
)

_ROWS = 2000  # most rows per simulator
_INSTANT = 1e-12  # compute seconds of a row that measures a transfer only


@functools.cache
def _part(group: str, *overrides: str) -> Any:
    """Instantiate the performance model or restart cost of a config, RINGYARD_CONF included."""
    with hydra_initialized():
        return instantiate(hydra.compose("simulate", list(overrides))[group], _convert_="all")


def _lack(
    known: ModelProfile | None, model: str, gpu_type: str, serves: bool = False, shares: bool = False
) -> str:
    """Return why a job cannot be simulated with the profile `known` of its model; "" if it can."""
    if gpu_type not in GPU_MEMORY_BYTES:
        return f"GPU type {gpu_type} does not ship"
    if not model:
        return ""
    if known is None:
        return f"model {model} does not ship"
    if gpu_type not in known.gpus:
        return f"model {model} has no figures for {gpu_type}"
    if gpu_type != REFERENCE_GPU and None in (known.fixed_memory_bytes, known.sample_memory_bytes):
        return f"model {model} has no GPU memory figures"
    if serves and known.step_coefficients is None:
        return f"model {model} has no step_coefficients"
    if shares and not known.gpus[gpu_type].sharing:
        return f"model {model} has no sharing figures for {gpu_type}"
    return ""


def _shares(rows: pd.DataFrame) -> "pd.Series[Any]":
    """Return whether the neighbour shares the job's GPUs [rows]."""
    return (rows.neighbour != "") & (rows.neighbour_placement == "")


def _jobs(rows: pd.DataFrame) -> JobTable:
    """Return each row's job, then each row's neighbour, or the job again if there is none [2 x rows]."""
    beside, apart = rows.neighbour != "", rows.neighbour_placement != ""
    second = rows.assign(
        model=rows.model.mask(beside, rows.neighbour),
        batch=rows.batch.mask(beside, rows.neighbour_batch),
        placement=rows.placement.mask(apart, rows.neighbour_placement),
        parameter_servers=0,
    )
    jobs = pd.concat([rows, second], ignore_index=True)
    gpus = np.array([sum(gpus_per_server(text)) for text in jobs.placement])
    batch = jobs.batch.fillna(1.0).to_numpy()
    position = {model.name: i for i, model in enumerate(catalogue())} | {"": -1}
    ids = jobs.model.map(position).to_numpy().astype(np.int64)
    fixed = np.array([catalogue()[i].fixed_seconds if i >= 0 else _INSTANT for i in ids])
    sample = np.array([catalogue()[i].sample_seconds if i >= 0 else 0.0 for i in ids])
    compute = np.maximum(fixed + sample * batch, _INSTANT)
    count = len(gpus)
    table = JobTable.from_columns(np.zeros(count), gpus, np.full(count, 1e9)).with_models(ids)
    servers = jobs.parameter_servers.fillna(0).to_numpy(dtype=np.int64)
    return replace(
        table,
        compute_seconds=compute,
        fixed_fraction=fixed / compute,
        gradient_bytes=jobs.transfer_bytes.fillna(pd.Series(table.gradient_bytes)).to_numpy(),
        batch_size=batch * gpus,
        min_batch=batch * gpus,
        max_batch=batch * gpus,
        cores_per_worker=jobs.cores.fillna(0).to_numpy(dtype=np.int64),
        ram_per_worker=jobs.ram_bytes.fillna(0).to_numpy(),
        memory_bandwidth=np.zeros(count),
        fixed_memory_bytes=np.zeros(count),  # the job ran, so its memory fits
        sample_memory_bytes=np.zeros(count),
        kind=np.where(servers > 0, JobKind.PARAMETER_SERVER, JobKind.RING).astype(np.int64),
        parameter_servers=servers,
    )


def _cluster(rows: pd.DataFrame) -> Cluster:
    """Return equal servers that can hold any row's job with its neighbour."""
    places = [gpus_per_server(text) for text in rows.placement]
    beside = [gpus_per_server(text) for text in rows.neighbour_placement]
    largest = max(map(max, places)) + max((max(one) for one in beside if one), default=0)
    first: Any = rows.iloc[0]
    cores, ram, storage = rows.cores.max(), rows.ram_bytes.max(), first.storage_bytes_per_second
    return Cluster.homogeneous(
        num_servers=max(map(len, places)),
        gpus_per_server=largest,
        gpu_type=None if first.gpu_type == REFERENCE_GPU else first.gpu_type,
        cores_per_server=None if np.isnan(cores) else int(cores) * 2 * largest,
        ram_bytes_per_server=None if np.isnan(ram) else int(ram) * 2 * largest,
        storage_bytes_per_second=None if np.isnan(storage) else storage,
        jobs_per_gpu=2 if _shares(rows).any() else 1,
    )


def _gpu_ids(counts: Sequence[int], taken: Sequence[int], per_server: int) -> tuple[int, ...]:
    """Return the first free GPUs of each server."""
    firsts = [server * per_server + before for server, before in enumerate(taken)]
    return tuple(first + i for first, count in zip(firsts, counts, strict=True) for i in range(count))


def _simulate(rows: pd.DataFrame, performance: PerformanceModel) -> NDArray[np.float64]:
    """Predict rows in one simulator, one after the other [rows]."""
    cluster = _cluster(rows)
    restart: RestartCost = _part("restart", "restart=per_model")
    sim = Simulator(cluster, _jobs(rows), performance, restart)
    sim.advance()
    predicted = np.empty(len(rows))
    columns = (rows.placement, rows.neighbour, rows.neighbour_placement, rows.seconds.isna())
    for row, (placement, neighbour, apart, restarts) in reversed(list(enumerate(zip(*columns, strict=True)))):
        counts, per_server = gpus_per_server(placement), cluster.gpus_per_server[0]
        own = _gpu_ids(counts, [0] * len(counts), per_server)
        if restarts:
            sim.apply([Allocation(row, own), Allocation(row), Allocation(row, own)])
            predicted[row] = float(sim.view().column("pause_ends_seconds")[row]) - sim.now
        else:
            beside = own if neighbour else ()
            if apart:
                beside = _gpu_ids(gpus_per_server(apart), counts, per_server)
            second = len(rows) + row
            sim.apply([Allocation(second, beside)] if beside else [])
            sim.apply([Allocation(row, own)])
            predicted[row] = float(sim.view().column("iteration_seconds")[row])
            sim.apply([Allocation(second)] if beside else [])
        sim.apply([Allocation(row)])
    return predicted


def predict_rows(
    rows: pd.DataFrame, overrides: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Return (seconds [rows], reason for NaN [rows]) that the shipped models predict of tidy rows.

    The job starts on exactly its placement, on servers of its GPU type that its network joins, beside its
    neighbour. Seconds are of an iteration, or of a restart. `overrides` choose the model.
    """
    models = {model.name: model for model in catalogue()}
    columns = (rows.model, rows.neighbour, rows.gpu_type, rows.parameter_servers.notna(), _shares(rows))
    lacking = [
        _lack(models.get(one), one, kind, served, shares) or _lack(models.get(two), two, kind, False, shares)
        for one, two, kind, served, shares in zip(*columns, strict=True)
    ]
    reasons = np.array(lacking, dtype=str)
    seconds = np.full(len(rows), np.nan)
    known = rows.reset_index(drop=True)[reasons == ""]
    alike = [known.gpu_type, known.network, known.interconnect, known.storage_bytes_per_second]
    alike += [known.cores.notna(), known.ram_bytes.notna(), _shares(known)]
    numbers = known.groupby(alike, sort=False, dropna=False).cumcount()
    for _, group in known.groupby([*alike, numbers // _ROWS], sort=False, dropna=False):
        first: Any = group.iloc[0]
        links = {"network": first.network, "interconnect": first.interconnect}
        chosen = [f"{link}@performance.{link}={name}" for link, name in links.items() if name]
        seconds[group.index.to_numpy()] = _simulate(group, _part("performance", *overrides, *chosen))
    return seconds, reasons


MEAN_AIM, MEDIAN_AIM = 0.15, 0.10  # largest mean and median error aimed at


class PredictedSet(MeasuredRows):
    """A measured set with predictions.

    Its rows also hold `predicted`, `error` (relative, NaN without a prediction) and `reason` (why there is no
    prediction).
    """

    @property
    def predicted(self) -> pd.DataFrame:
        """Rows with a prediction."""
        return self.rows[self.rows.reason == ""]

    @property
    def left_out(self) -> dict[str, int]:
        """{reason: number of rows without a prediction}."""
        return {str(why): int(count) for why, count in self.rows.reason.value_counts().items() if why}


def predict_sets(
    found: Sequence[MeasuredRows], overrides: Sequence[str], links: Mapping[str, str]
) -> list[PredictedSet]:
    """Predict every row of all sets; `overrides` of the model stand before those of a set.

    `links` are {"network" or "interconnect": name for all rows}.
    """
    sets = []
    for measured in found:
        rows = measured.rows.assign(**links)
        for column in ("network", "interconnect"):
            there = config_files(column)
            for name in sorted(set(rows[column]) - {""} - set(there)):
                raise ConfigurationError(
                    f"{measured.name}: {column} {shown(name)} is no file of conf/{column}; expected one of"
                    f" {', '.join(there)}, or --{column} NAME for all rows"
                )
        predicted, reasons = predict_rows(rows, [*overrides, *measured.about.overrides])
        seconds = rows.seconds.fillna(rows.restart_seconds)
        error = (predicted - seconds).abs() / seconds
        rows = rows.assign(predicted=predicted, reason=reasons, error=error)
        sets.append(PredictedSet(measured.name, measured.about, rows))
    return sets


ERROR_HEADER = ("set", "mean", "median", "worst", "points", "left out", "aim", "fitted to it")
_LONGEST_REASON = 100  # characters on the console


def percent(value: float) -> str:
    """Format a share as a percentage, NaN as an empty text."""
    return "" if value != value else f"{value:.1%}"


def percents(errors: "pd.Series[Any]") -> list[str]:
    """Format the mean, median and largest error."""
    return [percent(value) for value in (errors.mean(), errors.median(), errors.max())]


def error_rows(sets: Sequence[PredictedSet]) -> list[list[str]]:
    """Return the cells of the table of all sets."""
    rows = []
    for one in sets:
        errors = one.predicted.error
        aim = f"mean {MEAN_AIM:.0%}, median {MEDIAN_AIM:.0%}"
        if len(errors):
            met = errors.mean() <= MEAN_AIM and errors.median() <= MEDIAN_AIM
            aim += ": met" if met else ": **missed**"
        counts = [str(len(errors)), str(len(one.rows) - len(errors))]
        rows.append([one.about.title, *percents(errors), *counts, aim, one.about.fitted or "nothing"])
    return rows


def print_markdown_rows(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table of Markdown cells."""
    table = Table(*header, title=title, title_justify="left", box=SIMPLE)
    for row in rows:
        table.add_row(*(cell.replace("**", "") for cell in row))
    Console().print(table)


def print_errors(sets: Sequence[PredictedSet]) -> None:
    """Print the errors of each set, then a line for each reason why rows have no prediction."""
    brief = [[*row[:-2], row[-2].partition(": ")[2]] for row in error_rows(sets)]
    print_markdown_rows("Errors of the shipped models", ERROR_HEADER[:-1], brief)
    for one in sets:
        for why, count in one.left_out.items():
            text = why if len(why) <= _LONGEST_REASON else f"{why[:_LONGEST_REASON]}..."
            Console().print(f"{one.name}: {count} left out: {text}", highlight=False, markup=False)


def check_config_names(performance: str, links: Mapping[str, str]) -> None:
    """Raise a ConfigurationError unless conf has the performance model and {folder of conf: name}."""
    for group, name in {"performance": performance, **links}.items():
        if name not in (there := config_files(group)):
            expected = f"{suggest(name, there)} (conf/{group})"
            raise ConfigurationError(f"--{group} is {shown(name)}; expected {expected}")


def write_predictions(sets: Sequence[PredictedSet], file: Path) -> None:
    """Write the rows of sets, if there are any, with set, `predicted`, `error`, and `reason` for none."""
    added = ["predicted", "error", "reason"]
    tables = [one.rows[[*filled_columns(one.rows), *added]].assign(set=one.name) for one in sets]
    if tables:
        table = pd.concat(tables, ignore_index=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        table[["set", *table.columns.drop("set")]].to_csv(file, index=False)


def require_predictions(sets: Sequence[PredictedSet], place: str) -> None:
    """Raise a ConfigurationError, which names the path of the measurements, if no row has a prediction."""
    if all(one.predicted.empty for one in sets):
        raise ConfigurationError(
            f"{place}: no row has a prediction. The lines above say what is missing. `ringyard calibrate`"
            " writes profiles of models that do not ship"
        )


def validate(place: str, out: str, performance: str, network: str | None, interconnect: str | None) -> None:
    """Predict measurements, print their errors, and write predictions.csv."""
    named = {"network": network, "interconnect": interconnect}
    links = {name: leaf for name, leaf in named.items() if leaf is not None}
    check_config_names(performance, links)
    data = Path(place).expanduser()
    found = read_measured_sets(data)
    if not found:
        raise ConfigurationError(
            f"{data} holds no measurements; expected CSVs with the columns {', '.join(REQUIRED)} (for"
            " published files use `python -m tools.validate` in a checkout of the repository)"
        )
    sets = predict_sets(found, [f"performance={performance}"], links)
    print_errors(sets)
    require_predictions(sets, place)
    file = Path(out).expanduser() / "predictions.csv"
    write_predictions(sets, file)
    print(f"rows: {file}")
