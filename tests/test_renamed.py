"""Names of earlier versions: every row of `conf/renamed.yaml` says today's name, and the page lists it."""

import functools
import inspect
import re
import warnings
from importlib import import_module

import hydra
import pytest
from hydra import compose
from omegaconf import OmegaConf

import ringyard
import ringyard_agents
import ringyard_baselines
from conftest import ROOT
from ringyard.config_folder import config_files
from ringyard.errors import ConfigurationError
from ringyard.mdp.user_config import hydra_initialized
from ringyard.renamed import explain_renamed, renamed_names
from ringyard_agents.cli import main
from ringyard_agents.command_line import one_line
from ringyard_agents.config.compose import SchedulerEntry, scheduler_config
from ringyard_agents.config.schema import SETTINGS, check_settings

PAGE = (ROOT / "docs" / "renamed.md").read_text()
KINDS = ("settings", "commands", "options", "choices", "schedulers", "scheduler_options", "exports")
PACKAGES = {
    "ringyard": ringyard,
    "ringyard_agents": ringyard_agents,
    "ringyard_baselines": ringyard_baselines,
}
#: choices of groups with which commands have today's settings
CHOSEN = {
    "action": ["action=scores_start"],
    "placement": ["placement=share"],
    "agent": ["agent=evolution_taught", "agent=group_relative"],
    "workload": ["workload=partitioning", "workload=ones", "workload=csv"],
}


def rows(*kinds):
    return [(kind, old, new) for kind in kinds for old, new in renamed_names(kind).items()]


@pytest.mark.parametrize(("kind", "old", "new"), rows(*KINDS))
def test_the_page_lists_every_name(kind, old, new):
    written = "gone" if new is None else f"`{new}`"
    assert any(f"`{old}`" in line and written in line for line in PAGE.splitlines())


@functools.cache
def composed(command, *words):
    with hydra_initialized():
        return compose(command, list(words))


def commands(name):
    """Commands and words with which today's setting exists."""
    group, _, key = name.partition(".")
    for command in ("simulate" if group == "placement" else "train",) if key else SETTINGS:
        for words in [[word] for word in CHOSEN.get(group, [])] or [[]]:
            if OmegaConf.select(composed(command, *words), name, default="absent") != "absent":
                yield command, words


@pytest.mark.parametrize(("_kind", "old", "new"), rows("settings"))
def test_an_old_setting_names_the_new_one(_kind, old, new):
    found = list(commands(new))
    assert found
    for command, words in found:
        with hydra_initialized():
            with pytest.raises(hydra.errors.HydraException) as error:
                compose(command, [*words, f"{old}=1"])
            assert f"{old.removesuffix('.hold')} is called" in one_line(error.value)
            config = compose(command, [*words, f"+{old}=1"] if "." not in old else words)
        if "." not in old:
            with pytest.raises(ConfigurationError, match=f"{old} is called {new} now"):
                check_settings(command, config)


@pytest.mark.parametrize(("_kind", "old", "new"), rows("commands"))
def test_an_old_command_names_the_new_one(_kind, old, new, capsys):
    assert main([old, "measured.csv"]) == 2
    assert f"{old} is called {new} now" in capsys.readouterr().err
    assert (ROOT / "tools" / f"{new.rpartition('.')[2]}.py").is_file()


@pytest.mark.parametrize(("_kind", "old", "new"), rows("choices"))
def test_an_old_choice_names_the_new_one(_kind, old, new):
    command = "train" if old.startswith("agent=") else "simulate"
    said = f"{old} was removed without" if new is None else f"{old} is called {new} now"
    with hydra_initialized():
        compose(command, [new] if new else [])
        with pytest.raises(hydra.errors.HydraException) as error:
            compose(command, [old])
    assert said in one_line(error.value)


@pytest.mark.parametrize(("_kind", "old", "new"), rows("schedulers"))
def test_an_old_scheduler_names_the_new_one(_kind, old, new):
    assert old not in config_files("scheduler")
    assert new is None or new in config_files("scheduler")
    said = "was removed without a replacement" if new is None else f"is called {new} now"
    with hydra_initialized():
        with pytest.raises(ConfigurationError, match=said):
            scheduler_config(SchedulerEntry.read(old))
        with pytest.raises(hydra.errors.HydraException) as error:
            compose("simulate", [f"scheduler={old}"])
    assert said in one_line(error.value)


@pytest.mark.parametrize(("_kind", "old", "new"), rows("scheduler_options"))
def test_an_old_option_of_a_scheduler_names_the_new_one(_kind, old, new):
    scheduler, _, option = old.partition(".")
    with hydra_initialized():
        assert new in compose("simulate", [f"scheduler={scheduler}"]).scheduler
        with pytest.raises(ConfigurationError, match=f"{old} is called {new} now"):
            scheduler_config(SchedulerEntry.read({"mine": {"scheduler": scheduler, "options": {option: 1}}}))
        with pytest.raises(hydra.errors.HydraException) as error:
            compose("simulate", [f"scheduler={scheduler}", f"scheduler.{option}=1"])
    assert f"scheduler.{option} is called {new} now" in one_line(error.value)


@pytest.mark.parametrize(("_kind", "old", "new"), rows("exports"))
def test_an_old_export_works_with_a_warning(_kind, old, new):
    package, _, name = old.rpartition(".")
    if new is None:
        assert not hasattr(PACKAGES[package], name)
        return
    module, _, attribute = new.rpartition(".")
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new}"):
        found = getattr(PACKAGES[package], name)
    assert found is getattr(import_module(module), attribute)


def find_name(dotted):
    """The object of a dotted name, or the class for an attribute that only its instances have."""
    parts = dotted.split(".")
    found = import_module(parts[0])
    for position, part in enumerate(parts[1:], 1):
        if hasattr(found, part):
            found = getattr(found, part)
        elif inspect.ismodule(found):
            found = import_module(".".join(parts[: position + 1]))
        else:
            fields = {name for one in found.__mro__ for name in inspect.get_annotations(one)}
            set_in_methods = re.findall(
                r"\bself\.(\w+)(?=(?:, self\.\w+)*(?:: [^=\n]+)? = )", inspect.getsource(found)
            )
            if part not in fields.union(set_in_methods):
                raise AttributeError(dotted)
    return found


PYTHON_NAMES = re.findall(r"^\| `.*` \| `(.*)` \|$", PAGE.partition("## Python")[2], re.MULTILINE)


@pytest.mark.parametrize("name", sorted(set(PYTHON_NAMES)))
def test_every_python_name_of_today_exists(name):
    dotted, _, argument = name.removesuffix("=)").partition("(")
    found = find_name(dotted)
    if argument:
        assert argument in inspect.signature(found).parameters


@pytest.mark.parametrize("name", ["ringyard.nosuch", "ringyard.checks.NumberRange.nosuch", "nosuch.module"])
def test_python_names_that_do_not_exist_are_found_out(name):
    assert len(PYTHON_NAMES) > 200
    with pytest.raises((ImportError, AttributeError)):
        find_name(name)


@pytest.mark.parametrize("package", PACKAGES)
def test_other_names_are_not_there(package):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not hasattr(PACKAGES[package], "nosuch")


def test_names_of_today_are_not_refused():
    for kind in ("settings", "schedulers", "scheduler_options", "choices"):
        for new in filter(None, renamed_names(kind).values()):
            assert explain_renamed(kind, new) is None
