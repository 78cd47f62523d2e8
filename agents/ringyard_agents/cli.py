"""The `ringyard` command."""

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringyard.checks import require
from ringyard.errors import ConfigurationError
from ringyard_agents.command_line import BAD_INPUT, Arguments, exit_code
from ringyard_agents.settings import Seed, check_settings

__all__ = ["main"]

USAGE = """usage: ringyard COMMAND [OVERRIDE ...]

commands:
  simulate   one scheduler on one workload: a table and per-job times
  compare    several schedulers on the same workloads: table, plots, CSV, TensorBoard
  tune       the placement rule and options that suit each scheduler in a setting
  train      train an agent; -m sweeps over seeds and anything else
  calibrate  profiles and networks from your own measurements: `ringyard calibrate FILE`
  validate   what ships against measurements: `ringyard validate FOLDER` (or a CSV) writes a page with plots
  reproduce  a paper's setting, its claims beside what is measured: `ringyard reproduce PAPER`, or --all;
             `ringyard reproduce agents` trains the agents that ship and judges them
  fit        train the interference predictors IASP and IAPP, and say how wrong they are on unseen jobs
  fit-hazard learn from a workload's tenants how soon jobs end that have run so long, for `hazard`
  traces     where the public traces are; `ringyard traces NAME FILE` checks a local copy

Overrides are Hydra's: ringyard simulate scheduler=sjf workload=csv workload.path=jobs.csv
`ringyard COMMAND --help` lists a command's settings, `ringyard COMMAND --cfg job` prints them.
RINGYARD_CONF (environment) names folders of your own yamls, as mine/scheduler/NAME.yaml (docs/schedulers.md).
docs/metrics.md explains every column of the tables.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; 0 on success, 2 on bad input, and what `command_line.exit_code` says.

    Args:
        arguments: as on the command line, without the program; None: the process's own.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    known = words[:1] if words and words[0] in _COMMANDS else []
    return exit_code(" ".join(["ringyard", *known]), lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if words else BAD_INPUT
    command, *rest = words
    if command not in _COMMANDS:
        raise ConfigurationError(f"unknown command {command!r}; expected one of {', '.join(_COMMANDS)}")
    _COMMANDS[command](rest)
    return 0


def _recipe(command: str) -> Callable[[Any], None]:
    """The function behind a command of Hydra's; imported late so that each starts fast."""
    if command == "simulate":
        from ringyard_agents.measuring.simulate import simulate

        return simulate
    if command == "compare":
        from ringyard_agents.measuring.compare import compare

        return compare
    if command == "tune":
        from ringyard_agents.measuring.tune import tune

        return tune
    if command == "fit-hazard":
        from ringyard_agents.predictors.fit_hazard import fit_hazard

        return fit_hazard
    from ringyard_agents.learning.train import train

    return train


#: beginnings of words of `train` that may name an agent to begin with
_SAY_INIT = ("init=", "experiment=", "debug=")


def _run_hydra(command: str, words: Sequence[str]) -> None:
    import hydra

    from ringyard.config_folder import config_folder, own_folders
    from ringyard_agents.files import remove_if_empty
    from ringyard_agents.record import register_run_folders, run_folders

    register_run_folders()
    if own_folders():
        from ringyard.mdp.presets import search_own_folders

        search_own_folders()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of Hydra's traceback printer
    if command == "train" and any(word.lstrip("+").startswith(_SAY_INIT) for word in words):
        from ringyard_agents.learning.initial import inherited

        words = inherited(words)
    sys.argv = [f"ringyard {command}", *words]
    _check_options()

    failures: list[Exception] = []
    folders: set[Path] = set()  # of the run, or of a sweep and its runs

    @hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=command)
    def entry(config: Any) -> None:
        folders.update(run_folders())
        try:
            check_settings(command, config)
            _recipe(command)(config)
        except Exception as error:  # a sweep goes on with its other jobs
            failures.append(error)

    try:
        entry()
    finally:
        for folder in sorted(folders, reverse=True):  # made by Hydra, before anything was found wrong
            remove_if_empty(folder)
    if failures:
        raise failures[0]


def _check_options() -> None:
    """Raise a ConfigurationError for options that Hydra does not have, or that we do not want."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()
    parser.__class__ = Arguments
    options = parser.parse_args()
    if options.multirun and any(word.startswith("resume=") for word in options.overrides):
        raise ConfigurationError("resume goes on with one run as it is; call it without -m, once for each")
    if options.experimental_rerun is not None:
        raise ConfigurationError(
            "--experimental-rerun loads a pickle, which may run any code; give overrides"
        )


def _traces(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard traces", description="Where the public traces are, or what a copy holds."
    )
    parser.add_argument("name", nargs="?", help="of a trace")
    parser.add_argument("file", nargs="?", help="a local copy")
    options = parser.parse_args(words)
    if (options.name is None) != (options.file is None):
        parser.error("a NAME wants a FILE beside it")

    from ringyard_agents.traces import list_traces, report_trace

    if options.name is None:
        list_traces()
    else:
        report_trace(options.name, options.file)


def _validate(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard validate",
        description="Hold what ships against measurements, then the equations.",
    )
    parser.add_argument(
        "place", help="folder with published files (pollux/, gavel/, ...) or tidy CSVs, or one tidy CSV"
    )
    parser.add_argument(
        "--out", default="validation", help="folder for the page and its images (%(default)s)"
    )
    parser.add_argument(
        "--performance", default="composed", help="performance model, of conf/performance (%(default)s)"
    )
    parser.add_argument("--network", help="between servers, of conf/network; default: as each set says")
    parser.add_argument("--interconnect", help="inside servers, of conf/interconnect; likewise")
    options = parser.parse_args(words)

    from ringyard_agents.validation.report import validate

    links = {"network": options.network, "interconnect": options.interconnect}
    given = {name: leaf for name, leaf in links.items() if leaf is not None}
    files = validate(options.place, options.out, options.performance, given)
    print(f"page: {files[0]}")


def _calibrate(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard calibrate",
        description="Profiles, networks and interconnects from measurements, with errors on held-out rows.",
    )
    parser.add_argument(
        "place",
        metavar="FILE",
        help="a CSV: model, gpu_type, placement, batch, seconds and more (docs/calibration.md); or the folder"
        " of published measurements, out of which everything that ships is made",
    )
    parser.add_argument("--out", default="calibrated", help="folder for the yamls (%(default)s)")
    parser.add_argument(
        "--network", default="own", help="name of the network, if rows name none (%(default)s)"
    )
    parser.add_argument("--interconnect", default="own", help="and of what is inside a server (%(default)s)")
    parser.add_argument(
        "--gradient-bytes",
        action="append",
        default=[],
        metavar="NAME=BYTES",
        help="of a model that has no profile: 4 bytes x parameters in fp32",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace yamls of another hand, too")
    options = parser.parse_args(words)

    from ringyard_agents.calibration.command import calibrate

    links = (options.network, options.interconnect)
    calibrate(options.place, options.out, *links, options.gradient_bytes, options.overwrite)


def _reproduce(words: Sequence[str]) -> None:
    from ringyard_agents.reproduction.command import main as reproduce

    reproduce(words)


def _fit(words: Sequence[str]) -> None:
    parser = Arguments(
        prog="ringyard fit",
        description="Train IASP and IAPP on pairs of jobs that share a GPU; prints the error on unseen jobs.",
    )
    parser.add_argument(
        "--data", help="folder of measured profiles (Gavel's pairs); default: simulated pairs"
    )
    parser.add_argument("--out", help="write the weights to this .npz file")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    options = parser.parse_args(words)
    require("--seed", options.seed, Seed)

    from ringyard_agents.predictors.fit_interference import fit_interference

    fit_interference(options.data, options.out, options.seed)


_COMMANDS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "simulate": functools.partial(_run_hydra, "simulate"),
    "compare": functools.partial(_run_hydra, "compare"),
    "tune": functools.partial(_run_hydra, "tune"),
    "train": functools.partial(_run_hydra, "train"),
    "calibrate": _calibrate,
    "validate": _validate,
    "reproduce": _reproduce,
    "fit": _fit,
    "fit-hazard": functools.partial(_run_hydra, "fit-hazard"),
    "traces": _traces,
}


if __name__ == "__main__":
    sys.exit(main())
