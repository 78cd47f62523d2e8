"""`python -m tools.agents`: train the pretrained agents, evaluate them, and write their page."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard.mdp.user_config import hydra_initialized
from ringyard.threads import usable_cores
from ringyard_agents.command_line import Arguments, exit_code
from ringyard_agents.learning.agent import load_agent
from ringyard_agents.runs.atomic_write import atomic_write, require_writable
from ringyard_agents.shipped_agents import ZOO_PREFIX
from tools.zoo.evaluation import Record, judge, read_records, require_judges, write_record
from tools.zoo.page import agents_page, draw_training
from tools.zoo.recipes import Recipe, read_recipes
from tools.zoo.training import (
    is_trained,
    require_training,
    ship,
    train_all,
    training_record,
)


def reproduce_agents(
    only: str | None,
    skip_training: bool,
    workloads: int | None,
    workers: int | None,
    out: str,
    new_worlds: bool = False,
) -> None:
    """Train what is not trained yet, ship the best seeds, judge them and write the page.

    Args:
        only: one agent; None: all.
        skip_training: judge the weights that ship.
        workloads: in each world, for the page alone; None: as many as the recipe says.
        workers: processes; None: one per core.
        out: the page.
        new_worlds: judge the weights that ship in worlds that their record lacks; it keeps the others.

    Raises:
        RingyardError: bad input, a trace that is not there for the one agent that is named, or a run
            failed; what has been done is kept.
    """
    skip_training = skip_training or new_worlds
    page, recipes = Path(out).expanduser(), read_recipes(only)
    for setting, file in (("--out", page), *(("the zoo", one.record) for one in recipes)):
        require_writable(setting, file)
    console = Console()

    def say(line: str) -> None:
        console.print(line, style="dim", soft_wrap=True, markup=False, highlight=False)

    recipes = [one for one in recipes if _can_be_evaluated(one, only is not None, say)]
    records = read_records()
    with hydra_initialized():
        if skip_training:
            _require_shipped(recipes, records)
        for recipe in recipes:
            require_judges(recipe)
        if not skip_training:
            for recipe in recipes:
                require_training(recipe)
            train_all(recipes, workers or usable_cores(), say)
        for name, one in records.items():  # the page shows those that are left out, too
            draw_training(page.parent / "images", name, one["training"])
        for recipe in recipes:
            if skip_training:
                training = records[recipe.name]["training"]
            else:
                training = _ship_best(recipe)
            others = _other_seeds(recipe, training["shipped_seed"])
            kept = records[recipe.name] if skip_training else None
            found, values = judge(recipe, others, workloads, workers, console, kept, not new_worlds)
            records[recipe.name] = {"title": recipe.title, "training": training, **found}
            if workloads is None:
                write_record(recipe, records[recipe.name], values, page.parent / "results" / "agents")
            draw_training(page.parent / "images", recipe.name, training)
            with atomic_write(page) as partial:  # what has been evaluated stays if a later agent fails
                partial.write_text(agents_page(dict(sorted(records.items()))))
    console.print(f"page: {page}", soft_wrap=True)


def _can_be_evaluated(recipe: Recipe, named: bool, say: Callable[[str], None]) -> bool:
    """Whether the traces that a recipe needs are there; of one that was asked for, they must be."""
    missing = recipe.missing
    if missing and named:
        raise ConfigurationError(f"{recipe.name} needs files that are not in this folder: {missing}")
    if missing:
        say(f"left out: {recipe.name}, which needs files that are not in this folder: {missing}")
    return not missing


def _require_shipped(recipes: Sequence[Recipe], records: Mapping[str, Record]) -> None:
    missing = [one.name for one in recipes if not (one.weights.is_file() and one.name in records)]
    if missing:
        raise ConfigurationError(
            f"{', '.join(missing)}: no weights ship, or no record of their training; leave --skip-training"
            " out"
        )
    for one in recipes:
        load_agent(ZOO_PREFIX + one.name)


def _ship_best(recipe: Recipe) -> dict[str, Any]:
    """Ship the best of an agent's training seeds; the record of its training."""
    training = training_record(recipe)
    ship(recipe, training["shipped_seed"])
    return training


def _other_seeds(recipe: Recipe, shipped_seed: int) -> dict[str, str]:
    """{label: run folder} of the training seeds that do not ship and whose runs are still there."""
    seeds = [seed for seed in recipe.seeds if seed != shipped_seed and is_trained(recipe, seed)]
    return {f"seed {seed}": str(recipe.folder(seed)) for seed in seeds}


def main(words: Sequence[str]) -> int:
    """Run the command.

    Args:
        words: of the command line.

    Returns:
        The exit code: 2 for bad input.
    """
    return exit_code("tools.agents", lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    parser = Arguments(
        prog="python -m tools.agents",
        description="Train the agents of tools/conf/zoo, ship the best seeds, evaluate them, write the page.",
    )
    parser.add_argument("--only", metavar="NAME", help="one agent (default: all)")
    parser.add_argument("--skip-training", action="store_true", help="evaluate the shipped weights")
    parser.add_argument(
        "--new-worlds",
        action="store_true",
        help="as --skip-training, for environments without results in the agent's record; others are kept",
    )
    parser.add_argument(
        "--workloads",
        type=int,
        help="number in each environment, for a trial page (default: that of the recipe)",
    )
    parser.add_argument("--workers", type=int, help="processes (default: one per core)")
    parser.add_argument("--out", default="docs/agents.md", help="the page (%(default)s)")
    given = parser.parse_args(words)
    require("--workloads", given.workloads, Annotated[int, "[2, 1000000]"] | None)
    require("--workers", given.workers, Annotated[int, "[1, 10000]"] | None)
    reproduce_agents(
        given.only, given.skip_training, given.workloads, given.workers, given.out, given.new_worlds
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
