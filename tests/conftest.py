"""Fixtures and helpers shared by all tests."""

import copy
import functools
import os
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import instantiate

from random_simulations import SEED, fresh_seed
from ringyard.config_folder import USER_FOLDERS_VARIABLE
from ringyard.mdp.registration import environment_arguments

ROOT = Path(__file__).resolve().parents[1]
CONF = ROOT / "conf"
SHARED = ROOT.parent / "shared"


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")
    parser.addoption("--update-docs", action="store_true", help="write the generated pages of docs anew")


def pytest_configure(config):
    os.environ[SEED] = str(fresh_seed())  # processes that run tests for this one see the same


def pytest_sessionstart(session):
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        seed = os.environ[SEED]
        terminal.write_line(f"fresh simulations from seed {seed}; {SEED}={seed} plays them again")


@pytest.fixture
def update_golden(request):
    return request.config.getoption("--update-golden")


@pytest.fixture
def update_docs(request):
    return request.config.getoption("--update-docs")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


#: {cut of a trace: its folder}
TRACES = {
    "venus_gpu_jobs.csv.gz": "helios",
    "philly_jobs.csv.gz": "philly",
    "pai_gpu_tasks_sample.csv.gz": "alibaba_pai_v2020",
}

#: folders of pages that the site's build writes, and checks links to
GENERATED = {
    line.removeprefix("docs/").rstrip("/")
    for line in (ROOT / ".gitignore").read_text().splitlines()
    if line.startswith("docs/")
}

#: {agent: words that choose what it goes with}
WORDS_OF = {
    "random_search": ["form=weights"],
    "ppo_weights": ["form=weights"],
    "ppo_weights_elastic": ["form=weights"],
    "ppo_weights_full": ["form=weights"],
    "ppo_weights_sharing": ["form=weights"],
    "ppo_jobs": ["form=jobs"],
    "ppo_jobs_elastic": ["form=jobs"],
    "ppo_jobs_full": ["form=jobs"],
    "group_relative_jobs": ["form=jobs"],
    "sac": ["form=weights"],
    "ppo_attention": ["form=jobs"],
    "maskable_graph": ["observation=operation_graph"],
}

#: {a leaf for scores: the other part that it goes with}
WITH = {
    "scores": {"observation": "live_jobs"},
    "scores_attained": {"observation": "live_jobs_attained"},
    "scores_hazard": {"observation": "live_jobs_estimated"},
    "scores_start": {"observation": "live_jobs"},
    "scores_start_attained": {"observation": "live_jobs_attained"},
    "job_scores": {"observation": "live_jobs"},
    "weights": {"observation": "live_job_summary"},
    "saved_jct": {"action": "scores", "observation": "live_jobs"},
    "live_jobs": {"action": "scores"},
    "live_job_summary": {"action": "weights"},
    "live_jobs_attained": {"action": "scores_attained"},
    "live_jobs_estimated": {"action": "scores_hazard"},
}


def names(group):
    """The leaves of a config group."""
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


def composed(command, *overrides):
    """A command's config, without running it; composing takes long, so that each is composed once."""
    return copy.deepcopy(_composed(command, overrides, os.environ.get(USER_FOLDERS_VARIABLE)))


@functools.cache
def _composed(command, overrides, user_config_folders):
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(command, list(overrides))


def seeds(few, many):
    """Seeds of random simulations: a few in `make test`, all of them in `make slow`."""
    return [range(few), pytest.param(range(many), marks=pytest.mark.slow)]


def leaf(group, name, *overrides):
    """The object behind one yaml of a group."""
    config = composed("simulate", f"{group}={name}", *overrides)
    return instantiate(config[group], _convert_="all")


def shared(*parts):
    """A file beside the project; skips where the third-party data is absent."""
    file = SHARED.joinpath(*parts)
    if not file.exists():
        pytest.skip(f"third-party data not there: {file.name}")
    return file


def random_action(space, mask, rng):
    """A valid action of one cluster, by its `mask` if actions are discrete."""
    if isinstance(space, spaces.Box):
        return rng.uniform(-0.1, 0.1, space.shape).astype(np.float32)
    return rng.choice(np.flatnonzero(mask))


def experiment_ids():
    """{id: experiment}, one id of each: that without a form, or else that of the form jobs."""
    found = environment_arguments()
    jobs = {name: made["experiment"] for name, made in found.items() if made.get("form") == "jobs"}
    plain = {name: made["experiment"] for name, made in found.items() if "form" not in made}
    return plain | {name: one for name, one in jobs.items() if one not in plain.values()}
