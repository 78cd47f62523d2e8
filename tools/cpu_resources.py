"""`python -m tools.cpu_resources`: the page of models' speed by GPUs, cores and other CPU-side resources."""

import functools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ringyard import Allocation, Cluster, JobTable, Simulator
from ringyard.mdp.env_config import EnvConfig
from ringyard.mdp.experiments import experiment
from ringyard.profiles import ModelProfile, catalogue, model_id
from ringyard_agents.command_line import Arguments, exit_code
from tools.validation_page import markdown_table

#: (servers, GPUs on each), which CODA writes as 1N1G, 1N4G, 2N4G
_PLACES = ((1, 1), (1, 4), (2, 4))
_CORES = (1, 2, 3, 6, 12, 24)
_PLENTY = 24  #: cores of a worker that are enough for every model
_RAM = 62_500_000_000  #: bytes of a worker: the fair share of Synergy's server
_LITTLE_RAM = 20_000_000_000
_LOADS = (0.5, 1.0, 1.5)
_FIGURES = {
    "samples_per_core_second": "cores",
    "bandwidth_per_core": "memory bandwidth",
    "dataset_bytes": "RAM as a cache, storage",
}
_INTRODUCTION = """# Models and their CPU-side resources

Written by `python -m tools.cpu_resources`. How fast the simulator trains a model in `experiment=coda`, by
GPUs, cores, and what else jobs share on a server. CODA's abstract characterises its models in this way. Its
tables are not public. These are Synergy's models and the simulator's equations ([physics](physics.md)), and
no figure is CODA's. How far the equations are from Synergy's measurements is in [validation](validation.md).
"""
_CORES_TEXT = """## GPUs and cores

Speed on so many cores a GPU, relative to {plenty} cores a GPU on the same GPUs, without neighbours. `1N4G` is
one server with four GPUs of the job, `2N4G` two. The last column is the smallest number in the table that
gives 95 %. A job over several servers also waits for its network, so that cores change its speed less.
"""
_OTHERS_TEXT = """## Other CPU-side resources

Speed of `1N4G` relative to the same job without neighbours and with {ram:g} GB of RAM a GPU:

* *memory*, on {few} cores a GPU: CPU-only jobs beside it request so much of the server's memory bandwidth
  that all requests together are this share of it.
* *little RAM*, on {plenty} cores a GPU: {little:g} GB a GPU, so that samples come from storage.
* *storage of two*, on {plenty} cores a GPU: a second such job on the server reads from storage too, both with
  {little:g} GB a GPU.
"""
_MISSING = """Not in the simulator, because no public figure by model was found: contention for the last-level
cache, and for PCIe between CPU and GPU. No public figure says how many cores these models need: {others}.

## Where the figures come from
"""


@functools.cache
def _setting() -> EnvConfig:
    return experiment("coda")


def _speed(
    name: str, place: tuple[int, int], cores: int, ram: int = _RAM, load: float = 0.0, jobs: int = 1
) -> float:
    """Return iterations per second of the first of `jobs` equal jobs.

    Args:
        name: of the model.
        place: servers, and GPUs on each.
        cores: of each worker.
        ram: bytes of each worker.
        load: requested share of the first server's memory bandwidth, at least the job's. 0: not counted.
        jobs: 1, or 2 on other GPUs of the same servers.
    """
    config = _setting()
    servers, gpus = place
    given = config.cluster
    bandwidth = given.memory_bandwidth_bytes_per_second[0]
    cluster = Cluster.homogeneous(
        servers,
        2 * gpus,
        given.gpu_types[0],
        cores_per_server=2 * gpus * _PLENTY,
        memory_bandwidth_bytes_per_second=bandwidth if load else 1e15,
        ram_bytes_per_server=given.ram_bytes_per_server[0],
        storage_bytes_per_second=given.storage_bytes_per_second[0],
    )
    table = JobTable.from_columns(np.zeros(jobs), [servers * gpus] * jobs, [1e6] * jobs)
    table = table.with_models(np.full(jobs, model_id(name)))
    table = replace(table, cores_per_worker=np.full(jobs, cores), ram_per_worker=np.full(jobs, ram))
    if load:
        rest = load * bandwidth - table.memory_bandwidth[0] * gpus * cores
        table = table.merged(JobTable.cpu_only([0.0], [1], [1e6], [rest]))
    sim = Simulator(cluster, table, config.performance)
    sim.advance()
    per_server = cluster.first_gpu_of_server
    for job in range(jobs):
        mine = [int(first) + job * gpus + i for first in per_server for i in range(gpus)]
        sim.apply([Allocation(job, tuple(mine))])
    if load:
        sim.apply([Allocation(jobs, server=0)])
    return 1.0 / float(sim.state.jobs["iteration_seconds"][0, 0])


def _cores_rows(models: Sequence[ModelProfile]) -> list[list[str]]:
    rows = []
    for model in models:
        for place in _PLACES:
            most = _speed(model.name, place, _PLENTY)
            speeds = [_speed(model.name, place, cores) / most for cores in _CORES]
            enough = next(cores for cores, speed in zip(_CORES, speeds, strict=True) if speed >= 0.95)
            label = f"{place[0]}N{place[1]}G"
            rows.append([model.name, label, *(f"{speed:.2f}" for speed in speeds), str(enough)])
    return rows


def _others_rows(models: Sequence[ModelProfile], cores: int) -> list[list[str]]:
    place, rows = (1, 4), []
    for model in models:
        few, plenty = (_speed(model.name, place, count) for count in (cores, _PLENTY))
        found = [_speed(model.name, place, cores, load=load) / few for load in _LOADS]
        found += [_speed(model.name, place, _PLENTY, _LITTLE_RAM, jobs=jobs) / plenty for jobs in (1, 2)]
        rows.append([model.name, *(f"{one:.2f}" for one in found)])
    return rows


def page() -> str:
    """Return the page in Markdown."""
    known = {one.name: str(one.sources.get("samples_per_core_second", "")) for one in catalogue()}
    given = [one for one in catalogue() if one.bandwidth_per_core is not None]
    models = [one for one in given if known[one.name].startswith("Synergy: ")]
    few = _setting().cluster.cores_per_server[0] // _setting().cluster.gpus_per_server[0]
    numbers = {"few": few, "plenty": _PLENTY, "ram": _RAM / 1e9, "little": _LITTLE_RAM / 1e9}
    parts = [_INTRODUCTION, _CORES_TEXT.format(**numbers)]
    header = ["model", "GPUs", *(f"{count} cores" for count in _CORES), "95 % at"]
    parts += markdown_table(header, _cores_rows(models))
    parts.append(_OTHERS_TEXT.format(**numbers))
    header = ["model", *(f"memory {load:.0%}" for load in _LOADS), "little RAM", "storage of two"]
    parts += markdown_table(header, _others_rows(models, few))
    parts.append(_MISSING.format(others=", ".join(one.name for one in given if one not in models)))
    rows = [[one.name, *(str(one.sources.get(name, "")) for name in _FIGURES)] for one in models]
    parts += markdown_table(["model", *_FIGURES.values()], rows)
    return "\n".join(parts)


def _run(words: Sequence[str]) -> int:
    parser = Arguments(
        prog="python -m tools.cpu_resources", description="Write the page of CPU-side resources."
    )
    parser.add_argument("--out", default="docs/cpu_resources.md", help="the page (%(default)s)")
    file = Path(parser.parse_args(words).out).expanduser()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page())
    print(f"page: {file}")
    return 0


def main(words: Sequence[str]) -> int:
    """Run the command with the `words` of its line, and return the exit code: 2 for bad input."""
    return exit_code("tools.cpu_resources", lambda: _run(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
