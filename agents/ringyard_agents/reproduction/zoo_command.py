"""The command line of `ringyard reproduce agents`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import hydra
from rich.console import Console

from ringyard.checks import require
from ringyard.config_folder import config_folder, own_folders
from ringyard.errors import ConfigurationError
from ringyard.mdp.presets import search_own_folders
from ringyard_agents.command_line import Arguments
from ringyard_agents.files import replaced, require_writable
from ringyard_agents.reproduction.zoo_judging import judge, read_records, require_judges, write_record
from ringyard_agents.reproduction.zoo_page import agents_page, draw_training
from ringyard_agents.reproduction.zoo_recipes import Recipe, read_recipes
from ringyard_agents.reproduction.zoo_training import is_trained, ship, train_all, training_record

__all__ = ["reproduce_agents"]


def reproduce_agents(words: Sequence[str]) -> None:
    """Train what is not trained yet, ship the best seeds, judge them and write the page.

    Args:
        words: as on the command line, after `reproduce agents`.

    Raises:
        RingyardError: bad input, or a run failed; what has been done is kept.
    """
    parser = Arguments(
        prog="ringyard reproduce agents",
        description="Train the agents of conf/zoo, ship the best seeds, judge them, write the page.",
    )
    parser.add_argument("--only", metavar="NAME", help="one agent (default: all)")
    parser.add_argument("--skip-training", action="store_true", help="judge the weights that ship")
    parser.add_argument(
        "--seeds", type=int, help="workloads in each world, to try it (default: as the recipe says)"
    )
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--out", default="docs/agents.md", help="the page (%(default)s)")
    options = parser.parse_args(words)
    require("--seeds", options.seeds, Annotated[int, "[2, 1000000]"] | None)
    require("--workers", options.workers, Annotated[int, "[1, 10000]"] | None)
    page, recipes = Path(options.out).expanduser(), read_recipes(options.only)
    for setting, file in (("--out", page), *(("the zoo", one.record) for one in recipes)):
        require_writable(setting, file)
    console = Console()
    if own_folders():
        search_own_folders()
    with hydra.initialize_config_dir(str(config_folder()), version_base="1.3"):
        if options.skip_training:
            _require_shipped(recipes)
        else:
            for recipe in recipes:
                require_judges(recipe)
            workers = options.workers or len(os.sched_getaffinity(0))
            train_all(
                recipes,
                workers,
                lambda line: console.print(line, style="dim", soft_wrap=True, markup=False, highlight=False),
            )
        for recipe in recipes:
            training, others = _shipped(recipe, options.skip_training)
            found = judge(recipe, others, options.seeds, options.workers, console)
            write_record(recipe, {"title": recipe.title, "training": training, **found})
            draw_training(page.parent / "images", recipe.name, training)
            with replaced(page) as partial:  # what has been judged stays if a later agent fails
                partial.write_text(agents_page(read_records()))
    console.print(f"page: {page}", soft_wrap=True)


def _require_shipped(recipes: Sequence[Recipe]) -> None:
    missing = [one.name for one in recipes if not (one.weights.is_file() and one.record.is_file())]
    if missing:
        raise ConfigurationError(
            f"{', '.join(missing)}: no weights ship, or no record of their training; leave --skip-training"
            " out"
        )


def _shipped(recipe: Recipe, as_it_is: bool) -> tuple[Mapping[str, Any], dict[str, str]]:
    """(how the agent was trained, {label: run folder} of its other seeds); ships the best seed before.

    Args:
        recipe: of the agent.
        as_it_is: leave what ships; other seeds are those whose runs are still there.
    """
    if as_it_is:
        training = read_records()[recipe.name]["training"]
    else:
        training = training_record(recipe)
        ship(recipe, training["shipped_seed"])
    seeds = [seed for seed in recipe.seeds if seed != training["shipped_seed"] and is_trained(recipe, seed)]
    return training, {f"seed {seed}": str(recipe.folder(seed)) for seed in seeds}
