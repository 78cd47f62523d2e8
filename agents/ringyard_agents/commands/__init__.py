"""The commands of `ringyard`: functions that take a config, and modules of this folder with `run(words)`.

Each is imported when it is called.
"""

import importlib
from collections.abc import Sequence

__all__ = ["COMMANDS", "OF_CONFIGS", "run"]

#: {command: what it does}, in the order of `ringyard --help`
COMMANDS = {
    "simulate": "one scheduler on one workload: a table and per-job times",
    "compare": "several schedulers on the same workloads: table, plots, CSV, TensorBoard",
    "plot": "finished runs on each other: learning curves, JCTs, profiles: `ringyard plot RUN_OR_FOLDER ...`",
    "watch": "schedulers on one workload, side by side in a page for the browser",
    "tune": "the placement rule and options that suit each scheduler in a setting",
    "train": "train an agent; -m sweeps over seeds and anything else",
    "best": "the best job of a sweep, and the agent to load: `ringyard best SWEEP`",
    "calibrate": "profiles and networks from your own measurements: `ringyard calibrate FILE`",
    "validate": "what ships against your measurements: `ringyard validate CSV` writes a page",
    "reproduce": "a paper's claims beside what is measured: `ringyard reproduce PAPER`",
    "fit": "train the interference predictors IASP and IAPP, and say how wrong they are on unseen jobs",
    "fit-hazard": "learn from a workload's tenants how soon jobs end that have run so long, for `hazard`",
    "traces": "where the public traces are; `ringyard traces NAME FILE` checks a local copy",
}

#: {command whose words are all Hydra's: module:function that takes the config}; the others have a module here
OF_CONFIGS = {
    "simulate": "ringyard_agents.evaluation.simulate:simulate",
    "compare": "ringyard_agents.evaluation.compare:compare",
    "watch": "ringyard_agents.watching.watch:watch",
    "tune": "ringyard_agents.evaluation.tune:tune",
    "fit-hazard": "ringyard_agents.predictors.fit_hazard:fit_hazard",
}


def run(command: str, words: Sequence[str]) -> None:
    """Run a command.

    Args:
        command: one of `COMMANDS`.
        words: what stands behind it on the command line.

    Raises:
        RingyardError: bad input.
    """
    if command in OF_CONFIGS:
        from ringyard_agents.commands.hydra_command import run_hydra

        run_hydra(command, OF_CONFIGS[command], words)
    else:
        importlib.import_module(f"{__name__}.{command}").run(words)
