"""Which schedulers a comparison runs, and on which environments."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import hydra
import numpy as np
import yaml
from omegaconf import DictConfig, OmegaConf

from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError, ObservabilityError, SchedulerError
from ringyard.observability import Observability
from ringyard.sim.metrics import Window
from ringyard.state.random_numbers import derive_seed
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, SchedulerEntry, scheduler_names, to_plain
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.evaluation.evaluate import build_object, make_simulator
from ringyard_agents.evaluation.tuned_configs import tuned_name_for
from ringyard_agents.shipped_agents import agents_evaluated_in

_MAX_LABEL_LENGTH = 60  # characters

#: workloads of comparisons are drawn from seeds no training uses
COMPARISON_SEED_OFFSET = 2_000_000


def benchmark_experiments() -> list[str]:
    """Names of the experiments with `benchmark: true`."""
    files = config_files("experiment")
    return [name for name, file in files.items() if yaml.safe_load(file.read_text()).get("benchmark", False)]


def read_entries(schedulers: Any) -> dict[str, SchedulerEntry]:
    """{label: entry} of `schedulers`, where "all" stands for every leaf of conf/scheduler.

    Raises:
        ConfigurationError: no entries, two of one label, or a label that cannot name a folder or says what
            the entry is not.
    """
    given = _as_list(schedulers)
    names = scheduler_names()
    entries = [SchedulerEntry.read(name) for one in given for name in (names if one == "all" else [one])]
    for entry in entries:
        renamed = entry.label != entry.scheduler
        if renamed and (entry.label in ("", "all") or entry.label.partition("@")[0] in names):
            raise ConfigurationError(
                f"schedulers has {entry.scheduler!r} under the name {entry.label!r}; expected a name of its"
                " own, such as mine"
            )
        # a folder for its curves has that name
        fits = len(entry.label) <= _MAX_LABEL_LENGTH and entry.label not in (".", "..")
        if not fits or "/" in entry.label or not entry.label.isprintable():
            raise ConfigurationError(
                f"schedulers has {entry.label!r}; expected a name of at most {_MAX_LABEL_LENGTH} printable"
                " characters without /, such as mine"
            )
    labels = {entry.label: entry for entry in entries}
    if not labels or len(labels) != len(entries):
        raise ConfigurationError(f"schedulers is {given}; expected one or more entries of different names")
    return labels


def _as_list(schedulers: Any) -> list[Any]:
    found = to_plain(schedulers) if OmegaConf.is_config(schedulers) else schedulers
    return list(found) if isinstance(found, list | tuple) else [found]


def pretrained_agents_for(world: Mapping[str, Any]) -> tuple[dict[str, SchedulerEntry], dict[str, str]]:
    """({pretrained agent judged in this environment: its entry}, {other: why it cannot run here})."""
    name = tuned_name_for(world)
    agents = [] if name is None else agents_evaluated_in(name)
    if importlib.util.find_spec("torch") is None:
        return {}, dict.fromkeys(agents, 'an agent, which needs pip install "ringyard[agents]"')
    return {agent: SchedulerEntry.read(agent) for agent in agents}, {}


@dataclass(frozen=True)
class ComparisonRequest:
    """What `ringyard compare` is asked for: its settings (see conf/compare.yaml) and its environment."""

    schedulers: Sequence[Any]
    world: Mapping[str, Any]
    experiments: Sequence[str] | None
    tuning: str | None
    reference: str | None
    seed: int
    seeds: int
    measured_jobs: Window
    trust: Trust

    @classmethod
    def read(cls, config: DictConfig) -> Self:
        """Unpack the config of `ringyard compare`."""
        values = to_plain(config)
        own = {field.name: values[field.name] for field in fields(cls) if field.name != "world"}
        own["schedulers"], own["measured_jobs"] = _as_list(config.schedulers), tuple(config.measured_jobs)
        return cls(world={part: values[part] for part in ENVIRONMENT_GROUPS}, **own)

    @property
    def wants_all(self) -> bool:
        """Whether `schedulers` says "all", alone or beside others."""
        return "all" in self.schedulers

    def best_name(self, world: Mapping[str, Any]) -> str | None:
        """A file or a name in conf/tuned; None: schedulers run with their usual rules and options.

        By default, for all schedulers and on experiments, it is what ships for this configuration.
        """
        if self.tuning is None and (self.wants_all or self.experiments):
            return tuned_name_for(world)
        return self.tuning

    def worlds(self) -> dict[str, Mapping[str, Any]]:
        """{name: configs of an environment}: the configured one, called "", or those of `experiments`.

        Without `experiments`, they are all of them if all schedulers run and no part was chosen.

        Raises:
            ConfigurationError: an unknown experiment, or a part that experiments would not use was chosen.
        """
        usual = _environment_of(hydra.compose("compare"))
        chosen = [part for part in ENVIRONMENT_GROUPS if self.world[part] != usual[part]]
        known = benchmark_experiments()
        usually = known if self.wants_all and not chosen else []
        names = usually if self.experiments is None else self.experiments
        if not names:
            return {"": self.world}
        for name in names:
            if name not in known:
                raise ConfigurationError(f"experiments has {name!r}; expected some of {', '.join(known)}")
        if chosen:
            raise ConfigurationError(
                f"{chosen[0]} is not the usual one, but experiments bring their own; leave it out, or set"
                " experiments=[] for a table of what you have chosen"
            )
        return {name: _environment_of(hydra.compose("compare", [f"experiment={name}"])) for name in names}


def _environment_of(config: DictConfig) -> dict[str, Any]:
    return {part: to_plain(config[part]) for part in ENVIRONMENT_GROUPS}


def workload_environment(world: Mapping[str, Any], seed: int, workload: int) -> Mapping[str, Any]:
    """Configs of one workload's environment: a cluster that is drawn at random is drawn anew for each.

    Args:
        world: configs.
        seed: of the comparison.
        workload: its number.
    """
    cluster = world["cluster"]
    if "seed" not in cluster:
        return world
    return {**world, "cluster": {**cluster, "seed": derive_seed(cluster["seed"], seed, workload)}}


def supported_schedulers(
    schedulers: Mapping[str, Mapping[str, Any]], world: Mapping[str, Any], seed: int
) -> tuple[list[str], dict[str, str]]:
    """(labels of schedulers that can serve the jobs, {other label: why not}).

    Args:
        schedulers: {label: config}.
        world: configs of one world.
        seed: of the comparison.

    Raises:
        RingyardError: bad input other than a scheduler that refuses the workload.
    """
    sim = make_simulator(world, 0, seed, None)
    fit, refused = [], {}
    for label, config in schedulers.items():
        try:
            scheduler = build_object(config)
            if scheduler.observability & Observability.HISTORY and not len(sim.jobs.past.num_gpus):
                refused[label] = "goes by jobs that have ended before these, and there are none"
                continue
            known = sim.jobs.restricted_to(scheduler.observability)
            scheduler.reset(sim.cluster, known, np.random.default_rng(0))
            fit.append(label)
        except ObservabilityError:
            raise
        except SchedulerError as error:
            refused[label] = str(error).removeprefix(scheduler.name).removeprefix(":").strip()
    return fit, refused
