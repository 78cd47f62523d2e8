"""Selection of what a comparison runs: schedulers, environments and workload seeds."""

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
from ringyard_agents.config import compose
from ringyard_agents.config.compose import ENVIRONMENT_GROUPS, INTERFACE_GROUPS, SchedulerEntry, to_plain
from ringyard_agents.config.safe_load import Trust
from ringyard_agents.evaluation.evaluate import build_object, make_simulator
from ringyard_agents.evaluation.tuned_configs import tuned_name_for
from ringyard_agents.shipped_agents import agents_evaluated_in

_MAX_LABEL_LENGTH = 60  # characters

#: added to the user's `seed`, so that no training draws the workloads of a comparison
COMPARISON_SEED_OFFSET = 2_000_000


def benchmark_experiments() -> list[str]:
    """Return the names of the experiments with `benchmark: true`."""
    files = config_files("experiment")
    return [name for name, file in files.items() if yaml.safe_load(file.read_text()).get("benchmark", False)]


def read_entries(schedulers: Any) -> dict[str, SchedulerEntry]:
    """Return {label: entry} of the setting `schedulers`; "all" stands for every scheduler of conf/scheduler.

    Labels must differ, can name a folder and are no other scheduler's name.
    """
    given = _as_list(schedulers)
    names = compose.scheduler_names()
    entries = [SchedulerEntry.read(name) for one in given for name in (names if one == "all" else [one])]
    for entry in entries:
        renamed = entry.label != entry.scheduler
        if renamed and (entry.label in ("", "all") or entry.label.partition("@")[0] in names):
            raise ConfigurationError(
                f"schedulers has {entry.scheduler!r} with the label {entry.label!r}, the name of another"
                " scheduler; expected a different label, such as mine"
            )
        check_label(entry.label)
    labels = {entry.label: entry for entry in entries}
    if not labels or len(labels) != len(entries):
        raise ConfigurationError(f"schedulers is {given}; expected one or more with different labels")
    return labels


def check_label(label: str) -> None:
    """Raise a ConfigurationError unless a label can name the folder of a scheduler's TensorBoard run."""
    fits = 0 < len(label) <= _MAX_LABEL_LENGTH and label not in (".", "..")
    if not fits or "/" in label or not label.isprintable():
        raise ConfigurationError(
            f"schedulers has the label {label!r}; expected 1 to {_MAX_LABEL_LENGTH} printable characters"
            " without /; put a label before a run folder, such as mine:runs/mine"
        )


def _as_list(schedulers: Any) -> list[Any]:
    found = to_plain(schedulers) if OmegaConf.is_config(schedulers) else schedulers
    return list(found) if isinstance(found, list | tuple) else [found]


def pretrained_agents_for(environment: Mapping[str, Any]) -> tuple[dict[str, SchedulerEntry], dict[str, str]]:
    """Return ({agent evaluated in an environment: its entry}, {agent that cannot run here: reason})."""
    name = tuned_name_for(environment)
    agents = [] if name is None else agents_evaluated_in(name)
    if importlib.util.find_spec("torch") is None:
        return {}, dict.fromkeys(agents, 'agents need pip install "ringyard[agents]"')
    return {agent: SchedulerEntry.read(agent) for agent in agents}, {}


@dataclass(frozen=True)
class ComparisonRequest:
    """Settings of `ringyard compare`, which conf/compare.yaml explains, as plain values."""

    schedulers: Sequence[Any]  #: as users write them (`SchedulerEntry.read`)
    environment: Mapping[str, Any]  #: {config group: config} of what is simulated
    interface: Mapping[str, Any]  #: {config group: config} of observation and action, for a model.zip
    experiments: Sequence[str] | None
    tuning: str | None
    reference: str | None
    seed: int  #: that of the user, without `COMPARISON_SEED_OFFSET`
    seeds: int  #: number of workloads
    measured_jobs: Window
    trust: Trust

    @classmethod
    def read(cls, config: DictConfig) -> Self:
        """Unpack the config of `ringyard compare`."""
        values = to_plain(config)
        values |= {"schedulers": _as_list(config.schedulers), "measured_jobs": tuple(config.measured_jobs)}
        values["environment"] = compose.plain_groups(config)
        values["interface"] = compose.plain_groups(config, INTERFACE_GROUPS)
        return cls(**{one.name: values[one.name] for one in fields(cls)})

    @property
    def wants_all(self) -> bool:
        """Whether `schedulers` contains "all"."""
        return "all" in self.schedulers

    def tuned_name(self, environment: Mapping[str, Any]) -> str | None:
        """Return the file or name in conf/tuned, if none is given that of the environment for `all`."""
        if self.tuning is None and (self.wants_all or self.experiments):
            return tuned_name_for(environment)
        return self.tuning

    def environments(self) -> dict[str, Mapping[str, Any]]:
        """Return {name: configs} of the environments to compare in.

        They are those of `experiments`, or else the configured one under the name "". All benchmark
        experiments are used if `schedulers=all` and no part of the environment was chosen. A part that the
        experiments would override is an error.
        """
        default = compose.plain_groups(hydra.compose("compare"))
        chosen = [group for group in ENVIRONMENT_GROUPS if self.environment[group] != default[group]]
        known = benchmark_experiments()
        names = self.experiments
        if names is None:
            names = known if self.wants_all and not chosen else []
        if not names:
            return {"": self.environment}
        for name in names:
            if name not in known:
                raise ConfigurationError(f"experiments has {name!r}; expected some of {', '.join(known)}")
        if chosen:
            raise ConfigurationError(
                f"{chosen[0]} was chosen, but experiments bring their own {chosen[0]}; leave it out, or set"
                " experiments=[] for a table of the environment that you chose"
            )
        return {
            name: compose.plain_groups(hydra.compose("compare", [f"experiment={name}"])) for name in names
        }

    def interface_of(self, name: str) -> Mapping[str, Any]:
        """Return the configs of observation and action of an environment that `environments` names."""
        if not name:
            return self.interface
        return compose.plain_groups(hydra.compose("compare", [f"experiment={name}"]), INTERFACE_GROUPS)


def workload_environment(environment: Mapping[str, Any], seed: int, workload: int) -> Mapping[str, Any]:
    """Return the configs for one workload. A cluster drawn at random is drawn anew for each workload."""
    cluster = environment["cluster"]
    if "seed" not in cluster:
        return environment
    return {**environment, "cluster": {**cluster, "seed": derive_seed(cluster["seed"], seed, workload)}}


def supported_schedulers(
    schedulers: Mapping[str, Mapping[str, Any]], environment: Mapping[str, Any], seed: int
) -> tuple[list[str], dict[str, str]]:
    """Return (labels of schedulers that support the jobs of an environment, {label of another: reason})."""
    sim = make_simulator(environment, 0, seed, None)
    supported, refused = [], {}
    for label, config in schedulers.items():
        try:
            scheduler = build_object(config)
            if scheduler.observability & Observability.HISTORY and not len(sim.jobs.past.num_gpus):
                refused[label] = "needs jobs that ended before the first arrival, and the workload has none"
                continue
            known = sim.jobs.restricted_to(scheduler.observability)
            scheduler.reset(sim.cluster, known, np.random.default_rng(0))
            supported.append(label)
        except ObservabilityError:
            raise
        except SchedulerError as error:
            refused[label] = str(error).removeprefix(scheduler.name).removeprefix(":").strip()
    return supported, refused
